"""Reads a password: from a hidden prompt that asks twice, from a file, or from stdin. Never from the command line."""

import stat
import sys
from pathlib import Path
from typing import Final

from ottla.cli.options import UsageError
from ottla.cli.output import clear_line, say

_SIZE_MAX: Final = 4096
STDIN: Final = "-"


def read_password(user: str, file: str | None) -> str:
    """The password for a user. A file's first line counts, without its end."""
    if file is None:
        return _ask(user)
    text = sys.stdin.readline(_SIZE_MAX) if file == STDIN else _first_line(Path(file))
    password = text.rstrip("\r\n")
    if not password:
        raise UsageError(f"{'stdin' if file == STDIN else file} has no password in its first line")
    return password


def _first_line(path: Path) -> str:
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        say(f"ottla: warning: {path} can be read by other users of this machine; chmod 600 {path}")
    with path.open(encoding="utf-8") as file:
        return file.readline(_SIZE_MAX)


def _ask(user: str) -> str:
    if not sys.stdin.isatty():
        raise UsageError("not a terminal; pass --password-file FILE (- for stdin)")
    from getpass import getpass

    clear_line()
    password = getpass(f"Password for {user}: ")
    if not password:
        raise UsageError("the password must not be empty")
    if getpass("Repeat the password: ") != password:
        raise UsageError("the passwords differ; nothing was changed")
    return password
