"""A registry on a broker, shared by the tests of serializers; each uses subjects of its own."""

from collections.abc import Iterator

import pytest

from ottla.registry.serde.registry_client import RegistryClient
from ottla.testing import InProcessBroker
from tests.broker.registry.service.registry_thread import RegistryThread


@pytest.fixture(scope="module")
def ottla_shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    """The broker of one module: other tests of the session check that no thread is left."""
    with InProcessBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="module")
def registry_url(ottla_shared_broker: InProcessBroker) -> Iterator[str]:
    """The URL of the registry."""
    running = RegistryThread(ottla_shared_broker.bootstrap)
    try:
        yield running.url
    finally:
        running.stop()


@pytest.fixture
def registry(registry_url: str) -> Iterator[RegistryClient]:
    """A client without a filled cache."""
    with RegistryClient(registry_url) as client:
        yield client
