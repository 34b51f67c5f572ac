"""What the client tests share: the broker under test, the running client programs, and names for topics."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.clients.broker_under_test import Broker, broker_under_test
from tests.compat.clients.catalogue import BY_NAME, NAMES
from tests.compat.clients.client_builds import JAVA_VERSIONS
from tests.compat.clients.foreign_client import ForeignClient
from tests.compat.clients.kafka_tools import Tools

ClientOf = Callable[[str], ForeignClient]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker under test, for the whole session: tests use topics of their own, and leave it running."""
    with broker_under_test(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="session")
def client_of(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientOf]:
    """The running program of a client, by name; started when first asked for."""
    logs = tmp_path_factory.mktemp("clients")
    running: dict[str, ForeignClient] = {}
    turn = threading.Lock()

    def find(name: str) -> ForeignClient:
        with turn:
            if name not in running:
                running[name] = BY_NAME[name].start(broker.bootstrap, logs / f"{name}.log")
            return running[name]

    yield find
    for client in running.values():
        client.close()


@pytest.fixture(params=NAMES)
def client(request: pytest.FixtureRequest, client_of: ClientOf) -> ForeignClient:
    """Each client in turn; a test can choose some with `parametrize("client", ..., indirect=True)`."""
    return client_of(request.param)


@pytest.fixture(params=JAVA_VERSIONS)
def tools(request: pytest.FixtureRequest, broker: Broker) -> Tools:
    """Kafka's tools, of each version in turn."""
    return Tools(request.param, broker.bootstrap)


@pytest.fixture(scope="session")
def data(broker: Broker) -> Path:
    """The folder where the broker keeps its partitions."""
    return broker.log_dir
