"""What the suite shares: the broker under test, for the whole session, and names for topics and groups."""

from collections.abc import Iterator

import pytest

from tests.compat.clients.broker_under_test import Broker, broker_under_test


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker under test: tests use topics of their own, and leave it running."""
    # Records have old timestamps: retention would delete them when the broker looks, half a minute after its start and
    # every five minutes.
    with broker_under_test(tmp_path_factory.mktemp("broker"), {"log.retention.ms": "-1"}) as broker:
        yield broker


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    """Its address. A broker that a failed test left down is started again: the other tests must not wait for it."""
    if not broker.is_running():
        broker.kill()
        broker.start()
    return broker.bootstrap
