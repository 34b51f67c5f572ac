"""Runs `ottla` as a person does, with stdout or stderr on a terminal."""

import os
import pty
import subprocess
import sys
from dataclasses import dataclass

from tests.waiting import PATIENCE_SECONDS

TIMEOUT_S = PATIENCE_SECONDS
WIDTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a command wrote: to the terminal, and to the stream that was not one."""

    status: int
    terminal: bytes
    piped: bytes


def on_terminal(bootstrap: str, *arguments: str, stream: str = "stdout", stdin: bytes = b"") -> Shown:
    """Runs a command with one stream on a terminal, which leaves bytes as they are but for line ends."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", *arguments],
        stdin=subprocess.PIPE,
        env={**os.environ, "OTTLA_BOOTSTRAP": bootstrap, "COLUMNS": str(WIDTH), "TERM": "xterm"},
        stdout=theirs if stream == "stdout" else subprocess.PIPE,
        stderr=theirs if stream == "stderr" else subprocess.PIPE,
    )
    os.close(theirs)
    try:
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.close()
        pieces = []
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                # Linux's way to say that nobody has the other end any more.
                break
            if not piece:
                break
            pieces.append(piece)
        other = process.stderr or process.stdout
        assert other is not None
        piped = other.read()
        return Shown(status=process.wait(TIMEOUT_S), terminal=b"".join(pieces).replace(b"\r\n", b"\n"), piped=piped)
    finally:
        os.close(ours)
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
