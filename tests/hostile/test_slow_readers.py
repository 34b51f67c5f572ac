"""Clients that ask for much and read nothing: what waits for them is bounded, and others do not wait with them."""

import time
from datetime import timedelta
from uuid import UUID

import pytest

from ottla.protocol.apis import ApiKey
from tests.broker_process import BrokerProcess
from tests.hostile.batches import numbered_batch
from tests.hostile.bystander import Bystander
from tests.hostile.conftest import GROWTH_BYTES_MAX
from tests.hostile.sockets import connections, send_what_is_taken
from tests.wire.exchange import RawConnection, request_frame
from tests.wire.world import create_topic, produce

BATCHES = 64
BATCH_RECORDS = 1000
RECORD_BYTES = 1000
STUCK = 30
FETCH_BYTES = 50 << 20
SLOWER_MAX = 5.0
"""A consumer beside stuck ones may read so much slower than alone: far less than if it waited for any of them."""


@pytest.fixture(scope="module")
def large(broker: BrokerProcess) -> UUID:
    """A topic of some 64 MB."""
    with RawConnection(broker.address) as connection:
        topic_id = create_topic(connection, "large", 1, retention_ms="-1")
        for number in range(BATCHES):
            produce(connection, topic_id, numbered_batch(number * BATCH_RECORDS, BATCH_RECORDS, size=RECORD_BYTES))
    return topic_id


def fetch_frame(topic_id: UUID, offset: int = 0) -> bytes:
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": FETCH_BYTES}
    values = {
        "topics": [{"topic_id": topic_id, "partitions": [part]}],
        "max_bytes": FETCH_BYTES,
        "session_epoch": -1,
        "max_wait": timedelta(0),
    }
    return request_frame(ApiKey.FETCH, 13, values)


def read_rate(address: str, topic_id: UUID, seconds: float = 2.0) -> float:
    """Bytes a second that one consumer gets."""
    received, began = 0, time.monotonic()
    frame = fetch_frame(topic_id)
    with RawConnection(address) as connection:
        while time.monotonic() - began < seconds:
            connection.send(frame)
            received += len(connection.receive())
    return received / (time.monotonic() - began)


def test_fetches_that_are_not_read(broker: BrokerProcess, large: UUID) -> None:
    alone = read_rate(broker.address, large)
    broker.forget_peak()
    before = broker.resident_bytes()
    with Bystander(broker.address) as bystander, connections(broker.address, STUCK, receive_bytes=4096) as stuck:
        for connection in stuck:
            connection.sendall(fetch_frame(large) * 20)
        beside = read_rate(broker.address, large)
        bystander.wait_disturbed()
    print(f"alone {alone / 1e6:.0f} MB/s, beside {STUCK} stuck consumers {beside / 1e6:.0f} MB/s")
    assert broker.peak_bytes() - before < GROWTH_BYTES_MAX
    assert alone <= SLOWER_MAX * beside
    bystander.check()


def test_metadata_that_is_not_read(broker: BrokerProcess) -> None:
    with RawConnection(broker.address) as connection:
        create_topic(connection, "broad", 500)
    frame = request_frame(ApiKey.METADATA, 9, {"topics": None})
    broker.forget_peak()
    before = broker.resident_bytes()
    with Bystander(broker.address) as bystander, connections(broker.address, 5, receive_bytes=4096) as stuck:
        for silent in stuck:
            taken = send_what_is_taken(silent, frame * 200_000, seconds=0.5)
            assert taken < len(frame) * 200_000, "what nobody reads must not be answered for ever"
        bystander.wait_disturbed()
    print(f"grown by {broker.peak_bytes() - before >> 20} MiB")
    assert broker.peak_bytes() - before < GROWTH_BYTES_MAX
    bystander.check()
