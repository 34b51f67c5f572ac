"""A registry instance in its own process, as in production: `ottla registry serve`."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.processes import OTTLA, Program
from tests.waiting import wait_until


class RegistryProcess(Program):
    """Started with options of the command line; `url` is where it serves."""

    def __init__(self, bootstrap: str, files: Path, *options: str) -> None:
        command = [*OTTLA, "registry", "serve", "--bootstrap", bootstrap, "--listen", "127.0.0.1:0", *options]
        super().__init__(command, files)
        self.url = self.wait_ready()

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

    def until(self, name: str, value: float) -> None:
        """Waits until a metric has this value, or a higher one: an offset goes on when another leader begins."""
        wait_until(lambda: self.metric(name) >= value, lambda: f"{name} >= {value}; {self.log_end}")


@contextmanager
def registries(bootstrap: str, folder: Path, count: int, *options: str) -> Iterator[list[RegistryProcess]]:
    """Several instances on one cluster."""
    with ExitStack() as ended:
        running = [
            ended.enter_context(RegistryProcess(bootstrap, folder / f"registry-{number}", *options))
            for number in range(count)
        ]
        yield running
        for registry in running:
            registry.stop()
