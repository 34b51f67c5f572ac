"""Starts the programs of `sink_programs` as processes and ends them with everything that they started."""

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.processes import Program

TIMEOUT_S = 300


class DriverProcess(Program):
    """One run of `copy_stream`. A context manager: no process is left."""

    def __init__(self, folder: Path, **given: Any) -> None:
        command = [sys.executable, "-m", "tests.spark.sink_programs.copy_stream"]
        command.append(json.dumps({**given, "folder": str(folder)}))
        super().__init__(command, folder / "driver", environment={"PYSPARK_PYTHON": sys.executable})

    def wait(self, seconds: float = TIMEOUT_S) -> int:
        """Its exit status, negative for a signal, once it has ended."""
        return super().wait(seconds)

    def wait_well(self, timeout: float = TIMEOUT_S) -> None:
        """Returns when it has ended as it should."""
        assert 0 == self.wait(timeout), self.log_end

    def kill(self) -> int:
        """Ends it, its Java, its executors and their workers, which have sessions of their own, at once."""
        for process in _descendants(self.pid):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return super().kill()


def _descendants(process: int) -> list[int]:
    """All processes below one."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                continue
            parent = int(text.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found: list[int] = []
    waiting = [process]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found
