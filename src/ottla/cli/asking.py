"""Asks back before something is lost."""

import sys

import typer

from ottla.cli.running import ExitStatus


def confirm(question: str) -> None:
    """Ends the command unless a person agrees; where nobody can answer, it is a mistake not to have said --yes."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody can be asked here; say --yes if you mean it")
    if not typer.confirm(question, err=True):
        raise typer.Exit(ExitStatus.REFUSED)
