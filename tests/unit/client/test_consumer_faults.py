"""A consumer and brokers that are not there, hang, vanish or talk nonsense: a clear error in time, and nothing left."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.errors import CannotConnectError, DeadlineError
from ottla.client.options import OptionError
from ottla.model.errors import MisuseError, OttlaError
from ottla.model.ids import TopicPartition
from tests.unit.client.scripted_broker import scripted

SOON_S = 15.0


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert [] == [each for each in threading.enumerate() if "ottla" in each.name]


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.parametrize("group_id", [None, "g"])
def test_a_wrong_address_is_told_by_poll(group_id: str | None) -> None:
    port = closed_port()
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


def test_a_broker_that_talks_nonsense_is_told_by_poll() -> None:
    async def scenario() -> None:
        async with (
            scripted(lambda *_: b"\0\0\0\x08nonsense") as (_, address),
            AsyncConsumer("t", bootstrap_servers=str(address)) as consumer,
        ):
            with pytest.raises(CannotConnectError, match="no Kafka broker answers there"):
                await consumer.poll(60_000)

    asyncio.run(asyncio.wait_for(scenario(), SOON_S))


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
        with pytest.raises(MisuseError, match="this consumer is closed"):
            consumer.poll()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"group_idd": "x"}, "Consumer has no option group_idd; did you mean group_id?"),
        ({"group_id": ""}, "group_id='' is no group; leave it out to read without one"),
        ({"session_timeout_ms": 1000}, "heartbeat_interval_ms=3000 must be less than session_timeout_ms=1000"),
        ({"auto_offset_reset": "smallest"}, "it takes one of 'earliest', 'latest', 'none'"),
        ({"partition_assignment_strategy": ["rang"]}, "there is no assignor 'rang'; there are range, roundrobin"),
        ({"partition_assignment_strategy": []}, "partition_assignment_strategy is empty"),
        ({"partition_assignment_strategy": [3]}, "3 in partition_assignment_strategy is no Assignor"),
        ({"group_remote_assignor": "range"}, 'group_remote_assignor needs group_protocol="consumer"'),
        ({"max_poll_records": 0}, "max_poll_records=0 of Consumer is too small; 1 is the least"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(OptionError) as refusal:
        Consumer(**options)
    assert expected in str(refusal.value)


def test_misuse_is_told_before_anything_connects() -> None:
    with Consumer(bootstrap_servers="127.0.0.1:1") as consumer:
        one: Any = "orders"
        with pytest.raises(MisuseError, match=r"write a list, as in \['orders'\]"):
            consumer.subscribe(one)
        with pytest.raises(MisuseError, match="either topics or a pattern"):
            consumer.subscribe([])
        with pytest.raises(MisuseError, match="is no regular expression"):
            consumer.subscribe(pattern="(")
        with pytest.raises(MisuseError, match="t-0 is not assigned to this consumer"):
            consumer.seek(TopicPartition("t", 0), 5)
        with pytest.raises(MisuseError, match="give it a group_id"):
            consumer.commit()
        consumer.assign([TopicPartition("t", 0)])
        with pytest.raises(MisuseError, match="-1 is no offset in t-0"):
            consumer.seek(TopicPartition("t", 0), -1)
        with pytest.raises(MisuseError, match="cannot use subscribe as well; call unsubscribe"):
            consumer.subscribe(["t"])
