"""The screen of `ottla serve` for people, and that scripts do not get it."""

import os
import pty
from pathlib import Path

from tests.processes import OTTLA, Program


def test_a_terminal_gets_the_screen_after_the_line_ready(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [*OTTLA, "serve", "--data", tmp_path / "data", "--listen", "127.0.0.1:0"]
    with (
        os.fdopen(ours, "r", encoding="utf-8") as terminal,
        Program(command, tmp_path / "serve", output=theirs) as served,
    ):
        os.close(theirs)
        ready = terminal.readline().split()
        assert "ready" == ready[0]
        lines: list[str] = []
        while not lines or "Ctrl-C" not in lines[-1]:
            lines.append(terminal.readline().rstrip())
        assert f"    address   {ready[1]}" in lines
        assert 0 == served.stop()
