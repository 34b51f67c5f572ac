"""Starts the programs of `sink_programs` as processes and ends them with everything that they started."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

TIMEOUT_S = 300


class DriverProcess:
    """One run of `copy_stream`. A context manager: no process is left."""

    def __init__(self, folder: Path, **given: Any) -> None:
        self._folder = folder
        self._log = folder / "driver.log"
        command = [sys.executable, "-m", "tests.spark.sink_programs.copy_stream"]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, json.dumps({**given, "folder": str(folder)})],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.poll() is None

    @property
    def log(self) -> str:
        """All that it wrote."""
        return self._log.read_text(errors="replace")

    def wait(self, timeout: float = TIMEOUT_S) -> int:
        """Its exit code; negative for a signal."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver is still there after {timeout} s:\n{self.log[-6000:]}") from None

    def wait_well(self, timeout: float = TIMEOUT_S) -> None:
        """Returns when it has ended as it should."""
        code = self.wait(timeout)
        assert 0 == code, f"the driver ended with {code}:\n{self.log[-6000:]}"

    def kill(self) -> None:
        """Ends it, its Java, its executors and their workers, at once."""
        for process in [*_descendants(self.process.pid), self.process.pid]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()


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
