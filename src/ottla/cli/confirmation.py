"""Asks for confirmation before something is lost."""

import sys

import typer

from ottla.cli.command_runner import ExitStatus
from ottla.cli.options import UsageError
from ottla.cli.output import clear_line, printable, say


def confirm(question: str, *, yes: bool) -> None:
    """Ends the command unless --yes was passed or the user agrees; without a terminal, --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("not a terminal; pass --yes to confirm")
    clear_line()
    if not typer.confirm(printable(question), err=True):
        say("cancelled; nothing was changed")
        raise typer.Exit(ExitStatus.REFUSED)
