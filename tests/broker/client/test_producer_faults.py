"""Brokers that refuse, move, hang, vanish and speak nonsense: records are sent again in order, or an error says why."""

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.client.errors import AnswerError, CannotConnectError, DeadlineError
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.blocking_producer import Producer
from ottla.client.producer.errors import (
    BufferFullError,
    NotDeliveredError,
    NotEncodedError,
    ProducerBrokenError,
    ProducerClosedError,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.protocol.apis import ApiKey
from ottla.records.layout import Codec
from ottla.testing.free_ports import free_port
from ottla.transport.addresses import Address
from tests.broker.client.scripted_leaders import TOPIC, Fate, ScriptedLeaders, scripted_leaders
from tests.broker_process import BrokerProcess
from tests.waiting import wait_until


def producer_of(leaders: ScriptedLeaders, **options: Any) -> AsyncProducer:
    given = {"linger_ms": 0, "retry_backoff_ms": 1, "batch_size": 0, **options}
    return AsyncProducer(bootstrap_servers=[str(address) for address in leaders.addresses], **given)


async def test_a_batch_that_cannot_be_encoded_fails_alone() -> None:
    async with scripted_leaders() as leaders, producer_of(leaders) as producer:
        assert 0 == (await producer.send_and_wait(TOPIC, b"first")).offset
        accumulator = producer._core.accumulator
        good = accumulator.limits
        # A level that the codec does not have, which the options would have refused.
        accumulator.limits = replace(good, codec=Codec.GZIP, level=99)
        bad = await producer.send(TOPIC, b"bad")
        accumulator.limits = good
        with pytest.raises(NotEncodedError, match=r"1 record for .*-0 cannot be encoded: ValueError"):
            await bad
        assert 1 == (await producer.send_and_wait(TOPIC, b"second")).offset
        assert [b"first", b"second"] == leaders.log


async def test_a_sender_that_failed_refuses_what_comes_later() -> None:
    async with scripted_leaders() as leaders, producer_of(leaders) as producer:
        await producer.send_and_wait(TOPIC, b"first")
        # Broken on purpose: the next turn cannot tell how many requests are in flight.
        for link in producer._core.sender._links.values():
            link.in_flight = None  # type: ignore[assignment]
        delivery = await producer.send(TOPIC, b"second")
        with pytest.raises(
            ProducerBrokenError, match=r"the producer's sender failed: .*; close the producer and report"
        ):
            await delivery
        with pytest.raises(ProducerBrokenError, match="the producer's sender failed"):
            await producer.send(TOPIC, b"third")


async def test_records_that_wait_for_the_same_topic_share_one_metadata_request() -> None:
    async with scripted_leaders() as leaders, producer_of(leaders) as producer:
        values = [b"%d" % number for number in range(50)]
        await asyncio.gather(*(producer.send_and_wait(TOPIC, value) for value in values))
        assert (1, values) == (leaders.metadata_asked, leaders.log)


async def test_one_that_gives_up_waiting_for_a_topic_does_not_end_the_wait_of_others() -> None:
    async with scripted_leaders() as leaders, producer_of(leaders) as producer:
        leaders.topic_error = ErrorCode.LEADER_NOT_AVAILABLE
        impatient, patient = (asyncio.create_task(producer.send_and_wait(TOPIC, value)) for value in (b"1", b"2"))
        await leaders.wait_metadata_asked(1)
        impatient.cancel()
        leaders.topic_error = ErrorCode.NONE
        await patient
        assert (True, [b"2"]) == (impatient.cancelled(), leaders.log)


RETRIED: list[Fate] = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CORRUPT_MESSAGE,
    "hang up",
    "written, hang up",
    "nonsense",
    "hint",
]


@pytest.mark.parametrize("fate", RETRIED)
async def test_sent_again_in_order(fate: Fate) -> None:
    async with scripted_leaders() as leaders, producer_of(leaders) as producer:
        assert 0 == (await producer.send_and_wait(TOPIC, b"first")).offset
        leaders.fates.append(fate)
        deliveries = [await producer.send(TOPIC, b"%d" % number) for number in range(8)]
        offsets = [(await delivery).offset for delivery in deliveries]
        assert sorted(offsets) == offsets
        assert [b"first", *(b"%d" % number for number in range(8))] == leaders.log
        # The same batch has the same number each time; the broker would know it again.
        sequences = [sequence for _, _, sequence in leaders.attempts]
        assert list(range(9)) == list(dict.fromkeys(sequences))
        assert {0} == {epoch for _, epoch, _ in leaders.attempts}


