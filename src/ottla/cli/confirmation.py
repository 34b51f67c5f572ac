"""Asks for confirmation before something is lost."""

import sys

import typer

from ottla.cli.output import printable, say
from ottla.cli.running import ExitStatus


def confirm(question: str) -> None:
    """Ends the command unless a person agrees; without a terminal, --yes is required."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("not a terminal; pass --yes to confirm")
    if not typer.confirm(printable(question), err=True):
        say("cancelled; nothing was changed")
        raise typer.Exit(ExitStatus.REFUSED)
