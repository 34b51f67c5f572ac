"""The consumer without a group: what was written is read, in order, from wherever one wants."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer as ConfluentProducer

from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.consumer.errors import RecordDeserializationError, UnknownPositionError, WakeupError
from ottla.client.errors import AnswerError
from ottla.client.values import ConsumerRecord, OffsetAndTimestamp
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from tests.compat.client_suite.filled_topics import T0, fill, make_topic, numbered

WAIT_MS = 20_000
PATIENCE_MS = 5_000
"""After how long an iteration ends: longer than what was written takes to come, also on a busy machine."""


def consumer(bootstrap: str, *topics: str, **more: Any) -> Consumer:
    return Consumer(*topics, **{"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", **more})


def read(reading: Consumer, count: int) -> dict[TopicPartition, list[bytes]]:
    """Polls until so many records were there."""
    found: dict[TopicPartition, list[bytes]] = {}
    while sum(map(len, found.values())) < count:
        records = reading.poll(WAIT_MS)
        assert records, f"only {sum(map(len, found.values()))} of {count} records came"
        for partition, some in records.items():
            found.setdefault(partition, []).extend(record.value for record in some)
    return found


def test_all_records_of_a_topic_in_order(bootstrap: str, topic: str) -> None:
    partitions = make_topic(bootstrap, topic, 3)
    values = {partition: numbered(250, b"%d." % partition.partition) for partition in partitions}
    fill(bootstrap, values)
    with consumer(bootstrap, topic) as reading:
        assert values == read(reading, 750)
        assert {} == reading.poll(10)
        assert set(partitions) == reading.assignment()
        assert {topic} == reading.subscription()


def test_every_field_of_a_record(bootstrap: str, topic: str) -> None:
    (partition,) = make_topic(bootstrap, topic)
    fill(bootstrap, {partition: [b"value"]})
    with consumer(bootstrap, topic) as reading:
        record = next(iter(reading))
    expected = ConsumerRecord(topic, 0, record.leader_epoch, 0, T0, 0, b"k0", b"value", (("n", b"0"),), 2, 5)
    assert expected == record
    assert record.leader_epoch is not None


def test_polls_keep_to_their_bounds(bootstrap: str, topic: str) -> None:
    (partition,) = make_topic(bootstrap, topic)
    fill(bootstrap, {partition: numbered(100)})
    with consumer(bootstrap, topic, max_poll_records=7) as reading:
        sizes: list[int] = []
        while sum(sizes) < 100:
            (some,) = reading.poll(WAIT_MS).values()
            sizes.append(len(some))
            assert sum(sizes) == reading.position(partition)
        assert (7, 100) == (max(sizes), sum(sizes))
        reading.seek_to_beginning()
        (three,) = reading.poll(WAIT_MS, max_records=3).values()
        assert numbered(3) == [record.value for record in three]


def test_small_fetches_get_everything(bootstrap: str, topic: str) -> None:
    partitions = make_topic(bootstrap, topic, 2)
    values = {partition: numbered(200, b"%d." % partition.partition) for partition in partitions}
    fill(bootstrap, values)
    with consumer(bootstrap, topic, max_partition_fetch_bytes=1, fetch_max_bytes=1) as reading:
        assert values == read(reading, 400)


def test_iterating_waits_for_new_records_and_ends_after_its_time(bootstrap: str, topic: str) -> None:
    (partition,) = make_topic(bootstrap, topic)
    fill(bootstrap, {partition: numbered(3)})
    with consumer(bootstrap, topic, consumer_timeout_ms=PATIENCE_MS) as reading:
        records = iter(reading)
        assert numbered(3) == [next(records).value for _ in range(3)]
        later = threading.Thread(target=fill, args=(bootstrap, {partition: [b"later"]}))
        later.start()
        assert [b"later"] == [record.value for record in records]
        later.join()


async def test_iterating_with_asyncio(bootstrap: str, topic: str) -> None:
    partitions = await asyncio.to_thread(make_topic, bootstrap, topic, 2)
    await asyncio.to_thread(fill, bootstrap, {partition: numbered(30) for partition in partitions})
    async with AsyncConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=PATIENCE_MS
    ) as reading:
        first = await reading.getone()
        found = [(first.partition, first.offset)] + [(each.partition, each.offset) async for each in reading]
    assert [(partition, offset) for partition in range(2) for offset in range(30)] == sorted(found)
    for partition in range(2):
        assert list(range(30)) == [offset for owner, offset in found if owner == partition]


def test_seeking(bootstrap: str, topic: str) -> None:
    first, second = make_topic(bootstrap, topic, 2)
    fill(bootstrap, {first: numbered(50), second: numbered(50)})
    with consumer(bootstrap) as reading:
        reading.assign([first, second])
        reading.seek(first, 45)
        reading.seek_to_end(second)
        assert {first: numbered(50)[45:]} == read(reading, 5)
        assert (50, 50) == (reading.position(first), reading.position(second))
        reading.seek(second, 48)
        reading.seek_to_beginning(first)
        assert {first: numbered(50), second: numbered(50)[48:]} == read(reading, 52)
        # In the middle of what was fetched, and in the middle of an iteration.
        reading.seek(first, 10)
        records = iter(reading)
        assert 10 == next(records).offset
        reading.seek(first, 49)
        assert 49 == next(records).offset


def test_what_is_behind_the_end_comes_when_it_is_written(bootstrap: str, topic: str) -> None:
    (partition,) = make_topic(bootstrap, topic)
    fill(bootstrap, {partition: numbered(5)})
    with consumer(bootstrap, topic, auto_offset_reset="latest") as reading:
        while not reading.assignment():
            assert {} == reading.poll(500)
        assert 5 == reading.position(partition)
        fill(bootstrap, {partition: [b"new"]})
        assert {partition: [b"new"]} == read(reading, 1)


def test_an_offset_that_is_gone(bootstrap: str, topic: str) -> None:
    (partition,) = make_topic(bootstrap, topic)
    fill(bootstrap, {partition: numbered(5)})
    with consumer(bootstrap) as reading:
        reading.assign([partition])
        reading.seek(partition, 1000)
        assert {partition: numbered(5)} == read(reading, 5)
    with consumer(bootstrap, auto_offset_reset="none") as strict:
        strict.assign([partition])
        with pytest.raises(UnknownPositionError, match="call seek for each partition"):
            strict.poll(WAIT_MS)
        strict.seek(partition, 1000)
        with pytest.raises(AnswerError, match="offset out of range, and auto_offset_reset is none"):
            strict.poll(WAIT_MS)
        strict.seek(partition, 3)
        assert {partition: numbered(5)[3:]} == read(strict, 2)


def test_offsets_by_time_and_bounds(bootstrap: str, topic: str) -> None:
    full, empty = make_topic(bootstrap, topic, 2)
    fill(bootstrap, {full: numbered(20)})
    with consumer(bootstrap) as asking:
        found = asking.offsets_for_times({full: T0 + 7, empty: T0})
        assert {full: OffsetAndTimestamp(7, T0 + 7, found[full].leader_epoch), empty: None} == found  # type: ignore[union-attr]
        assert {full: 0, empty: 0} == asking.beginning_offsets([full, empty])
        assert {full: 20, empty: 0} == asking.end_offsets([full, empty])
        assert {0, 1} == asking.partitions_for_topic(topic)
        assert asking.partitions_for_topic("no-such-topic-anywhere") is None
        assert topic in asking.topics()
        with pytest.raises(MisuseError, match="is negative"):
            asking.offsets_for_times({full: -1})


def test_pausing(bootstrap: str, topic: str) -> None:
    first, second = make_topic(bootstrap, topic, 2)
    fill(bootstrap, {first: numbered(20), second: numbered(20)})
    with consumer(bootstrap, max_poll_records=5) as reading:
        reading.assign([first, second])
        reading.pause(first)
        assert {first} == reading.paused()
        assert {second: numbered(20)} == read(reading, 20)
        assert {} == reading.poll(300)
        reading.resume(first)
        assert {first: numbered(20)} == read(reading, 20)
        assert 0 == reading.current_lag(first)


def test_pausing_what_is_being_iterated_over_loses_nothing(bootstrap: str, topic: str) -> None:
    (partition,) = make_topic(bootstrap, topic)
    fill(bootstrap, {partition: numbered(20)})
    with consumer(bootstrap, consumer_timeout_ms=PATIENCE_MS) as reading:
        reading.assign([partition])
        records = iter(reading)
        assert [0, 1, 2] == [next(records).offset for _ in range(3)]
        reading.pause(partition)
        assert 3 == reading.position(partition)
        assert [] == list(records)
        reading.resume(partition)
        assert list(range(3, 20)) == [record.offset for record in reading]


def test_topics_by_pattern(bootstrap: str, topic: str) -> None:
    (first,) = make_topic(bootstrap, f"{topic}.one")
    fill(bootstrap, {first: [b"1"]})
    with consumer(bootstrap, metadata_max_age_ms=300) as reading:
        reading.subscribe(pattern=rf"{topic}\.")
        assert {first: [b"1"]} == read(reading, 1)
        (second,) = make_topic(bootstrap, f"{topic}.two")
        fill(bootstrap, {second: [b"2"]})
        assert {second: [b"2"]} == read(reading, 1)
        with pytest.raises(MisuseError, match="uses subscribe with a pattern, and cannot use assign as well"):
            reading.assign([first])
        reading.unsubscribe()
        assert set() == reading.assignment()
        reading.assign([first])


def test_partitions_that_are_added_are_found(bootstrap: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    make_topic(bootstrap, topic)
    with consumer(bootstrap, topic, metadata_max_age_ms=300) as reading:
        reading.poll(500)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
        added = TopicPartition(topic, 1)
        fill(bootstrap, {added: [b"there"]})
        assert {added: [b"there"]} == read(reading, 1)


def test_committed_transactions_only(bootstrap: str, topic: str) -> None:
    (partition,) = make_topic(bootstrap, topic)
    writer = ConfluentProducer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    writer.init_transactions(30)
    for number in range(6):
        writer.begin_transaction()
        for at in range(3):
            writer.produce(topic, b"%d.%d" % (number, at), partition=0)
        writer.flush()
        if number % 2:
            writer.abort_transaction(30)
        else:
            writer.commit_transaction(30)
    committed = [b"%d.%d" % (number, at) for number in (0, 2, 4) for at in range(3)]
    with consumer(bootstrap, topic, isolation_level="read_committed") as reading:
        assert {partition: committed} == read(reading, 9)
        assert {} == reading.poll(200)
        writer.begin_transaction()
        writer.produce(topic, b"open", partition=0)
        writer.flush()
        assert {} == reading.poll(500)
        writer.commit_transaction(30)
        assert {partition: [b"open"]} == read(reading, 1)
    with consumer(bootstrap, topic) as reading:
        assert 19 == len(read(reading, 19)[partition])


def test_deserializers_and_what_they_refuse(bootstrap: str, topic: str) -> None:
    (partition,) = make_topic(bootstrap, topic)
    fill(bootstrap, {partition: [b"1", b"2", b"x", b"4"]})
    with consumer(bootstrap, topic, value_deserializer=int, key_deserializer=bytes.decode) as reading:
        (records,) = reading.poll(WAIT_MS).values()
        assert [("k0", 1), ("k1", 2)] == [(record.key, record.value) for record in records]
        for _ in range(2):
            with pytest.raises(
                RecordDeserializationError, match="-0 at offset 2: a deserializer raised ValueError"
            ) as why:
                reading.poll(WAIT_MS)
            assert (partition, 2) == (why.value.partition, why.value.offset)
        reading.seek(partition, why.value.offset + 1)
        (records,) = reading.poll(WAIT_MS).values()
        assert [4] == [record.value for record in records]


class Doubling:
    """An interceptor that gives every record twice, and one that fails."""

    def __init__(self) -> None:
        self.is_closed = False

    def on_consume(self, records: dict[TopicPartition, list[ConsumerRecord]]) -> Any:
        return {partition: [each for each in some for _ in range(2)] for partition, some in records.items()}

    def close(self) -> None:
        self.is_closed = True


class Failing:
    def on_consume(self, records: Any) -> Any:
        raise RuntimeError("an interceptor may fail")


def test_interceptors(bootstrap: str, topic: str) -> None:
    (partition,) = make_topic(bootstrap, topic)
    fill(bootstrap, {partition: [b"1", b"2"]})
    doubling = Doubling()
    with consumer(bootstrap, topic, interceptors=[Failing(), doubling]) as reading:
        assert {partition: [b"1", b"1", b"2", b"2"]} == read(reading, 4)
    assert doubling.is_closed


def test_wakeup_from_another_thread(bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic)
    with consumer(bootstrap, topic) as reading:
        assert {} == reading.poll(10)
        timer = threading.Timer(0.2, reading.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            reading.poll(60_000)
        assert {} == reading.poll(10)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set() == {each for each in threading.enumerate() if "ottla" in each.name} - before
