"""A registry instance in its own process, as in production: `ottla registry serve`."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.waiting import wait_until

START_SECONDS = 60


class RegistryProcess:
    """Started with options of the command line; `url` is where it serves."""

    def __init__(self, bootstrap: str, log: Path, *options: str, listen: str = "127.0.0.1:0") -> None:
        self.log = log
        with log.open("ab") as output:
            command = [sys.executable, "-m", "ottla", "registry", "serve", "--bootstrap", bootstrap, "--listen", listen]
            self.process = subprocess.Popen(
                [*command, *options],
                stdout=subprocess.PIPE,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )
        self.url = self._wait_ready()

    def _wait_ready(self) -> str:
        assert self.process.stdout is not None
        killing = threading.Timer(START_SECONDS, self.process.kill)
        killing.start()
        try:
            line = self.process.stdout.readline().decode()
        finally:
            killing.cancel()
        if not line.startswith("ready "):
            self.process.kill()
            raise AssertionError(f"the registry did not start: {self.log.read_text()}")
        return line.split()[1]

    def ask(self, method: str, path: str, body: Any = None, timeout: float = 60) -> httpx.Response:
        """One request, with its own connection."""
        return httpx.request(method, self.url + path, json=body, timeout=timeout, trust_env=False)

    def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        for line in self.ask("GET", "/metrics").text.splitlines():
            if line.startswith(f"ottla_registry_{name} "):
                return float(line.split()[1])
        raise AssertionError(f"no metric {name}")

    @property
    def leads(self) -> bool:
        """Whether it says that it leads."""
        return self.metric("leader") == 1

    def until(self, name: str, value: float, seconds: float = 60) -> None:
        """Waits until a metric has this value, or a higher one: an offset goes on when another leader begins."""
        wait_until(lambda: self.metric(name) >= value, lambda: (name, value, self.log.read_text()[-3000:]))

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(30)

    def pause(self) -> None:
        """Stops the process where it is, as a long garbage collection or a suspended machine does."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a paused process go on."""
        os.kill(self.process.pid, signal.SIGCONT)

    def stop(self) -> int:
        """Stops it cleanly; returns the exit status."""
        if self.process.poll() is None:
            self.resume()
            self.process.terminate()
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@contextmanager
def registries(bootstrap: str, folder: Path, count: int, *options: str) -> Iterator[list[RegistryProcess]]:
    """Several instances on one cluster."""
    running: list[RegistryProcess] = []
    try:
        while len(running) < count:
            running.append(RegistryProcess(bootstrap, folder / f"registry-{len(running)}.log", *options))
        yield running
    finally:
        for each in running:
            each.stop()
