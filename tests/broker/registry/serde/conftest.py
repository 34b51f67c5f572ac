"""The broker that the registry of these tests is on; each test uses subjects of its own."""

import pytest

from ottla.testing import InProcessBroker


@pytest.fixture(scope="module")
def ottla_shared_broker(broker: InProcessBroker) -> InProcessBroker:
    """The broker of one module: other tests of the session check that no thread is left."""
    return broker