async def test_a_hint_is_followed_without_asking() -> None:
    async with scripted_leaders() as leaders, producer_of(leaders) as producer:
        await producer.send_and_wait(TOPIC, b"first")
        asked = leaders.metadata_asked
        leaders.fates.append("hint")
        await producer.send_and_wait(TOPIC, b"moved")
        assert [(0, 0), (0, 1), (1, 1)] == [(broker, sequence) for broker, _, sequence in leaders.attempts]
        assert asked == leaders.metadata_asked


async def test_a_leader_that_moved_is_found_through_metadata() -> None:
    async with scripted_leaders() as leaders, producer_of(leaders) as producer:
        await producer.send_and_wait(TOPIC, b"first")
        leaders.leader, leaders.leader_epoch = 1, 2
        assert 1 == (await producer.send_and_wait(TOPIC, b"moved")).offset
        assert 1 == leaders.attempts[-1][0]


async def test_a_producer_that_the_broker_forgot_takes_a_new_epoch() -> None:
    async with scripted_leaders() as leaders, producer_of(leaders) as producer:
        await producer.send_and_wait(TOPIC, b"first")
        leaders.fates.append(ErrorCode.UNKNOWN_PRODUCER_ID)
        await producer.send_and_wait(TOPIC, b"again")
        leaders.fates.append(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        await producer.send_and_wait(TOPIC, b"and again")
        assert [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)] == [attempt[1:] for attempt in leaders.attempts]


@pytest.mark.parametrize("fate", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_RECORD])
async def test_a_final_refusal_fails_that_record_alone(fate: ErrorCode) -> None:
    async with scripted_leaders() as leaders, producer_of(leaders) as producer:
        leaders.fates.append(fate)
        with pytest.raises(AnswerError) as refusal:
            await producer.send_and_wait(TOPIC, b"refused")
        assert fate is refusal.value.error_code
        assert 0 == (await producer.send_and_wait(TOPIC, b"next")).offset
        # Its number was never taken, so the next one begins a new epoch.
        assert [(0, 0), (1, 0)] == [attempt[1:] for attempt in leaders.attempts]


async def test_retries_end() -> None:
    async with scripted_leaders() as leaders, producer_of(leaders, retries=2) as producer:
        leaders.fates += [ErrorCode.NOT_ENOUGH_REPLICAS] * 3
        with pytest.raises(AnswerError, match="NOT_ENOUGH_REPLICAS"):
            await producer.send_and_wait(TOPIC, b"x")
        assert 3 == len(leaders.attempts)


async def test_a_broker_that_hangs_is_given_up_within_the_delivery_timeout() -> None:
    options = {"request_timeout_ms": 300, "delivery_timeout_ms": 700}
    async with scripted_leaders() as leaders, producer_of(leaders, **options) as producer:
        await producer.send_and_wait(TOPIC, b"first")
        leaders.fates += ["silence"] * 10
        started = time.monotonic()
        with pytest.raises(
            NotDeliveredError,
            match=r"1 record for t-0 not acknowledged within 700 ms \(delivery_timeout_ms\): sent"
            r" (once|\d times), may be in the log; last problem: .*PRODUCE was not answered within 300 ms",
        ):
            await producer.send_and_wait(TOPIC, b"lost")
        assert 0.6 < time.monotonic() - started < 30
        leaders.fates.clear()
        assert 1 == (await producer.send_and_wait(TOPIC, b"next")).offset
        # Nobody knew whether the lost one was written: a new epoch keeps the two apart.
        assert 1 == leaders.attempts[-1][1]


async def test_a_full_buffer_raises_after_max_block() -> None:
    options = {"buffer_memory": 2000, "max_block_ms": 200, "request_timeout_ms": 5000}
    async with scripted_leaders() as leaders, producer_of(leaders, **options) as producer:
        await producer.send_and_wait(TOPIC, b"first")
        leaders.fates += ["silence"] * 10
        started = time.monotonic()
        sending = (producer.send(TOPIC, b"x" * 300) for _ in range(10))
        with pytest.raises(BufferFullError, match=r"no room for a record to t-0 after 200 ms \(max_block_ms\)"):
            [await each for each in sending]
        assert 0.15 < time.monotonic() - started < 30
        await producer.close(timeout=0.1)


