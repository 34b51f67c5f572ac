"""A broker in its own process, `ottla serve`, as in production: kill and pause are signals."""

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
    """A broker in its own process. Its log is `broker.log` in its folder.

    `store` is a metadata store as `--metadata` takes it, in place of the file. `host` is the address to serve at.
    `launcher` is what the command begins with: something that puts the process elsewhere and becomes it. With
    `registry`, a schema registry runs beside it, on a free port. `protocol` is the security protocol of its listener;
    `first_users` are created before it listens, as `--add-scram` takes them.
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
        registry: bool = False,
        protocol: str = "PLAINTEXT",
        first_users: Sequence[str] = (),
    ) -> None:
        super().__init__(folder, settings, metadata=metadata)
        self.host = host
        self._store = f"sqlite:{metadata}" if store is None and metadata is not None else store
        self._launcher = tuple(launcher)
        self._has_registry = registry
        self._protocol = protocol
        self._first_users = tuple(first_users)
        self._registry_url: str | None = None
        self._said = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._is_paused = False

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped or killed."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_paused(self) -> bool:
        """Whether it is paused."""
        return self._is_paused

    @property
    def pid(self) -> int:
        """The process id, while it is running."""
        if self._process is None:
            raise MisuseError("the broker is not running; `start` it first")
        return self._process.pid

    @property
    def log(self) -> str:
        """The whole log."""
        path = self.folder / "broker.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Starts it on its data, and returns when it is ready."""
        if self._process is not None:
            raise MisuseError(f"the broker at {self.bootstrap} is already running")
        self.folder.mkdir(parents=True, exist_ok=True)
        address = f"{self.host}:{self._port_to_listen_on()}"
        command = [*self._launcher, sys.executable, "-P", "-m", "ottla", "serve"]
        command += ["--data", str(self.data)]
        if self._protocol == "PLAINTEXT":
            command += ["--listen", address]
        else:
            command += ["--set", f"listeners={self._protocol}://{address}"]
        if self._has_registry:
            command += ["--registry", f"{self.host}:0"]
        if self._store is not None:
            command += ["--metadata", self._store]
        command += [part for each in self._first_users for part in ("--add-scram", each)]
        command += [part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")]
        with (self.folder / "broker.log").open("ab") as log:
            # A new session: Ctrl-C must not reach it, and its helper process can be killed with it.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        try:
            self.port = self._wait_ready(self._process)
        except BaseException:
            self.kill()
            raise

    def _wait_ready(self, process: "subprocess.Popen[bytes]") -> int:
        self._said, self._registry_url = b"", None
        return int(self._next_line(process).split()[1].rpartition(b":")[2])

    def wait_registry(self) -> str:
        """Waits until the schema registry answers, and returns its URL."""
        if self._process is None or not self._has_registry:
            raise MisuseError("no schema registry runs beside the broker; `start` one with registry=True")
        if self._registry_url is None:
            self._registry_url = self._next_line(self._process).split()[1].decode()
        return self._registry_url

    def _next_line(self, process: "subprocess.Popen[bytes]") -> bytes:
        """The next line of its output: `ready` and addresses, then `registry` and its URL."""
        if process.stdout is None:
            raise MisuseError("the broker was started without a pipe")
        deadline = time.monotonic() + START_SECONDS
        while b"\n" not in self._said:
            readable, _, _ = select.select([process.stdout], [], [], max(deadline - time.monotonic(), 0))
            more = os.read(process.stdout.fileno(), 4096) if readable else b""
            if not more:
                why = "it exited" if readable else f"it was not ready after {START_SECONDS:.0f} s"
                raise BrokerDidNotStartError(
                    f"the broker in {self.folder} did not start: {why}\n{self.log[-_LOG_TOLD:].strip()}"
                )
            self._said += more
        line, _, self._said = self._said.partition(b"\n")
        return line

    def stop(self) -> None:
        """Stops it cleanly."""
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        # A stop that hangs becomes a kill, so that no process is left behind.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Ends it at once."""
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
        """Makes it hang."""
        if not self.is_running:
            raise MisuseError("the broker is not running, so it cannot be paused")
        os.kill(self.pid, signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """Continues a paused broker."""
        if self._is_paused and self.is_running:
            os.kill(self.pid, signal.SIGCONT)
        self._is_paused = False
