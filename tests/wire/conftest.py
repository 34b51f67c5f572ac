"""A broker for the whole session, a world in it, and a fresh connection for each test."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wire.exchange import RawConnection
from tests.wire.world import World, make_world

STOP_TIMEOUT_S = 60


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a broker is served, until the session ends."""
    known = os.environ.get("OTTLA_WIRE_ADDRESS")
    if known:
        yield known
        return
    folder = tmp_path_factory.mktemp("wire")
    with (folder / "errors").open("wb") as errors:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ottla", "serve", "--data", str(folder / "data"), "--listen", "127.0.0.1:0"),
                *("--set", "group.initial.rebalance.delay.ms=0", "--set", "group.share.assignment.interval.ms=0"),
                *("--http", "127.0.0.1:0"),
            ],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        yield _ready_address(process, folder / "errors")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            assert 0 == process.wait(STOP_TIMEOUT_S)
        finally:
            process.kill()


def _ready_address(process: "subprocess.Popen[str]", errors: Path) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        words = line.split()
        if "ready" in words:
            return next(word for word in words if word.rpartition(":")[2].isdigit())
    pytest.fail(f"the broker ended with {process.wait()} before it was ready:\n{errors.read_text()}")


@pytest.fixture(scope="session")
def world(address: str) -> World:
    """A topic with records. Shared: tests that change something make a topic of their own."""
    return make_world(address)


@pytest.fixture
def connection(address: str) -> Iterator[RawConnection]:
    """A new connection."""
    with RawConnection(address) as opened:
        yield opened