async def test_closing_gives_up_what_takes_longer() -> None:
    async with scripted_leaders() as leaders:
        producer = producer_of(leaders)
        await producer.start()
        await producer.send_and_wait(TOPIC, b"first")
        leaders.fates += ["silence"] * 10
        delivery = await producer.send(TOPIC, b"x")
        with pytest.raises(DeadlineError, match=r"1 batches are not delivered after 0.1 s"):
            await producer.flush(timeout=0.1)
        await producer.close(timeout=0.1)
        with pytest.raises(ProducerClosedError, match="closed before the record was delivered"):
            await delivery


async def test_an_unknown_topic_is_told_after_max_block() -> None:
    async with scripted_leaders() as leaders, producer_of(leaders, max_block_ms=2000) as producer:
        leaders.topic_error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        expected = r"no metadata for topic t after 2000 ms \(max_block_ms\): topic t: the topic .* does not exist"
        with pytest.raises(AnswerError, match=expected):
            await producer.send(TOPIC, b"x")
        # One that will never be is told at once.
        leaders.topic_error = ErrorCode.INVALID_TOPIC_EXCEPTION
        with pytest.raises(AnswerError, match="the topic name is not valid"):
            await producer.send(TOPIC, b"x")


async def test_metadata_that_never_comes_is_told_after_max_block() -> None:
    async with scripted_leaders() as leaders, producer_of(leaders, max_block_ms=200) as producer:
        leaders.silent.add(ApiKey.METADATA)
        with pytest.raises(
            DeadlineError, match=r"no metadata for topic t after 200 ms \(max_block_ms\): no response from 127"
        ):
            await producer.send(TOPIC, b"x")


def test_wrong_addresses_are_told_when_the_time_is_over_and_leave_no_thread() -> None:
    before = set(threading.enumerate())
    one, other = Address("127.0.0.1", free_port()), Address("127.0.0.1", free_port())
    with (
        Producer(bootstrap_servers=[str(one), str(other)], max_block_ms=500, retry_backoff_ms=10) as producer,
        pytest.raises(
            CannotConnectError,
            match=rf"no metadata for topic t after 500 ms \(max_block_ms\): cannot reach any broker of {one}, {other} "
            rf"\({one}: connection refused; {other}: connection refused\); is one running.*\(tried \d+ times\)",
        ),
    ):
        producer.send(TOPIC, b"x")
    assert set() == set(threading.enumerate()) - before


def test_a_broker_that_starts_later_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = BrokerProcess(tmp_path)
    with Producer(bootstrap_servers=broker.address, retry_backoff_ms=10) as producer, ThreadPoolExecutor() as pool:
        with caplog.at_level(logging.WARNING, "ottla.client.producer.async_producer"):
            first = pool.submit(producer.send, "late", b"x")
            wait_until(lambda: "retrying for 60000 ms (max_block_ms)" in caplog.text, "a first try")
        with broker:
            assert 0 == first.result(60).get(60).offset


async def test_order_per_key_while_leadership_moves_to_and_fro() -> None:
    """Two brokers that speak real frames; each refusal moves the leader, and some writes lose their answers."""
    async with scripted_leaders() as leaders, producer_of(leaders, retry_backoff_max_ms=5) as producer:
        keys, chance = [b"a", b"b", b"c"], Random(5)
        deliveries = []
        for number in range(300):
            if number % 10 == 0:
                leaders.fates.append(chance.choice(["hint", "written, hang up", ErrorCode.NOT_LEADER_OR_FOLLOWER]))
            if number % 37 == 0:
                leaders.leader, leaders.leader_epoch = 1 - leaders.leader, leaders.leader_epoch + 1
            key = keys[number % 3]
            deliveries.append(await producer.send(TOPIC, b"%s%d" % (key, number), key=key))
            if number % 7 == 0:
                await asyncio.sleep(0)
        offsets = [(await delivery).offset for delivery in deliveries]
        assert list(range(300)) == offsets
        for at, key in enumerate(keys):
            expected = [b"%s%d" % (key, number) for number in range(at, 300, 3)]
            assert expected == [value for value in leaders.log if value.startswith(key)]
        assert {0, 1} == {broker for broker, _, _ in leaders.attempts}
        assert 0 < producer._core.accumulator.retried


def test_an_address_that_is_none() -> None:
    before = set(threading.enumerate())
    with pytest.raises(OttlaError, match="'no port:x' is not an address"):
        Producer(bootstrap_servers="no port:x")
    assert set() == set(threading.enumerate()) - before
