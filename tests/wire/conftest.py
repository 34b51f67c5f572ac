"""A broker for the whole session, a world in it, and a fresh connection for each test."""

import os
from collections.abc import Iterator

import pytest

from tests.processes import OTTLA, Program
from tests.wire.exchange import RawConnection
from tests.wire.world import World, make_world


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a broker is served, until the session ends."""
    known = os.environ.get("OTTLA_WIRE_ADDRESS")
    if known:
        yield known
        return
    options = ["--set", "group.initial.rebalance.delay.ms=0", "--set", "group.share.assignment.interval.ms=0"]
    options += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    folder = tmp_path_factory.mktemp("wire")
    with Program([*OTTLA, "serve", "--data", folder / "data", *options], folder / "broker") as broker:
        yield broker.wait_ready()
        assert 0 == broker.stop()


@pytest.fixture(scope="session")
def world(address: str) -> World:
    """A topic with records. Shared: tests that change something make a topic of their own."""
    return make_world(address)


@pytest.fixture
def connection(address: str) -> Iterator[RawConnection]:
    """A new connection."""
    with RawConnection(address) as opened:
        yield opened
