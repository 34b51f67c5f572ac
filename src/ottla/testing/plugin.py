"""The pytest plugin: fixtures with real brokers and topics. pytest loads it wherever Ottla is installed.

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
    from ottla.testing import BrokerCluster, BrokerHandle, InProcessBroker, ProcessBroker, SecuredBroker

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
    "ottla_secured_broker",
    "ottla_shared_broker",
)


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest) -> "Iterator[InProcessBroker]":
    """A new broker in this process: `bootstrap`, `create_topic`, `stop`, `kill`, `pause`, `resume`, `restart`."""
    from ottla.testing.in_process_broker import InProcessBroker

    with _folder() as folder, InProcessBroker(folder, _settings(request)) as broker:
        yield broker


@pytest.fixture
def ottla_broker_process(request: pytest.FixtureRequest) -> "Iterator[ProcessBroker]":
    """A new broker in its own process, with the same methods; kill and pause are signals."""
    from ottla.testing.process_broker import ProcessBroker

    with _folder() as folder, ProcessBroker(folder, _settings(request)) as broker:
        yield broker


@pytest.fixture
def ottla_secured_broker(request: pytest.FixtureRequest) -> "Iterator[SecuredBroker]":
    """A new broker in this process with TLS, SCRAM logins, client certificates and ACLs: `client_options("alice")` has
    the arguments of a Python client, `client_properties("alice")` those of a Java client; `admin` may do everything."""
    from ottla.testing.secured_broker import SecuredBroker

    with _folder() as folder, SecuredBroker(folder, _settings(request)) as broker:
        yield broker


@pytest.fixture(scope="session")
def ottla_shared_broker() -> "Iterator[InProcessBroker]":
    """One broker in this process, shared by all tests that use it; each should use its own topics and groups."""
    from ottla.testing.in_process_broker import InProcessBroker

    with _folder() as folder, InProcessBroker(folder) as broker:
        yield broker


@pytest.fixture
def ottla_cluster(request: pytest.FixtureRequest) -> "Iterator[BrokerCluster]":
    """A cluster of three new brokers in this process: `bootstrap`, `brokers`, `leader_of`, `wait_in_sync`, and each
    broker with its own `kill`, `pause`, `restart`."""
    from ottla.testing.in_process_broker import InProcessBroker

    with _cluster(request, InProcessBroker) as cluster:
        yield cluster


@pytest.fixture
def ottla_cluster_process(request: pytest.FixtureRequest) -> "Iterator[BrokerCluster]":
    """A cluster of three new brokers, each in its own process."""
    from ottla.testing.process_broker import ProcessBroker

    with _cluster(request, ProcessBroker) as cluster:
        yield cluster


@pytest.fixture
def ottla_topic(request: pytest.FixtureRequest) -> str:
    """The name of a new topic, on the broker fixture of the test, else on `ottla_broker`."""
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
    """The keyword arguments of the nearest marker of that name."""
    marker = request.node.get_closest_marker(marker_name)
    return {} if marker is None else {**dict(zip(names, marker.args, strict=False)), **marker.kwargs}


def _settings(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """The settings in the markers of a test, its class and its module; the nearest takes precedence."""
    settings: dict[str, str] = {}
    for marker in reversed(list(request.node.iter_markers("ottla_broker"))):
        for given in marker.args:
            settings.update(given)
    return settings


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder that is deleted afterwards; pytest keeps its own for three runs."""
    folder = Path(tempfile.mkdtemp(prefix="ottla-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
