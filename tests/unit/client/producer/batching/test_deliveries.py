"""Promises of batches and the deliveries that look at them: told once, to everybody, also in pieces."""

import asyncio
import threading

import pytest

from ottla.client.errors import DeadlineError
from ottla.client.producer.batching.deliveries import AsyncDelivery, BatchPromise, Delivery
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition

PARTITION = TopicPartition("t", 3)


def test_offsets_follow_from_the_batch() -> None:
    promise = BatchPromise(PARTITION)
    deliveries = [promise.record(100 + number, b"k" * number, None) for number in range(3)]
    assert [(False, None, False)] * 3 == [(each.is_done, each.value, each.failed()) for each in deliveries]
    promise.succeed(40)
    assert [("t", 3, PARTITION, 40 + number, 100 + number, number, -1) for number in range(3)] == [
        delivery.get() for delivery in deliveries
    ]


def test_the_brokers_time_and_unknown_offsets() -> None:
    promise = BatchPromise(PARTITION)
    delivery = promise.record(100, None, b"")
    promise.succeed(-1, 777)
    assert (-1, 777, -1, 0) == delivery.get()[3:]


def test_the_first_fate_stays() -> None:
    promise = BatchPromise(PARTITION)
    delivery = promise.record(0, None, None)
    promise.fail(ValueError("first"))
    promise.succeed(1)
    promise.fail(ValueError("second"))
    assert delivery.failed()
    assert not delivery.succeeded()
    with pytest.raises(ValueError, match="first"):
        delivery.get()


def test_get_waits_and_gives_up() -> None:
    promise = BatchPromise(PARTITION)
    delivery = promise.record(0, None, None)
    with pytest.raises(DeadlineError, match=r"a record for t-3 is not delivered after 0.01 s"):
        delivery.get(0.01)
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(delivery.get(30).offset))
    waiting.start()
    promise.succeed(5)
    waiting.join()
    assert [5] == found


def test_what_futures_have() -> None:
    promise = BatchPromise(PARTITION)
    written = promise.record(0, None, None)
    with pytest.raises(TimeoutError):
        written.result(0.01)
    with pytest.raises(TimeoutError):
        written.result(timeout=0.01)
    with pytest.raises(TimeoutError):
        written.exception(timeout=0.01)
    assert not written.done()
    heard: list[Delivery] = []
    assert written.add_done_callback(heard.append) is None  # type: ignore[func-returns-value]  # as futures do
    promise.succeed(5)
    assert (True, 5, None) == (written.done(), written.result().offset, written.exception())
    assert [written] == heard
    failing = BatchPromise(PARTITION)
    failed = failing.record(0, None, None)
    error = ValueError("why")
    failing.fail(error)
    failed.add_done_callback(heard.append)
    assert [written, failed] == heard
    assert failed.exception(0) is error
    with pytest.raises(ValueError, match="why"):
        failed.result()


def test_waiting_for_a_result_is_not_for_an_event_loop() -> None:
    promise = BatchPromise(PARTITION, True)
    delivery = promise.record(0, None, None)
    for wait in (delivery.get, delivery.result, delivery.exception):
        with pytest.raises(MisuseError, match="the record is not delivered yet: await the delivery"):
            wait()
    heard: list[Delivery] = []
    delivery.add_done_callback(heard.append)
    promise.succeed(3)
    assert (3, 3, None, [delivery]) == (delivery.get().offset, delivery.result().offset, delivery.exception(), heard)


def test_its_own_thread_may_not_wait() -> None:
    promise = BatchPromise(PARTITION, False, threading.get_ident())
    delivery = promise.record(0, None, None)
    with pytest.raises(MisuseError, match="cannot be waited for in a callback"):
        delivery.get(1)
    promise.succeed(0)
    assert 0 == delivery.get(1).offset


def test_pieces_keep_the_promise_to_those_who_wait_already_and_later() -> None:
    promise = BatchPromise(PARTITION)
    deliveries = [promise.record(0, None, None) for _ in range(5)]
    heard: list[tuple[str, int]] = []
    for delivery in deliveries[:4]:
        delivery.add_callback(lambda metadata: heard.append(("written", metadata.offset)))
        delivery.add_errback(lambda error: heard.append((str(error), -1)))
    pieces = [BatchPromise(PARTITION, count=count) for count in (2, 1, 2)]
    promise.split(pieces)
    promise.fail(ValueError("too late to fail as a whole"))
    # A piece can be split again.
    halves = [BatchPromise(PARTITION, count=1) for _ in range(2)]
    pieces[2].split(halves)
    pieces[0].succeed(10)
    pieces[1].fail(ValueError("lost"))
    assert [("written", 10), ("written", 11), ("lost", -1)] == heard
    assert [True, True, True, False, False] == [delivery.is_done for delivery in deliveries]
    halves[1].succeed(30)
    halves[0].succeed(20)
    assert [20, 30] == [delivery.get(0).offset for delivery in deliveries[3:]]
    assert ("written", 20) == heard[-1]


def test_pieces_must_have_all_records() -> None:
    with pytest.raises(MisuseError, match="a batch of 3 records cannot be split into pieces of 2 records"):
        BatchPromise(PARTITION, count=3).split([BatchPromise(PARTITION, count=2)])


async def test_awaiting_before_and_after() -> None:
    promise = BatchPromise(PARTITION, True)
    early, late, lonely = (promise.record(0, None, None) for _ in range(3))
    assert isinstance(early, AsyncDelivery)
    assert isinstance(late, AsyncDelivery)
    assert isinstance(lonely, AsyncDelivery)
    waiting = asyncio.ensure_future(early)
    cancelled = asyncio.ensure_future(lonely)
    await asyncio.sleep(0)
    cancelled.cancel()
    promise.succeed(7)
    assert 7 == (await waiting).offset
    assert 8 == (await late).offset
    assert [7, 8, 9] == [each.offset for each in await asyncio.gather(early, late, lonely)]
    failing = BatchPromise(PARTITION, True)
    delivery = failing.record(0, None, None)
    assert isinstance(delivery, AsyncDelivery)
    failing.fail(ValueError("why"))
    for _ in range(2):
        with pytest.raises(ValueError, match="why"):
            await delivery


def test_many_threads_wait_while_it_is_told() -> None:
    for _ in range(200):
        promise = BatchPromise(PARTITION)
        deliveries = [promise.record(0, None, None) for _ in range(4)]
        found: list[int] = []
        threads = [threading.Thread(target=_get, args=(each, found)) for each in deliveries]
        for thread in threads:
            thread.start()
        promise.succeed(0)
        for thread in threads:
            thread.join()
        assert [0, 1, 2, 3] == sorted(found)


def _get(delivery: Delivery, found: list[int]) -> None:
    found.append(delivery.get(30).offset)
