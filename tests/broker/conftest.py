"""What tests on brokers share: a broker for each module, in this process, a registry on it, and a test's own topics."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from ottla.testing import InProcessBroker, SecuredBroker

if TYPE_CHECKING:
    from ottla.registry.serde.registry_client import RegistryClient


def settings_of(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """The settings of the module's mark `ottla_broker`."""
    marker = request.node.get_closest_marker("ottla_broker")
    return marker.args[0] if marker else {}


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    """The module's broker; its tests use topics and groups of their own."""
    with InProcessBroker(tmp_path_factory.mktemp("broker"), settings_of(request)) as made:
        yield made


@pytest.fixture(scope="module")
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """The module's broker with TLS, logins and ACLs."""
    with SecuredBroker(tmp_path_factory.mktemp("secured"), settings_of(request)) as made:
        yield made


@pytest.fixture(scope="module")
def registry_url(broker: InProcessBroker) -> Iterator[str]:
    """The URL of a schema registry on the module's broker."""
    from tests.broker.registry.service.registry_thread import RegistryThread

    with RegistryThread(broker.bootstrap) as running:
        yield running.url


@pytest.fixture
def registry(registry_url: str) -> "Iterator[RegistryClient]":
    """A client of the registry, without a filled cache."""
    from ottla.registry.serde.registry_client import RegistryClient

    with RegistryClient(registry_url) as client:
        yield client


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test of the module uses."""
    return "".join(each if each.isalnum() else "-" for each in request.node.name)[:200].strip("-")


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: InProcessBroker, topic_name: str) -> str:
    """A topic of the module's broker, made as the test's or module's mark `ottla_topic` says."""
    marker = request.node.get_closest_marker("ottla_topic")
    return broker.create_topic(topic_name, **(marker.kwargs if marker else {}))
