"""A disk that is full: producers are told, consumers go on, and once there is room again so does everything."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from tests.broker_process import BrokerProcess
from tests.crash.load import LOST, Producer, RefusedError, ask, fetch_all
from tests.crash.small_filesystem import SmallFilesystem, cannot_mount, small_filesystem
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection
from tests.wire.world import TIMEOUT, create_topic

SIZE_MIB = 48
ROOM_BYTES = 4 << 20
PARTITIONS = 3
BATCHES_MAX = 10_000

pytestmark = pytest.mark.skipif(cannot_mount() is not None, reason=cannot_mount() or "")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallFilesystem]:
    with small_filesystem(tmp_path / "disk", SIZE_MIB) as disk:
        yield disk


@pytest.fixture
def full_broker(tmp_path: Path, disk: SmallFilesystem) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker", data=disk.path / "data") as broker:
        yield broker


def writers(address: str, topic_id: UUID) -> list[Producer]:
    return [
        Producer(address=address, topic_id=topic_id, partition=index, acks=-1, value_bytes=10_000)
        for index in range(PARTITIONS)
    ]


def write_until_refused(producer: Producer) -> ErrorCode:
    """What a producer is told in the end."""
    for _ in range(BATCHES_MAX):
        try:
            producer.send_once()
        except RefusedError as refusal:
            return refusal.code
    pytest.fail("the disk never became full")


def can_write(producer: Producer) -> bool:
    try:
        producer.send_once()
    except (RefusedError, *LOST):
        return False
    return True


def check_readable(broker: BrokerProcess, topic_id: UUID, producers: list[Producer]) -> None:
    """What was acknowledged can be read, and the broker is in the metadata as the leader of all."""
    for producer in producers:
        producer.check(fetch_all(broker.address, topic_id, producer.partition))
    answer = ask(broker.address, ApiKey.METADATA, {"topics": [{"topic_id": topic_id, "name": None}]})
    assert [broker.address] == [f"{each.host}:{each.port}" for each in answer.brokers]
    (topic,) = answer.topics
    assert [(ErrorCode.none, answer.brokers[0].node_id)] * PARTITIONS == [
        (part.error_code, part.leader_id) for part in topic.partitions
    ]


def create(address: str, name: str) -> ErrorCode:
    wish = {"name": name, "num_partitions": 1, "replication_factor": 1}
    (made,) = ask(address, ApiKey.CREATE_TOPICS, {"topics": [wish], "timeout": TIMEOUT}).topics
    code: ErrorCode = made.error_code
    return code


def test_a_full_disk_is_told_and_survived(full_broker: BrokerProcess, disk: SmallFilesystem) -> None:
    with RawConnection(full_broker.address) as connection:
        topic_id = create_topic(connection, "load", PARTITIONS, retention_ms="-1")
    producers = writers(full_broker.address, topic_id)
    disk.fill(leave_bytes=ROOM_BYTES)
    for producer in producers:
        assert write_until_refused(producer) is ErrorCode.kafka_storage_error
    disk.fill()
    assert sum(len(producer.acked) for producer in producers) > 10
    check_readable(full_broker, topic_id, producers)
    assert create(full_broker.address, "late") is not ErrorCode.none
    check_readable(full_broker, topic_id, producers)
    disk.make_room()
    for producer in producers:
        wait_until(partial(can_write, producer), "there is room, and a batch is taken")
    wait_until(lambda: create(full_broker.address, "after") is ErrorCode.none, "there is room, and a topic is made")
    check_readable(full_broker, topic_id, producers)
    full_broker.stop()
    full_broker.start()
    check_readable(full_broker, topic_id, producers)
    for producer in producers:
        wait_until(partial(can_write, producer), "the producer has connected again")
    assert [] == [line for line in full_broker.alarms() if "Traceback" in line or "unexpected" in line]


def test_a_start_on_a_full_disk_says_what_is_wrong_and_loses_nothing(
    full_broker: BrokerProcess, disk: SmallFilesystem
) -> None:
    with RawConnection(full_broker.address) as connection:
        topic_id = create_topic(connection, "load", PARTITIONS, retention_ms="-1")
    producers = writers(full_broker.address, topic_id)
    disk.fill(leave_bytes=ROOM_BYTES)
    for producer in producers:
        write_until_refused(producer)
        producer.close()
    disk.fill()
    full_broker.kill()
    with pytest.raises(AssertionError, match="free some space"):
        full_broker.start()
    disk.make_room()
    full_broker.start()
    check_readable(full_broker, topic_id, producers)
    for producer in producers:
        wait_until(partial(can_write, producer), "there is room, and a batch is taken")
    check_readable(full_broker, topic_id, producers)
    full_broker.kill()
    full_broker.start()
    check_readable(full_broker, topic_id, producers)
