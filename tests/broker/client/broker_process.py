"""A broker as its own process, as a user starts it, for tests that talk to one."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STOP_TIMEOUT_S = 30


@contextmanager
def running_broker(data: Path) -> Iterator[str]:
    """Starts `ottla serve` on a free port, and gives the address that it says it is ready at. A group's first
    rebalance does not wait for more members."""
    command = [sys.executable, "-m", "ottla", "serve", "--data", str(data), "--listen", "127.0.0.1:0"]
    command += ["--set", "group.initial.rebalance.delay.ms=0"]
    with (data.parent / f"{data.name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        words = process.stdout.readline().split()
        assert ["ready"] == words[:1], (data.parent / f"{data.name}.log").read_text()
        yield words[1]
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
