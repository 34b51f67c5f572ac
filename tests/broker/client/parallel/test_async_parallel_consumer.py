"""The parallel consumer against a real broker: order, retries, dead letters, commits, back-pressure, handovers."""

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from ottla.client.admin.async_admin import OffsetSpec
from ottla.client.admin.blocking_admin import Admin
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.options import OptionError
from ottla.client.parallel.async_parallel_consumer import AsyncParallelConsumer, HandlerFailedError, RejectRecordError
from ottla.client.parallel.blocking_parallel_consumer import ParallelConsumer
from ottla.client.parallel.options import ParallelConsumerConfig, ParallelConsumerOptions
from ottla.client.producer.blocking_producer import Producer
from ottla.client.values import ConsumerRecord
from ottla.model import dead_letters
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.testing import InProcessBroker
from tests.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.ottla_topic(partitions=2)


def fill(broker: InProcessBroker, topic: str, count: int, *, keys: int = 5, partition: int | None = None) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for at in range(count):
            producer.send(topic, b"%d" % at, key=b"%d" % (at % keys), partition=partition, headers=[("h", b"1")])


def options(broker: InProcessBroker, **more: Any) -> ParallelConsumerOptions:
    given: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "handler_backoff_ms": 1,
        **more,
    }
    return given  # type: ignore[return-value]


def committed(broker: InProcessBroker, group_id: str, topic: str) -> dict[int, int]:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        found = admin.list_consumer_group_offsets(group_id)
    return {each.partition: offset.offset for each, offset in found.items() if each.topic == topic}


def ends(broker: InProcessBroker, topic: str) -> dict[int, int]:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        found = admin.list_offsets({TopicPartition(topic, at): OffsetSpec.LATEST for at in range(2)})
    return {each.partition: offset.offset for each, offset in found.items()}


async def test_many_at_once_in_order_per_key_and_all_is_committed(broker: InProcessBroker, topic: str) -> None:
    fill(broker, topic, 500)
    seen: dict[bytes, list[int]] = defaultdict(list)
    at_once: list[int] = []
    async with AsyncParallelConsumer(topic, **options(broker, group_id=topic, workers=4)) as consumer:

        async def handle(record: ConsumerRecord) -> None:
            at_once.append(consumer.metrics()["running"])
            # Others get a turn, more of them the smaller the number: without order, later records would be first.
            for _ in range(int(record.value) % 7):
                await asyncio.sleep(0)
            seen[record.key].append(int(record.value))
            if sum(map(len, seen.values())) == 500:
                consumer.stop()

        await consumer.run(handle)
    # The test's own, and the one that waits for it.
    assert 2 >= len(asyncio.all_tasks())
    assert {b"%d" % key: list(range(key, 500, 5)) for key in range(5)} == seen
    assert (4, True) == (max(at_once), max(at_once) <= 4)
    assert ends(broker, topic) == committed(broker, topic, topic)


async def test_failures_are_tried_again_and_then_put_aside_with_their_story(
    broker: InProcessBroker, topic: str
) -> None:
    fill(broker, topic, 6, keys=2, partition=1)
    dead = broker.create_topic(f"{topic}-dead")
    calls: list[int] = []
    told = options(broker, group_id=topic, dead_letter_topic=dead, handler_retries=2, value_deserializer=json.loads)
    async with AsyncParallelConsumer(topic, **told) as consumer:

        async def handle(record: ConsumerRecord) -> None:
            calls.append(record.value)
            if record.value == 0:
                raise ValueError("no zeros")
            if record.value == 1:
                raise RejectRecordError("never")
            if record.value == 3 and calls.count(3) == 1:
                raise OSError("for the moment")
            if sorted(set(calls)) == [0, 1, 2, 3, 4, 5] and record.value in (4, 5) and calls.count(3) == 2:
                consumer.stop()

        await consumer.run(handle)
        assert {
            "handled": 4,
            "failed": 5,
            "retried": 0,
            "dead_letters": 2,
            "buffered": 0,
            "running": 0,
        } == consumer.metrics()
    assert {0: 3, 1: 1, 2: 1, 3: 2, 4: 1, 5: 1} == {value: calls.count(value) for value in set(calls)}
    assert [0, 0, 0, 2, 4] == [value for value in calls if value % 2 == 0]
    assert 6 == committed(broker, topic, topic)[1]
    letters = read(broker, dead, 2)
    story = {
        dead_letters.TOPIC: topic.encode(),
        dead_letters.PARTITION: b"1",
        dead_letters.OFFSET: b"0",
        dead_letters.GROUP: topic.encode(),
        dead_letters.MESSAGE: b"no zeros",
        dead_letters.EXCEPTION: b"builtins.ValueError",
        dead_letters.DELIVERY_COUNT: b"3",
    }
    assert {"h": b"1", **story} == dict(letters[b"0"].headers)
    assert b"0" == letters[b"0"].key
    assert b"1" == dict(letters[b"1"].headers)[dead_letters.DELIVERY_COUNT]


