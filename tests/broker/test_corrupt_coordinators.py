"""Corrupt batches in the coordinators' own topics: what can be read is served, or refused, and never in silence."""

import logging
from collections.abc import Callable
from pathlib import Path
from struct import pack_into

import pytest

from ottla.broker.broker import Broker
from ottla.coordination.groups.coordinator import TOPIC as OFFSETS_TOPIC
from ottla.coordination.runtime.internal_topic import partition_of
from ottla.coordination.transactions.coordinator import TOPIC as TRANSACTIONS_TOPIC
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.records.batch import Batch, crc32c, scan
from ottla.records.builder import BatchBuilder
from ottla.records.decode import decode_records
from ottla.records.layout import ATTRIBUTES_AT, BASE_OFFSET_AT, CRC_AT
from tests.broker.coordinator_requests import begin, commit_offset, committed_offsets, init_producer
from tests.broker.running_broker import find_coordinator, make_topic, running, with_broker

GROUP = "g"
TOPICS = ("first", "second", "third")
IDS = 5
SETTINGS = {"offsets_topic_num_partitions": str(IDS), "transaction_state_log_num_partitions": str(IDS)}


def log_file(folder: Path, topic: str, id: str) -> Path:
    (found,) = (folder / "data" / f"{topic}-{partition_of(id, IDS)}").glob("*.log")
    return found


def flipped_record(content: bytearray, batch: Batch) -> None:
    content[batch.position + batch.size_bytes - 3] ^= 0x10


def wrong_offset(content: bytearray, batch: Batch) -> None:
    pack_into(">q", content, batch.position + BASE_OFFSET_AT, batch.base_offset + 2**40)


def unreadable_record(content: bytearray, batch: Batch) -> None:
    """An intact batch of the same size, whose record has a value of a version that does not exist."""
    size = batch.size_bytes
    (record,) = decode_records(batch)
    for padding in range(size):
        builder = BatchBuilder(base_offset=batch.base_offset, leader_epoch=batch.leader_epoch)
        builder.append(batch.max_timestamp, record.key, b"\x7f\xff" + bytes(padding))
        made = bytearray(builder.build())
        if len(made) == size:
            pack_into(">I", made, CRC_AT, crc32c(memoryview(made)[ATTRIBUTES_AT:]))
            content[batch.position : batch.position + size] = made
            return
    raise AssertionError(f"no batch of {size} bytes")


DAMAGE: dict[str, Callable[[bytearray, Batch], None]] = {
    "a flipped bit in a record": flipped_record,
    "a wrong offset": wrong_offset,
    "a record that cannot be read": unreadable_record,
}


def damage(path: Path, number: int, how: str) -> int:
    """Damages one batch; answers where it is in the file."""
    content = bytearray(path.read_bytes())
    batches, _, problem = scan(bytes(content))
    assert problem is None
    DAMAGE[how](content, batches[number])
    path.write_bytes(content)
    return batches[number].position


async def fill_offsets(folder: Path) -> None:
    async def fill(broker: Broker) -> None:
        for topic in TOPICS:
            await make_topic(broker, topic)
        await find_coordinator(broker, GROUP)
        for number in range(4):
            for topic in TOPICS:
                await commit_offset(broker, GROUP, topic, number)

    await with_broker(folder, fill, **SETTINGS)


@pytest.mark.parametrize("how", DAMAGE)
async def test_a_group_has_what_could_be_read_and_the_log_says_what_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    await fill_offsets(tmp_path)
    path = log_file(tmp_path, OFFSETS_TOPIC, GROUP)
    position = damage(path, 10, how)
    caplog.set_level(logging.ERROR)
    async with running(tmp_path, **SETTINGS) as broker:
        found = await committed_offsets(broker, GROUP)
        await commit_offset(broker, GROUP, "first", 77)
        assert 77 == (await committed_offsets(broker, GROUP))[TopicPartition("first", 0)]
    assert {TopicPartition("first", 0): 3, TopicPartition("second", 0): 2, TopicPartition("third", 0): 3} == found
    (told,) = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    for part in (str(path), str(position), OFFSETS_TOPIC, "offset"):
        assert part in told


@pytest.mark.parametrize("how", DAMAGE)
async def test_transactions_of_a_corrupt_partition_are_refused_and_the_others_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    async with running(tmp_path, **SETTINGS) as broker:
        for _ in range(3):
            await begin(broker, "t")
    path = log_file(tmp_path, TRANSACTIONS_TOPIC, "t")
    position = damage(path, 1, how)
    caplog.set_level(logging.ERROR)
    async with running(tmp_path, **SETTINGS) as broker:
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        while error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode((await init_producer(broker, "t")).error_code.value)
        assert ErrorCode.COORDINATOR_NOT_AVAILABLE is error
        await begin(broker, "another id")
    told = [record.getMessage() for record in caplog.records if str(path) in record.getMessage()]
    assert all(str(position) in line for line in told)
