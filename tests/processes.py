"""Programs that tests start: what they write is kept in files, and none outlives its test.

`Program` runs beside the test, `run` to its end. Every wait is bounded (`tests/waiting.py`), and a failure shows the
end of the program's log. The files lie where the test says, best in its `tmp_path`: they are kept if it fails.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final, Self

from tests.waiting import PATIENCE_SECONDS, wait_until

OTTLA: Final = (sys.executable, "-P", "-m", "ottla")
"""The command `ottla`, with the interpreter of the tests."""
LOG_END_CHARACTERS: Final = 6000
Environment = Mapping[str, str]
NO_CHANGES: Final[Environment] = MappingProxyType({})


class Program:
    """A program in a session of its own. A context manager that kills it, and all of its session, at the end.

    `<files>.out` has what it prints, `<files>.log` its stderr; one that is started again continues them. `output` is a
    descriptor for what it prints in place of the file. `environment` is added to that of the tests.
    """

    def __init__(
        self,
        command: Sequence[object],
        files: Path,
        *,
        environment: Environment = NO_CHANGES,
        folder: Path | None = None,
        has_input: bool = False,
        output: int | None = None,
    ) -> None:
        files.parent.mkdir(parents=True, exist_ok=True)
        self._output, self._log = Path(f"{files}.out"), Path(f"{files}.log")
        with self._output.open("ab") as printed, self._log.open("ab") as errors:
            self._start = self._next = printed.tell()
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
                stdout=printed if output is None else output,
                stderr=errors,
                cwd=folder,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; a paused program is running."""
        return self.process.poll() is None

    @property
    def log(self) -> str:
        """All that it wrote to stderr."""
        return self._log.read_text(errors="replace")

    @property
    def log_end(self) -> str:
        """The end of its log, for a message."""
        return f"{self._log}:\n{self.log[-LOG_END_CHARACTERS:]}"

    # What it prints

    def next_line(self, seconds: float = PATIENCE_SECONDS) -> str:
        """The next line that it prints; fails if it ends instead."""

        def read() -> bytes:
            has_ended = not self.is_running  # before the look: it may print a line and end
            line = self._rest(1)
            assert line or not has_ended, f"ended with {self.process.returncode} and no further line; {self.log_end}"
            return line

        return wait_until(read, lambda: f"a line is printed; {self.log_end}", seconds).decode().rstrip("\n")

    def wait_ready(self) -> str:
        """Returns what stands behind `ready` in the next line: the addresses of a server. One that fails is killed."""
        try:
            word, _, addresses = self.next_line().partition(" ")
            assert "ready" == word, f"{word} {addresses}; {self.log_end}"
        except BaseException:
            self.kill()
            raise
        return addresses

    def remaining_lines(self) -> list[str]:
        """The lines that it has printed since the last that was read."""
        return self._rest().decode().splitlines()

    def printed(self) -> str:
        """All that it has printed since it was started."""
        with self._output.open("rb") as file:
            file.seek(self._start)
            return file.read().decode(errors="replace")

    def _rest(self, lines_max: int | None = None) -> bytes:
        """Whole lines behind the last that was read."""
        with self._output.open("rb") as file:
            file.seek(self._next)
            rest = file.readline() if lines_max == 1 else file.read()
            rest = rest[: rest.rfind(b"\n") + 1]
        self._next += len(rest)
        return rest

    # What it is told

    def write(self, line: str) -> None:
        """Writes a line to its stdin."""
        self._input.write(f"{line}\n".encode())
        self._input.flush()

    def end_input(self) -> None:
        """Closes its stdin."""
        with suppress(BrokenPipeError):
            self._input.close()

    @property
    def _input(self) -> IO[bytes]:
        assert self.process.stdin is not None, "it was started without has_input"
        return self.process.stdin

    def send(self, number: signal.Signals) -> None:
        """Sends it a signal; does nothing if it has ended."""
        self.process.send_signal(number)

    def pause(self) -> None:
        """Stops it where it is: its connections stay open, and nothing is answered from here on."""
        self.send(signal.SIGSTOP)
        with suppress(ChildProcessError):  # it has ended
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Continues a paused program."""
        self.send(signal.SIGCONT)

    # How it ends

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Its exit status, negative for a signal, once it has ended."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds:g} s; {self.log_end}") from None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Asks it to end, unless it has, and returns its exit status."""
        self.resume()
        self.send(number)
        return self.wait()

    def kill(self) -> int:
        """Ends it and all of its session at once, and returns how it ended, which may have been before."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        status = self.process.wait()
        if self.process.stdin is not None:
            self.end_input()
        return status


def run(
    command: Sequence[object],
    *,
    status: int | None = 0,
    text: str = "",
    environment: Environment = NO_CHANGES,
    folder: Path | None = None,
    seconds: float = PATIENCE_SECONDS,
) -> "subprocess.CompletedProcess[str]":
    """Runs a program to its end, which must have this exit status, if any; `text` is its input."""
    done = subprocess.run(
        list(map(str, command)),
        input=text,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        cwd=folder,
        timeout=seconds,
    )
    assert status in (None, done.returncode), f"{done.args} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done
