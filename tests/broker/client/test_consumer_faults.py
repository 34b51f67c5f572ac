"""A consumer and brokers that are not there, hang, vanish or talk nonsense: a clear error in time, and nothing left."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.consumer.range_reader import RangeReader
from ottla.client.errors import CannotConnectError, DeadlineError
from ottla.client.options import OptionError
from ottla.model.errors import MisuseError, OttlaError
from ottla.model.ids import TopicPartition
from ottla.testing.free_ports import free_port
from tests.broker.client.scripted_broker import scripted

SOON_S = 25.0


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    # Spark's workers keep their producers and readers: other tests of this process may have left such threads.
    before = set(threading.enumerate())
    yield
    assert [] == [each for each in set(threading.enumerate()) - before if "ottla" in each.name]


@pytest.mark.parametrize("group_id", [None, "g"])
def test_a_wrong_address_is_told_by_poll(group_id: str | None) -> None:
    port = free_port()
    start = time.monotonic()
    with Consumer("t", bootstrap_servers=f"127.0.0.1:{port}", group_id=group_id) as consumer:
        with pytest.raises(CannotConnectError, match=f"cannot reach any broker of 127.0.0.1:{port}"):
            consumer.poll(60_000)
        # And it goes on trying.
        with pytest.raises(CannotConnectError):
            consumer.poll(60_000)
    assert time.monotonic() - start < SOON_S


@pytest.mark.parametrize("group_id", [None, "g"])
def test_a_broker_that_hangs_is_told_by_poll(group_id: str | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        start = time.monotonic()
        options: dict[str, Any] = {"socket_connection_setup_timeout_ms": 300, "group_id": group_id}
        with (
            Consumer("t", bootstrap_servers=address, **options) as consumer,
            pytest.raises(CannotConnectError, match="it accepts connections, but does not answer within 300 ms"),
        ):
            consumer.poll(60_000)
        assert time.monotonic() - start < SOON_S


async def test_a_broker_that_talks_nonsense_is_told_by_poll() -> None:
    async with (
        scripted(lambda *_: b"\0\0\0\x08nonsense") as (_, address),
        AsyncConsumer("t", bootstrap_servers=str(address)) as consumer,
    ):
        with pytest.raises(CannotConnectError, match="no valid response from a Kafka broker"):
            await consumer.poll(60_000)


def test_questions_end_in_their_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with Consumer(bootstrap_servers=address, group_id="g", socket_connection_setup_timeout_ms=200) as consumer:
            partition = TopicPartition("t", 0)
            for ask in (
                lambda: consumer.end_offsets([partition], timeout_ms=500),
                lambda: consumer.committed(partition, timeout_ms=500),
                lambda: consumer.partitions_for_topic("t", timeout_ms=500),
                lambda: consumer.topics(timeout_ms=500),
                lambda: consumer.commit({partition: 5}, timeout_ms=500),
            ):
                start = time.monotonic()
                with pytest.raises(OttlaError, match="does not answer"):
                    ask()
                assert time.monotonic() - start < SOON_S
            consumer.assign([partition])
            with pytest.raises((DeadlineError, CannotConnectError)):
                consumer.position(partition, timeout_ms=500)


def test_closing_does_not_wait_for_the_dead() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        consumer = Consumer("t", bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}", group_id="g")
        assert {} == consumer.poll(50)
        start = time.monotonic()
        consumer.close()
        assert time.monotonic() - start < SOON_S
        consumer.close()
        with pytest.raises(MisuseError, match="the consumer is closed"):
            consumer.poll()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"group_idd": "x"}, "Consumer has no option group_idd; did you mean group_id?"),
        ({"group_id": ""}, "group_id must not be empty; omit it to read without a group"),
        ({"session_timeout_ms": 1000}, "heartbeat_interval_ms=3000 must be less than session_timeout_ms=1000"),
        ({"auto_offset_reset": "smallest"}, "must be one of 'earliest', 'latest', 'none', not str 'smallest'"),
        ({"partition_assignment_strategy": ["rang"]}, "unknown assignor 'rang'; known are range, roundrobin"),
        ({"partition_assignment_strategy": []}, "partition_assignment_strategy is empty"),
        ({"partition_assignment_strategy": [3]}, "partition_assignment_strategy: 3 is neither an Assignor nor"),
        ({"group_remote_assignor": "range"}, 'group_remote_assignor needs group_protocol="consumer"'),
        ({"max_poll_records": 0}, "Consumer: max_poll_records must be at least 1, not 0"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(OptionError) as refusal:
        Consumer(**options)
    assert expected in str(refusal.value)


P0 = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda consumer: consumer.subscribe(5), "subscribe: topics must be a list of str, not int 5"),
        (lambda consumer: consumer.subscribe(["t", None]), r"subscribe: topics\[1\] must be str, not None"),
        (lambda consumer: consumer.subscribe(pattern=b"t"), "subscribe: pattern must be str or None, not bytes b't'"),
        (lambda consumer: consumer.subscribe(["t"], listener=print), "subscribe: listener must be"),
        (lambda consumer: consumer.assign("t"), "assign: partitions must be a list of TopicPartition, not str 't'"),
        (lambda consumer: consumer.assign(P0), "assign: partitions must be a list of TopicPartition"),
        (lambda consumer: consumer.seek(P0, "5"), "seek: offset must be int or OffsetAndMetadata, not str '5'"),
        (lambda consumer: consumer.seek("t", 5), "seek: partition must be TopicPartition, not str 't'"),
        (lambda consumer: consumer.pause("t"), "pause: partitions must be TopicPartition, not str 't'"),
        (lambda consumer: consumer.position(3), "position: partition must be TopicPartition, not int 3"),
        (lambda consumer: consumer.poll("1"), "poll: timeout_ms must be float, not str '1'"),
        (lambda consumer: consumer.poll(0, max_records=1.5), "poll: max_records must be int or None, not float 1.5"),
        (lambda consumer: consumer.commit({P0: "x"}), "t-0: cannot commit 'x'"),
        (lambda consumer: consumer.commit({P0: ("x",)}), r"t-0: cannot commit \('x',\)"),
        (lambda consumer: consumer.commit({P0: True}), "t-0: cannot commit True"),
        (lambda consumer: consumer.commit(5), "commit: offsets must be a dict of"),
        (lambda consumer: consumer.committed("t"), "committed: partition must be TopicPartition"),
        (lambda consumer: consumer.offsets_for_times({P0: "x"}), "offsets_for_times: timestamps.* must be int"),
        (lambda consumer: consumer.end_offsets(P0), "end_offsets: partitions must be a list of TopicPartition"),
        (lambda consumer: consumer.partitions_for_topic(None), "partitions_for_topic: topic must be str, not None"),
        (lambda consumer: consumer.close(timeout_ms="1"), "close: timeout_ms must be int or None, not str '1'"),
    ],
)
async def test_an_argument_of_the_wrong_type_is_named(call: Any, expected: str) -> None:
    with (
        Consumer(bootstrap_servers="127.0.0.1:1", group_id="g") as consumer,
        pytest.raises(MisuseError, match=expected),
    ):
        call(consumer)
    async with AsyncConsumer(bootstrap_servers="127.0.0.1:1", group_id="g") as asynchronous:
        with pytest.raises(MisuseError, match=expected):
            await call(asynchronous)


def test_topics_of_the_wrong_type_are_told_when_the_consumer_is_made() -> None:
    for kind in (Consumer, AsyncConsumer):
        topics: Any = ["orders"]
        with pytest.raises(MisuseError, match=r"topics must be a list of topic names; \['orders'\] is not one"):
            kind(topics)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((5, 0), "RangeReader: topic must be str, not int 5"),
        (("t", "0"), "RangeReader: partition must be int, not str '0'"),
        (("t", 0, "1"), "RangeReader: start must be int or None, not str '1'"),
        (("t", 0, 0, 2.5), "RangeReader: end must be int or None, not float 2.5"),
    ],
)
def test_a_range_of_the_wrong_type_is_told(arguments: Any, expected: str) -> None:
    with pytest.raises(MisuseError, match=expected):
        RangeReader(*arguments)


def test_misuse_is_told_before_anything_connects() -> None:
    with Consumer(bootstrap_servers="127.0.0.1:1") as consumer:
        one: Any = "orders"
        with pytest.raises(MisuseError, match=r"topics must be a list of str, not str 'orders'; write \['orders'\]"):
            consumer.subscribe(one)
        with pytest.raises(MisuseError, match="either topics or a pattern"):
            consumer.subscribe([])
        with pytest.raises(MisuseError, match="is not a valid RE2 regular expression"):
            consumer.subscribe(pattern="(")
        with pytest.raises(MisuseError, match="t-0 is not assigned to this consumer"):
            consumer.seek(TopicPartition("t", 0), 5)
        with pytest.raises(MisuseError, match="the consumer has no group_id"):
            consumer.commit()
        consumer.assign([TopicPartition("t", 0)])
        with pytest.raises(MisuseError, match="t-0: cannot seek to -1; offsets are 0 or more"):
            consumer.seek(TopicPartition("t", 0), -1)
        with pytest.raises(MisuseError, match="cannot use subscribe as well; call unsubscribe"):
            consumer.subscribe(["t"])
