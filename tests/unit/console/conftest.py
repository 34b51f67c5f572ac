"""The console without a browser."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ottla.console.application import Console
from ottla.console.settings import ConsoleSettings
from ottla.spark.pipelines.declaration.project_template import make_project
from ottla.transport.addresses import Address
from tests.unit.console.visitor import HOST, Visitor


@pytest.fixture
def visit(tmp_path: Path) -> Iterator[Callable[..., Visitor]]:
    """Opens consoles: `visit(bootstrap, read_only=True)`, with the fields of `ConsoleSettings`."""
    clients: list[TestClient] = []

    def open_console(bootstrap: str, **settings: Any) -> Visitor:
        given = {"listen": Address("127.0.0.1", 8080), "audit_file": tmp_path / "audit.jsonl", **settings}
        console = Console(ConsoleSettings(bootstrap=bootstrap, **given))
        client = TestClient(console.app, base_url=HOST, raise_server_exceptions=False)
        client.__enter__()
        clients.append(client)
        return Visitor(console, client)

    yield open_console
    for each in clients:
        each.__exit__(None, None, None)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The folder of a pipeline."""
    make_project(tmp_path / "shop", "shop")
    return tmp_path / "shop"
