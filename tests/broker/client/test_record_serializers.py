"""Serializers that add headers and may have to ask a server first, in all clients, against a broker."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.consumer.errors import RecordDeserializationError
from ottla.client.parallel.async_parallel_consumer import AsyncParallelConsumer
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.blocking_producer import Producer
from ottla.client.producer.errors import SerializationError
from ottla.client.serializers import NotPreparedError
from ottla.client.values import ConsumerRecord, Header
from ottla.model.ids import TopicPartition
from ottla.transport.addresses import Address


class Dictionary:
    """Writes words as numbers, and the name of its dictionary into a header; must learn each word first."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.threads: list[str] = []
        self.fails = False

    def serialize_record(self, topic: str, value: Any, is_key: bool) -> tuple[bytes | None, Sequence[Header]]:
        if value is None:
            return None, ()
        if value not in self.words:
            raise NotPreparedError(lambda: self.learn(value))
        return b"%d" % self.words.index(value), [(f"{topic}-{'key' if is_key else 'value'}", b"words")]

    def deserialize_record(self, topic: str, headers: Sequence[Header], data: bytes, is_key: bool) -> Any:
        assert b"words" == dict(headers)[f"{topic}-{'key' if is_key else 'value'}"]
        index = int(data)
        if index >= len(self.words) or not self.words[index]:
            raise NotPreparedError(lambda: self.look_up(index))
        return self.words[index]

    def learn(self, word: str) -> None:
        self.threads.append(threading.current_thread().name)
        if self.fails:
            raise ConnectionError("the server is away")
        self.words.append(word)

    def look_up(self, index: int) -> None:
        self.threads.append(threading.current_thread().name)
        if self.fails:
            raise ConnectionError("the server is away")
        self.words += [""] * (index + 1 - len(self.words))
        self.words[index] = f"word {index}"


def fill(address: Address, topic: str) -> None:
    words = Dictionary()
    with Producer(bootstrap_servers=str(address), key_serializer=words, value_serializer=words) as producer:
        for number in range(6):
            producer.send(topic, f"value {number % 3}", key=f"key {number % 2}", headers=[("own", b"1")])


def test_the_blocking_producer_prepares_in_the_thread_that_sends(address: Address) -> None:
    words = Dictionary()
    with Producer(bootstrap_servers=str(address), value_serializer=words) as producer:
        for value in ("a", "b", "a", None):
            producer.send("rich-blocking", value, key=b"k", headers=[("own", b"1")]).get(30)
    assert ["a", "b"] == words.words
    assert [threading.current_thread().name] * 2 == words.threads
    with Consumer("rich-blocking", bootstrap_servers=str(address), auto_offset_reset="earliest") as consumer:
        records = take(consumer, 4)
    told = ("own", b"1"), ("rich-blocking-value", b"words")
    assert [(b"0", told), (b"1", told), (b"0", told), (None, told[:1])] == [
        (each.value, tuple(each.headers)) for each in records
    ]


async def test_the_async_producer_never_prepares_in_the_loop(address: Address) -> None:
    words = Dictionary()
    async with AsyncProducer(bootstrap_servers=str(address), key_serializer=words, value_serializer=words) as producer:
        for value in ("a", "b", "a"):
            await producer.send_and_wait("rich-async", value, key="k")
    assert ["k", "a", "b"] == words.words
    assert threading.current_thread().name not in words.threads


async def test_what_cannot_be_prepared_is_not_sent(address: Address) -> None:
    words = Dictionary()
    words.fails = True
    with (
        Producer(bootstrap_servers=str(address), value_serializer=words) as producer,
        pytest.raises(
            SerializationError, match="the value serializer Dictionary could not be prepared for a record of"
        ),
    ):
        producer.send("rich-failed", "a")
    async with AsyncProducer(bootstrap_servers=str(address), value_serializer=words) as producer:
        with pytest.raises(SerializationError, match="the server is away"):
            await producer.send("rich-failed", "a")


async def test_consumers_prepare_and_go_on(address: Address) -> None:
    fill(address, "rich-read")
    expected = [(f"word {0 if n % 2 == 0 else 2}", f"word {(1, 3, 4)[n % 3]}") for n in range(6)]
    words = Dictionary()
    options: dict[str, Any] = {"bootstrap_servers": str(address), "auto_offset_reset": "earliest"}
    with Consumer("rich-read", key_deserializer=words, value_deserializer=words, **options) as consumer:
        assert expected == [(each.key, each.value) for each in take(consumer, 6)]
    assert {threading.current_thread().name} == set(words.threads)
    words = Dictionary()
    async with AsyncConsumer("rich-read", key_deserializer=words, value_deserializer=words, **options) as consumer:
        found: list[ConsumerRecord] = []
        while len(found) < 6:
            for records in (await consumer.poll(10_000)).values():
                found += records
    assert expected == [(each.key, each.value) for each in found]
    assert threading.current_thread().name not in words.threads


def test_a_record_that_cannot_be_prepared_can_be_read_later_or_skipped(address: Address) -> None:
    fill(address, "rich-away")
    words = Dictionary()
    words.words = ["zero", "one", "two"]
    words.fails = True
    partition = TopicPartition("rich-away", 0)
    with Consumer(bootstrap_servers=str(address), value_deserializer=words) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        assert ["one"] == [each.value for each in take(consumer, 1)]
        for _ in range(2):
            with pytest.raises(RecordDeserializationError, match="the server is away") as failure:
                take(consumer, 1)
            assert 1 == failure.value.offset
        words.fails = False
        assert ["word 3", "word 4"] == [each.value for each in take(consumer, 5)[:2]]


async def test_the_parallel_consumer(address: Address) -> None:
    fill(address, "rich-parallel")
    words, seen = Dictionary(), list[tuple[Any, Any]]()
    async with AsyncParallelConsumer(
        "rich-parallel",
        bootstrap_servers=str(address),
        group_id="rich",
        auto_offset_reset="earliest",
        key_deserializer=words,
        value_deserializer=words,
    ) as consumer:

        async def handle(record: ConsumerRecord) -> None:
            seen.append((record.key, record.value))
            if len(seen) == 6:
                consumer.stop()

        await consumer.run(handle)
    assert {"word 0", "word 2"} == {key for key, _ in seen}
    assert {"word 1", "word 3", "word 4"} == {value for _, value in seen}
    assert threading.current_thread().name not in words.threads


def take(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while len(found) < count:
        polled = consumer.poll(60_000)
        assert polled, f"{count} records expected, {len(found)} found"
        for records in polled.values():
            found += records
    return found
