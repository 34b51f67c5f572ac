"""A broker for each module, which must have kept its countenance in the end; and what the requests are about."""

from collections.abc import Iterator

import pytest

from ottla.protocol.apis import ApiKey
from tests.broker_process import BrokerProcess
from tests.hostile.batches import numbered_batch
from tests.hostile.requests import Target
from tests.wire.exchange import RawConnection
from tests.wire.groups import wait_coordinator
from tests.wire.world import create_topic, produce

GROWTH_BYTES_MAX = 320 << 20
"""What clients may make the broker grow by.

Requests that are being received may take 256 MiB in all (`queued_bytes_max`), though not within these tests; beyond
that a batch whose records are looked into may take 128 MiB for a moment, twice that while its buffer grows, and every
connection 64 KiB and 1 MiB of unsent responses.
"""

DESCRIPTORS_MAX = 140
"""How many more may be open in the end: forty, and a file for each partition of the two internal topics."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Runs while the module's tests run. At its end it must have lost no descriptor, and complained of nothing."""
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path_factory.mktemp("hostile"), settings=settings) as broker:
        with RawConnection(broker.address) as connection:
            create_topic(connection, "warm", 1)
        idle = broker.descriptors()
        yield broker
        assert broker.is_running(), broker.program.log_end
        assert [] == broker.alarms()
        most = idle + DESCRIPTORS_MAX
        broker.wait_descriptors(most)
        broker.stop()


@pytest.fixture(scope="module")
def target(broker: BrokerProcess) -> Target:
    """A topic with a few records, for those who mean no good."""
    with RawConnection(broker.address) as connection:
        topic_id = create_topic(connection, "target", 3, retention_ms="-1")
        produce(connection, topic_id, numbered_batch(0, 20))
        wait_coordinator(connection, "hostile-0")
        connection.ask_newest(ApiKey.FIND_COORDINATOR, {"key_type": 1, "coordinator_keys": ["hostile-0"]})
    return Target(topic="target", topic_id=topic_id)
