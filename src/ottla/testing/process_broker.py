"""A broker as a process of its own, `ottla serve`, as in production: faults are the operating system's signals."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ottla.model.errors import MisuseError
from ottla.testing.broker_handle import BrokerDidNotStartError, BrokerHandle

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 60.0
_LOG_TOLD: Final = 2000


class ProcessBroker(BrokerHandle):
    """See `BrokerHandle`. What it logs is in `broker.log` of its folder.

    `store` is a metadata store as `--metadata` takes it, in place of the file. `host` is the address to serve at.
    `launcher` is what the command begins with: something that puts the process elsewhere and becomes it.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        metadata: Path | None = None,
        store: str | None = None,
        host: str = BrokerHandle.host,
        launcher: Sequence[str] = (),
    ) -> None:
        super().__init__(folder, settings, metadata=metadata)
        self.host = host
        self._store = f"sqlite:{metadata}" if store is None and metadata is not None else store
        self._launcher = tuple(launcher)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_paused = False

    @property
    def is_running(self) -> bool:
        """See `BrokerHandle`."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_paused(self) -> bool:
        """See `BrokerHandle`."""
        return self._is_paused

    @property
    def pid(self) -> int:
        """The process's number while it runs."""
        if self._process is None:
            raise MisuseError("the broker does not run; `start` it first")
        return self._process.pid

    @property
    def log(self) -> str:
        """All that it ever logged."""
        path = self.folder / "broker.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """See `BrokerHandle`."""
        if self._process is not None:
            raise MisuseError(f"the broker at {self.bootstrap} runs already")
        self.folder.mkdir(parents=True, exist_ok=True)
        address = f"{self.host}:{self.port}"
        command = [*self._launcher, sys.executable, "-P", "-m", "ottla", "serve"]
        command += ["--data", str(self.data), "--listen", address]
        if self._store is not None:
            command += ["--metadata", self._store]
        command += [part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")]
        with (self.folder / "broker.log").open("ab") as log:
            # A session of its own: Ctrl-C on the tests must not reach it, and its helper can be killed with it.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        try:
            self.port = self._wait_ready(self._process)
        except BaseException:
            self.kill()
            raise

    def _wait_ready(self, process: "subprocess.Popen[bytes]") -> int:
        if process.stdout is None:
            raise MisuseError("the broker was started without a pipe")
        deadline = time.monotonic() + START_SECONDS
        said = b""
        while not said.endswith(b"\n"):
            readable, _, _ = select.select([process.stdout], [], [], max(deadline - time.monotonic(), 0))
            more = os.read(process.stdout.fileno(), 4096) if readable else b""
            if not more:
                why = "it ended" if readable else f"it is not ready after {START_SECONDS:.0f} s"
                raise BrokerDidNotStartError(
                    f"the broker in {self.folder} did not start: {why}\n{self.log[-_LOG_TOLD:].strip()}"
                )
            said += more
        return int(said.split()[1].rpartition(b":")[2])

    def stop(self) -> None:
        """See `BrokerHandle`."""
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        # A stop that hangs is the test's to see, in what it finds; nothing may be left behind in any case.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """See `BrokerHandle`."""
        process, self._process = self._process, None
        self._is_paused = False
        if process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def pause(self) -> None:
        """See `BrokerHandle`."""
        if not self.is_running:
            raise MisuseError("the broker does not run, so it cannot be paused")
        os.kill(self.pid, signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """See `BrokerHandle`."""
        if self._is_paused and self.is_running:
            os.kill(self.pid, signal.SIGCONT)
        self._is_paused = False
