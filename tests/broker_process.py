"""A broker in a process of its own, as the operating system sees it: its log, memory, descriptors and CPU time.

Its settings are the defaults, unlike those of `ottla.testing.ProcessBroker`. It can be killed and started again on the
same files and the same port.
"""

import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from ottla.testing.free_ports import free_port
from tests.processes import OTTLA, Program
from tests.waiting import wait_until

ALARMS: Final = ("Traceback", "unexpected", " ERROR ", " CRITICAL ")
"""What a broker's log has only if the broker itself is wrong, not its clients."""

STEADY: Final = {"group.initial.rebalance.delay.ms": "0", "log.retention.check.interval.ms": "3600000"}
"""For a broker that many tests share: groups do not wait for more members, and records with old timestamps are not
deleted in the middle of a test, as they would be every five minutes."""


class BrokerProcess:
    """`start`, `stop` and `kill` in turns; a context manager that starts at once and kills at the end."""

    def __init__(self, folder: Path, *, settings: Mapping[str, str] | None = None, data: Path | None = None) -> None:
        self.folder = folder
        self.data = data or folder / "data"
        self.address = f"127.0.0.1:{free_port()}"
        self._settings = {"listeners": f"PLAINTEXT://{self.address}", **(settings or {})}
        self._program: Program | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def program(self) -> Program:
        """The program, which must be started."""
        assert self._program is not None, f"the broker in {self.folder} is not running"
        return self._program

    def start(self) -> None:
        """Returns when the broker is ready."""
        assert self._program is None, f"the broker in {self.folder} is running already"
        settings = [part for key, value in self._settings.items() for part in ("--set", f"{key}={value}")]
        command = [*OTTLA, "serve", "--data", self.data, *settings]
        program = Program(command, self.folder / "broker")
        program.wait_ready()
        self._program = program

    def stop(self) -> None:
        """Stops it cleanly; fails if it takes too long, or has another exit status than 0."""
        if self._program is None:
            return
        try:
            assert 0 == self._program.stop(), self._program.log_end
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends it at once, with its helper processes; does nothing if it is not running."""
        program, self._program = self._program, None
        if program is not None:
            program.kill()

    # What it looks like from outside

    def is_running(self) -> bool:
        """Whether it was started and has not ended by itself."""
        return self._program is not None and self._program.is_running

    def resident_bytes(self) -> int:
        """The memory that it has now."""
        return int(Path(f"/proc/{self.program.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    def peak_bytes(self) -> int:
        """The most memory that it had since `forget_peak`."""
        status = Path(f"/proc/{self.program.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def forget_peak(self) -> None:
        """`peak_bytes` begins again."""
        Path(f"/proc/{self.program.pid}/clear_refs").write_text("5")

    def descriptors(self) -> int:
        """How many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.program.pid}/fd"))

    def cpu_seconds(self) -> float:
        """What it has computed since it started, in user and kernel."""
        fields = Path(f"/proc/{self.program.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def loop_cpu_seconds(self) -> float:
        """What the thread of the event loop has computed since it started: no client is served meanwhile."""
        pid = self.program.pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9

    def wait_descriptors(self, count_max: int) -> None:
        """Returns once no more than this are open."""
        wait_until(lambda: self.descriptors() <= count_max, lambda: f"{self.descriptors()} <= {count_max} descriptors")

    def log(self) -> str:
        """All that it ever logged."""
        return (self.folder / "broker.log").read_text(errors="replace")

    def alarms(self) -> list[str]:
        """Lines of the log that no client may cause."""
        return [line for line in self.log().splitlines() if any(alarm in line for alarm in ALARMS)]
