"""Runs `ottla serve` as a process of its own, on loopback, in its own folder, as `kafka_broker` runs Kafka.

Settings stay at their defaults except for the address and the folder; `overrides` changes more. The address stays the
same when the broker starts again, so that clients can find it. Everything that it printed is kept in `console.log`.
"""

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 30.0


class OttlaBroker:
    """One Ottla broker. Use as a context manager, or call `start` and `stop`; it can start again on the same files."""

    def __init__(self, folder: Path, *, overrides: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.log_dir = folder / "data"
        self.bootstrap = f"127.0.0.1:{_free_port()}"
        """The address to give to clients."""
        self._overrides = dict(overrides or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Returns once the broker said that it is ready."""
        if self._process is not None:
            raise RuntimeError(f"the broker in {self.folder} is running already")
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = [part for key, value in self._overrides.items() for part in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "ottla", "serve", "--data", str(self.log_dir), "--listen", self.bootstrap]
        self._process = subprocess.Popen(
            [*command, *settings],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._keep_log, args=(self._process, lines), daemon=True)
        self._reader.start()
        try:
            self._wait_ready(lines)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """A clean shutdown; a broker that does not end in time, or ends with an error, is a failure."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"Ottla did not shut down within {STOP_TIMEOUT_S} s\n{self._log_end()}") from None
        finally:
            self.kill()
        if status != 0:
            raise RuntimeError(f"Ottla ended with {status} when asked to stop:\n{self._log_end()}")

    def kill(self) -> None:
        """Ends the whole process group at once, as a crash would."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._reader is not None:
            self._reader.join()
        self._process = None

    def log_text(self) -> str:
        """All that the broker ever wrote to its console."""
        path = self.folder / "console.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _keep_log(self, process: subprocess.Popen[bytes], lines: queue.SimpleQueue[str | None]) -> None:
        if process.stdout is not None:
            with (self.folder / "console.log").open("ab", buffering=0) as console, process.stdout:
                for line in process.stdout:
                    console.write(line)
                    lines.put(line.decode(errors="replace"))
        lines.put(None)

    def _wait_ready(self, lines: queue.SimpleQueue[str | None]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"Ottla is not ready after {START_TIMEOUT_S} s:\n{self._log_end()}") from None
            if line is None:
                raise RuntimeError(f"Ottla ended while it started; its last words:\n{self._log_end()}")
            if line.startswith("ready"):
                return

    def _log_end(self) -> str:
        return self.log_text()[-6000:]


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port
