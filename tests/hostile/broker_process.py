"""A broker in a process of its own, as the operating system sees it: its log, memory, descriptors and CPU time.

Needs nothing but Ottla itself. The broker can be killed and started again on the same files and the same port.
"""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ottla.testing.free_ports import free_port

START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 300.0
SETTLE_TIMEOUT_S: Final = 120.0
LOOK_SECONDS: Final = 0.02
DESCRIPTORS_MAX: Final = 16_384

ALARMS: Final = ("Traceback", "unexpected", " ERROR ", " CRITICAL ")
"""What a broker's log has only if the broker itself is wrong, not its clients."""


class BrokerProcess:
    """`start`, `stop` and `kill` as often as wanted; a context manager that starts at once and stops at the end."""

    def __init__(self, folder: Path, *, settings: Mapping[str, str] | None = None, data: Path | None = None) -> None:
        self.folder = folder
        self.data = data or folder / "data"
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The process's number; it must be running."""
        if self._process is None:
            raise RuntimeError(f"the broker in {self.folder} is not running")
        return self._process.pid

    def start(self) -> None:
        """Returns once the broker said that it is ready."""
        if self._process is not None:
            raise RuntimeError(f"the broker in {self.folder} is running already")
        self.folder.mkdir(parents=True, exist_ok=True)
        known = len(self._console())
        command = [sys.executable, "-m", "ottla", "serve", "--data", str(self.data)]
        if "listeners" not in self._settings:
            command += ["--listen", self.address]
        settings = [part for key, value in self._settings.items() for part in ("--set", f"{key}={value}")]
        with (self.folder / "console.log").open("ab") as console, (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *settings],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
                preexec_fn=_allow_descriptors,
            )
        try:
            self._wait_ready(self._process, known)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """A clean end; one that takes too long, or has another status than 0, is a failure."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the broker did not end within {STOP_TIMEOUT_S} s:\n{self.log_end()}") from None
        finally:
            self.kill()
        if status != 0:
            raise RuntimeError(f"the broker ended with {status} when asked to stop:\n{self.log_end()}")

    def kill(self) -> None:
        """Ends it at once, with its helper processes; nothing happens if it is not running."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        """Stops it where it is (SIGSTOP): nothing is answered from now on. `kill` ends it all the same."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGSTOP)

    # What it looks like from outside

    def is_running(self) -> bool:
        """Whether it was started and has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    def resident_bytes(self) -> int:
        """The memory that it has now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    def peak_bytes(self) -> int:
        """The most memory that it ever had since `forget_peak`."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def forget_peak(self) -> None:
        """From now on `peak_bytes` counts anew."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def descriptors(self) -> int:
        """How many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu_seconds(self) -> float:
        """What it has computed since it started, in user and kernel."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wait_descriptors(self, count_max: int) -> int:
        """How many are open once they are no more than this, or in the end."""
        wait_for(lambda: self.descriptors() <= count_max, "descriptors are given back", must=False)
        return self.descriptors()

    def log_text(self) -> str:
        """All that it ever logged."""
        path = self.folder / "broker.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def log_end(self) -> str:
        """The last of it, for a message."""
        return self.log_text()[-6000:]

    def alarms(self) -> list[str]:
        """Lines of the log that no client may cause."""
        return [line for line in self.log_text().splitlines() if any(alarm in line for alarm in ALARMS)]

    def _console(self) -> str:
        path = self.folder / "console.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _wait_ready(self, process: "subprocess.Popen[bytes]", known: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while "ready" not in self._console()[known:]:
            if process.poll() is not None:
                raise RuntimeError(f"the broker ended while it started, with {process.returncode}:\n{self.log_end()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker is not ready after {START_TIMEOUT_S} s:\n{self.log_end()}")
            time.sleep(LOOK_SECONDS)


def wait_for(condition: Callable[[], bool], what: str, *, must: bool = True) -> None:
    """Looks again and again until it is so; a condition that never comes is a failure, unless it need not come."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            if must:
                raise TimeoutError(f"waited {SETTLE_TIMEOUT_S} s in vain until {what}")
            return
        time.sleep(LOOK_SECONDS)


def _allow_descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(DESCRIPTORS_MAX, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
