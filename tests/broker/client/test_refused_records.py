"""Records that cannot be sent as they are: the program is told what is wrong and what to write, and nothing is left."""

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from ottla.client.errors import AnswerError
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.blocking_producer import Producer
from ottla.client.producer.errors import RecordTooLargeError, SerializationError
from ottla.client.producer.interceptors import ProducerInterceptor, ProducerRecord
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError
from ottla.transport.addresses import Address
from tests.broker.client.producer_log import make_topic, read_topic, values
from tests.waiting import PATIENCE_SECONDS

REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"headers": [("a", "1")]},
        "the value of header 'a' must be bytes or None, not str; encode it, as in '1'.encode()",
    ),
    ({"headers": [("a", 1)]}, "the value of header 'a' must be bytes or None, not int"),
    ({"headers": [(b"a", b"1")]}, "the name in headers[0] must be str, not bytes; decode it, as in b'a'.decode()"),
    ({"headers": [("a", b"1"), (None, b"1")]}, "the name in headers[1] must be str, not NoneType"),
    ({"headers": [("\ud800", b"1")]}, "the name in headers[0] cannot be encoded as UTF-8: '\\ud800'"),
    ({"headers": ["ab"]}, "headers[0] must be a pair such as ('name', b'value'), not str 'ab'"),
    (
        {"headers": [("a", b"1", b"2")]},
        "headers[0] must be a pair such as ('name', b'value'), not tuple ('a', b'1', b'2')",
    ),
    (
        {"headers": {"a": b"1"}},
        "headers must be a list of pairs such as [('name', b'value')], not dict; pass list(headers.items())",
    ),
    ({"headers": "a=1"}, "headers must be a list of pairs such as [('name', b'value')], not str"),
    ({"headers": 5}, "headers must be a list of pairs such as [('name', b'value')], not int"),
    ({"value": "text"}, "value must be bytes or None, not str; encode it, or set value_serializer"),
    ({"value": {"a": 1}}, "value must be bytes or None, not dict; encode it, or set value_serializer"),
    ({"key": 7}, "key must be bytes or None, not int; encode it, or set key_serializer"),
    ({"value": memoryview(b"12345")[::2]}, "value must be a contiguous memoryview; pass bytes(view)"),
    ({"key": memoryview(b"12345")[::2]}, "key must be a contiguous memoryview; pass bytes(view)"),
    ({"partition": "0"}, "partition must be int or None, not str '0'"),
    ({"partition": 0.0}, "partition must be int or None, not float 0.0"),
    (
        {"timestamp_ms": datetime(2026, 1, 1, tzinfo=UTC)},
        "timestamp_ms must be int or None (milliseconds since 1970), not datetime; pass int(when.timestamp() * 1000)",
    ),
    ({"timestamp_ms": 1.5}, "timestamp_ms must be int or None (milliseconds since 1970), not float 1.5"),
    ({"timestamp_ms": 2**63}, "timestamp_ms must be from -2**63 to 2**63 - 1, not 9223372036854775808"),
]
TOPICS: list[tuple[Any, str]] = [
    (None, "topic must be str, not None"),
    (b"orders", "topic must be str, not bytes b'orders'"),
    (["orders"], "topic must be str, not list ['orders']"),
]


@pytest.fixture(scope="module")
def producer(address: Address) -> Iterator[Producer]:
    with Producer(bootstrap_servers=str(address), delivery_timeout_ms=10_000, request_timeout_ms=5_000) as producer:
        yield producer


@pytest.mark.parametrize(("given", "sentence"), REFUSED, ids=range(len(REFUSED)))
def test_refused_with_a_sentence_and_the_next_record_is_sent(
    address: Address, producer: Producer, given: dict[str, Any], sentence: str
) -> None:
    topic = f"refused-{REFUSED.index((given, sentence))}"
    record = {"value": b"bad", **given}
    # Often, since a sender that is awake at the right moment would see what the refused record left behind.
    for _ in range(5):
        with pytest.raises(MisuseError, match=re.escape(sentence)):
            producer.send(topic, **record)
    assert 0 == producer.send(topic, b"good").get(PATIENCE_SECONDS).offset
    with pytest.raises(MisuseError, match=re.escape(sentence)):
        producer.send(topic, **record)
    assert 1 == producer.send(topic, b"good too").get(PATIENCE_SECONDS).offset
    assert [b"good", b"good too"] == values(read_topic(address, topic)[0])


