"""The screen of `ottla serve` for people, and that scripts do not get it."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE_SECONDS


def test_a_terminal_gets_the_screen_after_the_line_ready(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"],
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    try:
        with os.fdopen(ours, "r", encoding="utf-8") as terminal:
            ready = terminal.readline().split()
            assert "ready" == ready[0]
            lines: list[str] = []
            while not lines or "Ctrl-C" not in lines[-1]:
                lines.append(terminal.readline().rstrip())
            assert f"    address   {ready[1]}" in lines
            process.send_signal(signal.SIGTERM)
            assert 0 == process.wait(PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()