def read(broker: InProcessBroker, topic: str, count: int) -> dict[bytes, ConsumerRecord]:
    found: dict[bytes, ConsumerRecord] = {}
    told: dict[str, Any] = {"bootstrap_servers": broker.bootstrap, "auto_offset_reset": "earliest"}
    with Consumer(topic, consumer_timeout_ms=PATIENCE_SECONDS * 1000, **told) as consumer:
        for record in consumer:
            found[record.value] = record
            if len(found) == count:
                break
    return found


async def test_what_cannot_be_read_is_put_aside_as_it_was(broker: InProcessBroker, topic: str) -> None:
    dead = broker.create_topic(f"{topic}-dead")
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, b"{", partition=0)
        producer.send(topic, b"{}", partition=0)
    told = options(broker, group_id=topic, dead_letter_topic=dead, value_deserializer=json.loads, ordering="partition")
    async with AsyncParallelConsumer(topic, **told) as consumer:

        async def handle(record: ConsumerRecord) -> None:
            assert {} == record.value
            consumer.stop()

        await consumer.run(handle)
    headers = dict(read(broker, dead, 1)[b"{"].headers)
    assert (b"json.decoder.JSONDecodeError", b"1") == (
        headers[dead_letters.EXCEPTION],
        headers[dead_letters.DELIVERY_COUNT],
    )


def test_without_a_place_for_dead_letters_the_record_ends_the_run(broker: InProcessBroker, topic: str) -> None:
    fill(broker, topic, 10, keys=10, partition=0)
    done: list[int] = []

    def handle(record: ConsumerRecord) -> None:
        if record.offset == 4:
            raise KeyError("four")
        done.append(record.offset)

    before = set(threading.enumerate())
    with ParallelConsumer(topic, **options(broker, group_id=topic, handler_retries=1)) as consumer:
        with pytest.raises(
            HandlerFailedError, match=r"record 4 of .*-0 failed 2 times, last with KeyError\('four'\)"
        ) as failed:
            consumer.run(handle)
        with pytest.raises(MisuseError, match="can run only once"):
            consumer.run(handle)
    assert (4, "'four'") == (failed.value.record.offset, str(failed.value.__cause__))
    assert set() == set(threading.enumerate()) - before
    # What is done beyond the one that failed is done again, what is before is not.
    assert {0: 4} == committed(broker, topic, topic)
    with ParallelConsumer(topic, **options(broker, group_id=topic)) as again:
        repeated: list[int] = []

        def note(record: ConsumerRecord) -> None:
            repeated.append(record.offset)
            if len(repeated) == 6:
                again.stop()

        again.run(note)
    assert [4, 5, 6, 7, 8, 9] == sorted(repeated)


def test_dead_letters_that_cannot_be_written_end_the_run(broker: InProcessBroker, topic: str) -> None:
    fill(broker, topic, 1)

    def handle(record: ConsumerRecord) -> None:
        raise RejectRecordError("bad")

    told = options(broker, group_id=topic, dead_letter_topic="no/topic")
    with (
        ParallelConsumer(topic, **told) as consumer,
        pytest.raises(HandlerFailedError, match="could not be written to dead-letter topic no/topic"),
    ):
        consumer.run(handle)
    assert {} == committed(broker, topic, topic)


async def test_a_slow_record_holds_the_commit_back_and_memory_stays_bounded(
    broker: InProcessBroker, topic: str
) -> None:
    fill(broker, topic, 300, keys=300, partition=0)
    most: list[int] = []
    told = options(
        broker,
        group_id=topic,
        workers=3,
        buffered_records_max=10,
        uncommitted_records_max=50,
        auto_commit_interval_ms=0,
    )
    release = asyncio.Event()
    async with AsyncParallelConsumer(topic, **told) as consumer:
        handled = 0

        async def handle(record: ConsumerRecord) -> None:
            nonlocal handled
            most.append(consumer.metrics()["buffered"])
            if record.offset == 7:
                await release.wait()
            handled += 1
            if handled == 300:
                consumer.stop()

        task = asyncio.create_task(consumer.run(handle))
        partition = TopicPartition(topic, 0)
        await until(lambda: consumer._consumer.paused() == {partition})
        await until(lambda: consumer.metrics()["buffered"] == 1 and not consumer._state.committable())
        # It went on past the slow one as far as it may, and no further.
        assert 7 + 50 <= handled + 1 <= 7 + 50 + 10
        assert 7 == await consumer._consumer.committed(partition)
        release.set()
        await task
    assert max(most) <= 10
    assert {0: 300} == committed(broker, topic, topic)


