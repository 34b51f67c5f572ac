"""The pytest plugin: fixtures that give real brokers and topics. Found by pytest by itself where Ottla is installed.

Each test process makes its own brokers on free ports in folders of their own, so tests may run side by side
(`pytest-xdist`). Nothing of the broker is loaded before a test asks for one.
"""

import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from ottla.testing import BrokerCluster, BrokerHandle, InProcessBroker, ProcessBroker

_MARKERS: Final = (
    "ottla_broker(settings): broker configs for the test's brokers, by Kafka's names",
    "ottla_cluster(brokers=3, settings=None): how many brokers the test's ottla_cluster or ottla_cluster_process has,"
    " and their configs",
    "ottla_topic(partitions=1, configs=None, replicas=None): how the test's ottla_topic is created",
)
_BROKERS: Final = (
    "ottla_broker",
    "ottla_broker_process",
    "ottla_cluster",
    "ottla_cluster_process",
    "ottla_shared_broker",
)


def pytest_configure(config: pytest.Config) -> None:
    """Makes the markers known."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest) -> "Iterator[InProcessBroker]":
    """A fresh broker in this process: `bootstrap`, `create_topic`, `stop`, `kill`, `pause`, `resume`, `restart`."""
    from ottla.testing.in_process_broker import InProcessBroker

    with _folder() as folder, InProcessBroker(folder, _settings(request)) as broker:
        yield broker


@pytest.fixture
def ottla_broker_process(request: pytest.FixtureRequest) -> "Iterator[ProcessBroker]":
    """A fresh broker in a process of its own, with the same methods; faults are the operating system's."""
    from ottla.testing.process_broker import ProcessBroker

    with _folder() as folder, ProcessBroker(folder, _settings(request)) as broker:
        yield broker


@pytest.fixture(scope="session")
def ottla_shared_broker() -> "Iterator[InProcessBroker]":
    """One broker in this process for all tests that ask for it; they should use topics and groups of their own."""
    from ottla.testing.in_process_broker import InProcessBroker

    with _folder() as folder, InProcessBroker(folder) as broker:
        yield broker


@pytest.fixture
def ottla_cluster(request: pytest.FixtureRequest) -> "Iterator[BrokerCluster]":
    """Three fresh brokers in this process, one cluster: `bootstrap`, `brokers`, `leader_of`, `wait_in_sync`, and each
    broker with its own `kill`, `pause`, `restart`."""
    from ottla.testing.in_process_broker import InProcessBroker

    with _cluster(request, InProcessBroker) as cluster:
        yield cluster


@pytest.fixture
def ottla_cluster_process(request: pytest.FixtureRequest) -> "Iterator[BrokerCluster]":
    """The same with a process for each broker."""
    from ottla.testing.process_broker import ProcessBroker

    with _cluster(request, ProcessBroker) as cluster:
        yield cluster


@pytest.fixture
def ottla_topic(request: pytest.FixtureRequest) -> str:
    """The name of a fresh topic, on the broker that the test asks for, else on its `ottla_broker`."""
    asked = [name for name in _BROKERS if name in request.fixturenames]
    broker = request.getfixturevalue(asked[0] if asked else _BROKERS[0])
    readable = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:100].strip("-.")
    wish = _arguments(request, "ottla_topic", ("partitions", "configs", "replicas"))
    name: str = broker.create_topic(f"{readable}-{uuid.uuid4().hex[:8]}", **wish)
    return name


@contextmanager
def _cluster(request: pytest.FixtureRequest, kind: "type[BrokerHandle]") -> "Iterator[BrokerCluster]":
    from ottla.testing.broker_cluster import BrokerCluster

    wish = _arguments(request, "ottla_cluster", ("brokers", "settings"))
    settings = {**_settings(request), **(wish.pop("settings", None) or {})}
    with _folder() as folder, BrokerCluster(folder, settings, kind=kind, **wish) as cluster:
        yield cluster


def _arguments(request: pytest.FixtureRequest, marker_name: str, names: Sequence[str]) -> dict[str, Any]:
    """What the nearest marker of that name was given, by name."""
    marker = request.node.get_closest_marker(marker_name)
    return {} if marker is None else {**dict(zip(names, marker.args, strict=False)), **marker.kwargs}


def _settings(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """What the markers of a test, its class and its module say, the nearest last."""
    settings: dict[str, str] = {}
    for marker in reversed(list(request.node.iter_markers("ottla_broker"))):
        for given in marker.args:
            settings.update(given)
    return settings


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder that is gone afterwards; pytest's own would stay for three runs, and brokers are not small."""
    folder = Path(tempfile.mkdtemp(prefix="ottla-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