@pytest.mark.parametrize(("topic", "sentence"), TOPICS, ids=range(len(TOPICS)))
async def test_topics(address: Address, producer: Producer, topic: Any, sentence: str) -> None:
    with pytest.raises(MisuseError, match=re.escape(sentence)):
        producer.send(topic, b"x")
    with pytest.raises(MisuseError, match=re.escape(sentence)):
        producer.partitions_for(topic)
    async with AsyncProducer(bootstrap_servers=str(address)) as asynchronous:
        with pytest.raises(MisuseError, match=re.escape(sentence)):
            await asynchronous.send(topic, b"x")


async def test_in_an_event_loop(address: Address) -> None:
    async with AsyncProducer(
        bootstrap_servers=str(address), delivery_timeout_ms=10_000, request_timeout_ms=5_000
    ) as producer:
        for number, (given, sentence) in enumerate(REFUSED):
            for _ in range(3):
                with pytest.raises(MisuseError, match=re.escape(sentence)):
                    await producer.send("refused-async", **{"value": b"bad", **given})
                await asyncio.sleep(0.01)  # in which it would be sent
            assert number == (await producer.send_and_wait("refused-async", b"good")).offset
    read = await asyncio.to_thread(read_topic, address, "refused-async")
    assert [b"good"] * len(REFUSED) == values(read[0])


def test_headers_may_come_from_a_generator(address: Address, producer: Producer) -> None:
    producer.send("generated", b"x", headers=((name, b"1") for name in "ab")).get(PATIENCE_SECONDS)  # type: ignore[arg-type]
    (record,) = read_topic(address, "generated")[0]
    assert [("a", b"1"), ("b", b"1")] == list(record.headers)


def test_a_memoryview_of_wider_items_is_sent_as_its_bytes(address: Address, producer: Producer) -> None:
    wide = memoryview(b"12345678").cast("I")
    metadata = producer.send("wide", wide, key=wide).get(PATIENCE_SECONDS)
    assert (8, 8) == (metadata.serialized_key_size, metadata.serialized_value_size)
    (record,) = read_topic(address, "wide")[0]
    assert (b"12345678", b"12345678") == (record.key, record.value)


@pytest.mark.parametrize("value", [b"x" * 2_000_000, b"small"], ids=["too-large", "bad-header"])
def test_a_transaction_goes_on_without_it(address: Address, value: bytes) -> None:
    topic = f"refused-in-transaction-{len(value)}"
    with Producer(bootstrap_servers=str(address), transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises((MisuseError, RecordTooLargeError)):
            producer.send(topic, value, headers=[("a", "text" if value == b"small" else b"")])  # type: ignore[list-item]
        # Nothing was sent, so the coordinator has not heard of the transaction.
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"good")
        producer.commit_transaction()
    assert [b"good"] == values(read_topic(address, topic, committed=True)[0])


@pytest.mark.parametrize(
    ("topic", "columns", "sentence"),
    [
        (None, {}, "topic must be str, not None"),
        ("tables", {"partition": 0.5}, "partition must be int or str, not float 0.5"),
        ("tables", {"key": 0}, "key must be str, not int 0"),
        ("tables", {"headers": "texts"}, "column texts"),
    ],
)
def test_tables(address: Address, producer: Producer, topic: Any, columns: dict[str, Any], sentence: str) -> None:
    rows = pa.table({"key": [b"k"], "value": [b"v"], "texts": pa.array([5], pa.int32())})
    with pytest.raises(MisuseError, match=re.escape(sentence)):
        producer.send_table(topic, rows, **columns)
    (written,) = producer.send_table("tables", rows).get(PATIENCE_SECONDS)
    assert 1 == written.row_count


class Forgetful(ProducerInterceptor):
    """Returns nothing, as one does who forgets the last line."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return None  # type: ignore[return-value]


def test_an_interceptor_that_returns_nothing(address: Address, caplog: pytest.LogCaptureFixture) -> None:
    with Producer(bootstrap_servers=str(address), interceptors=[Forgetful()]) as producer:
        producer.send("forgotten", b"x").get(PATIENCE_SECONDS)
    assert "Forgetful.on_send must return a ProducerRecord, not NoneType; the record is sent" in caplog.text


def test_a_serializer_is_named(address: Address) -> None:
    with (
        Producer(bootstrap_servers=str(address), key_serializer=str.encode) as producer,
        pytest.raises(SerializationError, match=r"the key serializer encode failed for a record of topic t, on int 5"),
    ):
        producer.send("t", b"x", key=5)


def test_an_invalid_timestamp_is_explained_once(address: Address, producer: Producer) -> None:
    make_topic(address, "untimely", message_timestamp_before_max_ms="1000")
    with pytest.raises(AnswerError) as refusal:
        producer.send("untimely", b"x", timestamp_ms=5).get(PATIENCE_SECONDS)
    assert ErrorCode.INVALID_TIMESTAMP is refusal.value.error_code
    assert 1 == str(refusal.value).count("record 0: timestamp 5 is outside of")