async def test_members_hand_partitions_over_without_loss_or_repetition(
    broker: InProcessBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, topic, 400, keys=40)
    seen: list[tuple[int, int]] = []
    told = options(broker, group_id=topic, workers=5, heartbeat_interval_ms=50)
    first, second = AsyncParallelConsumer(topic, **told), AsyncParallelConsumer(topic, **told)
    handover, gives_up = asyncio.Event(), first._hand_over

    async def hand_over(partitions: Collection[TopicPartition], *, is_lost: bool) -> None:
        handover.set()
        await gives_up(partitions, is_lost=is_lost)

    monkeypatch.setattr(first, "_hand_over", hand_over)

    async def handle(record: ConsumerRecord) -> None:
        if len(seen) > 100:
            # Half-way the second must join: what runs then is waited for, and the rest is the next owner's.
            await handover.wait()
        await asyncio.sleep(0)
        seen.append((record.partition, record.offset))

    async with first, second:
        one = asyncio.create_task(first.run(handle))
        await until(lambda: len(seen) >= 50)
        two = asyncio.create_task(second.run(handle))
        await until(lambda: len(seen) >= 400)
        first.stop()
        second.stop()
        await asyncio.gather(one, two)
        assert min(first.metrics()["handled"], second.metrics()["handled"]) > 0
    assert 400 == len(set(seen)) == len(seen)
    assert ends(broker, topic) == committed(broker, topic, topic)


async def test_an_interrupted_run_commits_what_is_done(broker: InProcessBroker, topic: str) -> None:
    fill(broker, topic, 20, keys=20, partition=0)
    reached = asyncio.Event()
    async with AsyncParallelConsumer(topic, **options(broker, group_id=topic, handover_timeout_ms=0)) as consumer:

        async def handle(record: ConsumerRecord) -> None:
            if record.offset == 10:
                reached.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(consumer.run(handle))
        await reached.wait()
        await until(lambda: consumer.metrics()["handled"] == 19)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert {0: 10} == committed(broker, topic, topic)


async def test_a_lost_partition_is_dropped_at_once(broker: InProcessBroker, topic: str) -> None:
    fill(broker, topic, 5, keys=5, partition=0)
    ends: list[str] = []
    started = asyncio.Event()
    async with AsyncParallelConsumer(topic, **options(broker, group_id=topic, workers=2)) as consumer:

        async def handle(record: ConsumerRecord) -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise

        task = asyncio.create_task(consumer.run(handle))
        await started.wait()
        await until(lambda: consumer.metrics()["running"] == 2)
        await consumer._hand_over([TopicPartition(topic, 0)], is_lost=True)
        assert {
            "handled": 0,
            "failed": 0,
            "retried": 0,
            "dead_letters": 0,
            "buffered": 0,
            "running": 0,
        } == consumer.metrics()
        consumer.stop()
        await task
    assert ["cancelled", "cancelled"] == ends
    assert {} == committed(broker, topic, topic)


async def test_what_a_handler_cancels_is_a_failure_like_others(broker: InProcessBroker, topic: str) -> None:
    fill(broker, topic, 1, partition=0)
    calls: list[int] = []
    async with AsyncParallelConsumer(topic, **options(broker, group_id=topic)) as consumer:

        async def handle(record: ConsumerRecord) -> None:
            calls.append(record.offset)
            if len(calls) == 1:
                raise asyncio.CancelledError
            consumer.stop()

        await consumer.run(handle)
    assert [0, 0] == calls
    assert {0: 1} == committed(broker, topic, topic)


async def test_the_broker_may_die_meanwhile(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as broker:
        topic = broker.create_topic("t", 2)
        fill(broker, topic, 300, keys=30)
        seen: dict[bytes, list[int]] = defaultdict(list)
        told = options(broker, group_id=topic, workers=4, max_poll_records=20, buffered_records_max=40)
        half, is_back = asyncio.Event(), asyncio.Event()
        async with AsyncParallelConsumer(topic, **told) as consumer:

            async def handle(record: ConsumerRecord) -> None:
                value = int(record.value)
                if value not in seen[record.key]:
                    seen[record.key].append(value)
                count = sum(map(len, seen.values()))
                if count >= 100:
                    half.set()
                    await is_back.wait()
                if count == 300:
                    consumer.stop()

            task = asyncio.create_task(consumer.run(handle))
            await half.wait()
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            is_back.set()
            await task
        assert {b"%d" % key: list(range(key, 300, 30)) for key in range(30)} == seen
        assert ends(broker, topic) == committed(broker, topic, topic)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"group_id": None}, "ParallelConsumer: group_id is required"),
        ({"workers": 0}, "ParallelConsumer: workers must be at least 1, not 0"),
        ({"ordering": "keys"}, "must be one of 'key', 'partition', 'unordered', not str 'keys'"),
        ({"worker": 3}, "ParallelConsumer has no option worker; did you mean workers"),
        ({"dead_letter_topic": ""}, "dead_letter_topic must not be empty"),
    ],
)
def test_options_are_checked(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(OptionError, match=expected):
        ParallelConsumer("t", **{"group_id": "g", **given})


def test_topics_or_a_pattern() -> None:
    with pytest.raises(MisuseError, match="either topics or a pattern"):
        AsyncParallelConsumer(group_id="g")


def test_what_a_type_checker_knows_is_what_there_is() -> None:
    hints = get_type_hints(ParallelConsumerConfig)
    assert get_type_hints(ParallelConsumerOptions) == {
        each.name: hints[each.name] for each in fields(ParallelConsumerConfig)
    }
