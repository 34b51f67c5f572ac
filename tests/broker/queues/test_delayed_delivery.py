"""Delayed delivery on one broker, over real sockets and files."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ottla import AsyncConsumer, AsyncProducer, ConsumerRecord
from ottla.broker.broker import Broker
from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.config_requests import ResourceType
from ottla.client.admin.values import ConfigResource, NewPartitions
from ottla.env.real_clock import RealClock
from ottla.env.world import real_world
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError, StorageError
from ottla.model.ids import TimestampMs, TopicPartition
from ottla.model.queue_names import DELAY_CANCEL, DELAY_ID, DELAY_MS, DELAY_REPLACE, DELIVER_AT_MS, DUE_MS, ORIGIN
from ottla.protocol.answer_errors import AnswerError
from ottla.queues import queue_shard
from ottla.queues.kinds.delay_queue import DelayQueue
from ottla.queues.progress_records import Done
from ottla.queues.queue_shard import QueueShard
from ottla.queues.sinks import Delivery
from ottla.records.murmur2 import partition_for_key
from ottla.replication.partition import Partition
from tests.broker import inside
from tests.broker.inside import unserved
from tests.broker.running_broker import broker_on, make_topic, running
from tests.waiting import tries, until

SOON_SECONDS = 180
HOUR_MS = 3_600_000


class SetClock(RealClock):
    """A clock that a test sets forward, so that it decides when records are due, and not a busy machine."""

    ahead_ms = 0

    def now_ms(self) -> TimestampMs:
        return TimestampMs(super().now_ms() + self.ahead_ms)


@asynccontextmanager
async def serving_queue(folder: Path, **configs: str) -> AsyncIterator[Broker]:
    """A broker with the topic `t`, which has delayed delivery."""

    async with running(folder) as broker, asyncio.timeout(SOON_SECONDS):
        await make_topic(broker, "t", 1, ottla_delay_enable="true", **configs)
        yield broker


@asynccontextmanager
async def serving_set_clock(folder: Path, **configs: str) -> AsyncIterator[tuple[Broker, SetClock]]:
    """The same, with a broker whose clock the test sets."""

    clock = SetClock()
    async with started_with(clock, folder) as broker, asyncio.timeout(SOON_SECONDS):
        await make_topic(broker, "t", 1, ottla_delay_enable="true", **configs)
        yield broker, clock


def started_with(clock: SetClock, folder: Path) -> Broker:
    return broker_on(folder, world=replace(real_world(), clock=clock))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def park(broker: Broker, header: str, times_ms: Sequence[int]) -> None:
    """Parks records whose values are their numbers, in one batch, so that the broker knows all of them at once."""
    async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}", linger_ms=60_000) as producer:
        for number, time_ms in enumerate(times_ms):
            headers = [(header, b"%d" % time_ms), ("colour", b"red")]
            await producer.send("t.delayed", b"%d" % number, partition=0, key=b"k%d" % number, headers=headers)


async def send(broker: Broker, *records: tuple[bytes, dict[str, bytes]], topic: str = "t.delayed") -> None:
    """Sends values with headers, one after the other, to the first partition."""
    async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
        for value, headers in records:
            await producer.send(topic, value, partition=0, headers=list(headers.items()))


def shard_of(broker: Broker, topic: str = "t.delayed") -> QueueShard:
    return inside.queue_shard(broker, topic)


async def read(
    broker: Broker, count: int, topic: str = "t", *, now_ms: Callable[[], int] = now_ms
) -> list[tuple[ConsumerRecord, int]]:
    """The first records of a topic, and when each was seen."""
    found: list[tuple[ConsumerRecord, int]] = []
    async with AsyncConsumer(
        topic, bootstrap_servers=f"127.0.0.1:{broker.port}", group_id=None, auto_offset_reset="earliest"
    ) as consumer:
        async for record in consumer:
            found.append((record, now_ms()))
            if len(found) == count:
                return found
    return found


async def test_records_are_delivered_when_they_are_due(tmp_path: Path) -> None:
    async with serving_set_clock(tmp_path) as (broker, clock):
        dues = [clock.now_ms() + HOUR_MS + later_ms for later_ms in (700, 300, 0, 300)]
        await park(broker, DELIVER_AT_MS, dues)
        clock.ahead_ms = min(dues) - clock.now_ms()
        found = await read(broker, 4, now_ms=clock.now_ms)
        assert [b"2", b"1", b"3", b"0"] == [record.value for record, _ in found]
        for record, seen_ms in found:
            number = int(record.value or b"")
            headers = dict(record.headers)
            assert seen_ms >= dues[number], "early"
            assert (record.key, headers["colour"]) == (b"k%d" % number, b"red")
            assert headers[ORIGIN] == b"t.delayed/0/%d" % number
            assert dues[number] <= int(headers[DUE_MS] or b"0") <= seen_ms


async def test_headers_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    async with serving_queue(tmp_path) as broker:
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
            for header in ((DELAY_MS, b"soon"), (DELAY_MS, b"-1"), (DELAY_MS, b"99999999999999")):
                sent = await producer.send("t.delayed", b"x", partition=0, headers=[header])
                with pytest.raises(AnswerError, match=r"header ottla\.delay-ms: .*INVALID_RECORD"):
                    await sent
        (parked,) = broker.partitions.of_topic("t.delayed")
        assert 0 == parked.end_offset


async def test_parked_records_survive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, asyncio.timeout(SOON_SECONDS):
        await make_topic(broker, "t", ottla_delay_enable="true")
        await park(broker, DELAY_MS, [0, 1500, 1000])
        assert [b"0"] == [record.value for record, _ in await read(broker, 1)]
    async with running(tmp_path) as broker, asyncio.timeout(SOON_SECONDS):
        assert [b"0", b"2", b"1"] == [record.value for record, _ in await read(broker, 3)]
        await asyncio.sleep(0.3)  # in which one would be delivered again
        (target,) = broker.partitions.of_topic("t")
        assert target.end_offset == 3


async def test_records_are_cancelled_and_rescheduled_by_their_id(tmp_path: Path) -> None:
    async with serving_set_clock(tmp_path) as (broker, clock):
        soon = {DELAY_MS: b"%d" % (HOUR_MS - 400)}
        await send(
            broker,
            (b"cancelled", {**soon, DELAY_ID: b"a"}),
            (b"other", {**soon, DELAY_ID: b"b"}),
            (b"replaced", {**soon, DELAY_ID: b"c"}),
            (b"plain", soon),
            (b"", {DELAY_CANCEL: b"a"}),
            (b"later", {DELAY_MS: b"%d" % HOUR_MS, DELAY_ID: b"c", DELAY_REPLACE: b"true"}),
            (b"again", {DELAY_MS: b"%d" % (HOUR_MS + 100), DELAY_ID: b"a"}),
        )
        clock.ahead_ms = 2 * HOUR_MS
        found = [record.value for record, _ in await read(broker, 4)]
        assert found == [b"other", b"plain", b"later", b"again"]
        assert (shard_of(broker).parked, shard_of(broker).counts.dropped) == (0, 2)


async def test_cancels_of_unknown_ids_take_no_memory_and_no_disk_if_nothing_is_parked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_shard, "_SNAPSHOT_OFFSETS", 100)
    async with serving_queue(tmp_path) as broker:
        await send(broker, (b"first", {}))
        assert [b"first"] == [record.value for record, _ in await read(broker, 1)]
        shard = shard_of(broker)
        await until(lambda: shard._note_at is None)  # The delivery is noted.
        await send(broker, *((b"", {DELAY_CANCEL: b"unknown-%d" % number}) for number in range(300)))
        await until(lambda: shard.partition.start_offset > 200)
        kind = shard.kind
        assert isinstance(kind, DelayQueue)
        assert 0 == kind.cancel_count


async def test_cancelled_ids_are_limited(tmp_path: Path) -> None:
    async with serving_set_clock(tmp_path, ottla_delay_cancelled_max="2") as (broker, clock):
        late = {DELAY_MS: b"%d" % HOUR_MS}
        parked = [(b"%d" % at, {**late, DELAY_ID: b"id-%d" % at}) for at in range(4)]
        await send(broker, *parked)
        await send(broker, *((b"", {DELAY_CANCEL: id}) for id in (b"id-0", b"unknown")))
        kind = shard_of(broker).kind
        assert isinstance(kind, DelayQueue)
        await until(lambda: kind.cancel_count == 2)

        async def is_refused(**headers: bytes) -> None:
            async with AsyncProducer(
                bootstrap_servers=f"127.0.0.1:{broker.port}", request_timeout_ms=1000, delivery_timeout_ms=2000
            ) as producer:
                sent = await producer.send("t.delayed", b"refused", partition=0, headers=list(headers.items()))
                with pytest.raises(OttlaError, match=r"2 cancelled ids .*ottla\.delay\.cancelled\.max=2"):
                    await sent

        replacing = {DELAY_ID: b"id-1", DELAY_REPLACE: b"true"}
        await asyncio.gather(is_refused(**{DELAY_CANCEL: b"id-1"}), is_refused(**replacing))
        # An id that is remembered may be cancelled again, and records may be parked.
        await send(broker, (b"", {DELAY_CANCEL: b"id-0"}), (b"4", {**late, DELAY_ID: b"id-4"}))
        # The error is retriable: this one waits until the records before the cancels are delivered.
        waiting = asyncio.create_task(send(broker, (b"", {DELAY_CANCEL: b"id-5"})))
        clock.ahead_ms = 2 * HOUR_MS
        await waiting
        found = [record.value for record, _ in await read(broker, 4)]
        assert [b"1", b"2", b"3", b"4"] == found


async def test_a_cancel_is_remembered_over_a_restart(tmp_path: Path) -> None:
    late = {DELAY_MS: b"%d" % HOUR_MS}
    async with serving_set_clock(tmp_path) as (broker, clock):
        await send(
            broker,
            (b"cancelled", {**late, DELAY_ID: b"a"}),
            (b"kept", {**late, DELAY_ID: b"b"}),
            (b"", {DELAY_CANCEL: b"a"}),
        )
    async with started_with(clock, tmp_path) as broker, asyncio.timeout(SOON_SECONDS):
        clock.ahead_ms = 2 * HOUR_MS
        assert [b"kept"] == [record.value for record, _ in await read(broker, 1)]
        await until(lambda: shard_of(broker).parked == 0)


async def test_records_of_an_aborted_transaction_are_never_delivered(tmp_path: Path) -> None:
    async with serving_queue(tmp_path) as broker:
        address = f"127.0.0.1:{broker.port}"
        async with AsyncProducer(bootstrap_servers=address, transactional_id="x") as producer:
            await producer.init_transactions()
            for value, is_committed in ((b"aborted", False), (b"committed", True)):
                producer.begin_transaction()
                await producer.send("t.delayed", value, partition=0, headers=[(DELAY_MS, b"100")])
                if is_committed:
                    await asyncio.sleep(0.4)  # it is due by then
                    (target,) = broker.partitions.of_topic("t")
                    assert target.end_offset == 0, "delivered before it was committed"
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
        assert [b"committed"] == [record.value for record, _ in await read(broker, 1)]
        await until(lambda: shard_of(broker).parked == 0)


async def test_a_record_that_the_topic_refuses_is_a_dead_letter_and_its_neighbours_are_delivered(
    tmp_path: Path,
) -> None:
    async with serving_set_clock(tmp_path) as (broker, clock):
        late, large = {DELAY_MS: b"%d" % HOUR_MS}, Random(3).randbytes(3000)  # Compressed, it would be as large.
        await send(broker, *((b"%d" % at if at != 3 else large, late) for at in range(6)))
        await set_configs(broker, "t", {"max.message.bytes": "1000"})
        clock.ahead_ms = 2 * HOUR_MS
        assert [b"0", b"1", b"2", b"4", b"5"] == sorted(record.value or b"" for record, _ in await read(broker, 5))
        ((dead, _),) = await read(broker, 1, "dlq.t")
        headers = dict(dead.headers)
        assert dead.value == large
        assert b"max.message.bytes" in (headers["__dlq.errors.message"] or b"")
        assert headers["__dlq.errors.topic"] == b"t"
        await until(lambda: shard_of(broker).parked == 0 and shard_of(broker).counts.dead == 1)


async def test_a_dead_letter_that_is_refused_does_not_hold_up_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_set_clock(tmp_path) as (broker, clock):
        large, small = Random(3).randbytes(3000), Random(4).randbytes(400)
        await send(broker, *((value, {DELAY_MS: b"%d" % HOUR_MS}) for value in (large, small)))
        await set_configs(broker, "t", {"max.message.bytes": "300"})
        await set_configs(broker, "dlq.t", {"max.message.bytes": "1000"})
        clock.ahead_ms = 2 * HOUR_MS
        assert [small] == [record.value for record, _ in await read(broker, 1, "dlq.t")]
        await send(broker, (b"", {}))
        await read(broker, 1)
        refused = shard_of(broker).counts.refused_batches
        await until(lambda: shard_of(broker).counts.refused_batches > refused)
        told = [each.getMessage() for each in caplog.records if "dead-letter topic" in each.getMessage()]
        assert 1 == len(told), "logged once, though it is tried again"
        assert "max.message.bytes" in told[0]
        await set_configs(broker, "dlq.t", {"max.message.bytes": "10000"})
        assert [small, large] == [record.value for record, _ in await read(broker, 2, "dlq.t")]
        await until(lambda: shard_of(broker).counts.dead == 2)


async def set_configs(broker: Broker, topic: str, configs: dict[str, str]) -> None:
    async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
        (await admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, configs)])).checked()


async def test_records_parked_before_the_topic_grew_go_where_their_key_belongs(tmp_path: Path) -> None:
    async with serving_set_clock(tmp_path) as (broker, clock):
        late = [(DELAY_MS, b"%d" % HOUR_MS)]
        keys = [b"key %d" % at for at in range(20)]
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
            for key in keys:
                await producer.send("t.delayed", b"v", key=key, headers=late)
            await producer.send("t.delayed", b"without a key", partition=0, headers=late)
        await until(lambda: shard_of(broker)._state.partitions == 1)
        async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
            (await admin.create_partitions({"t": NewPartitions(total_count=5)})).checked()
        clock.ahead_ms = 2 * HOUR_MS
        found = {record.key: record.partition for record, _ in await read(broker, 21)}
        wanted: dict[bytes | None, int] = {key: partition_for_key(key, 5) for key in keys}
        assert found == {**wanted, None: 0}


async def test_queues_are_counted_by_kind_and_topic(tmp_path: Path) -> None:
    async with serving_queue(tmp_path) as broker:
        await send(broker, (b"now", {}), (b"in a day", {DELAY_MS: b"86400000"}), topic="t.delayed")
        await read(broker, 1)
        await until(lambda: shard_of(broker).parked == 1)
        samples = {
            each.name: each.value
            for family in broker.metrics.collect()
            for each in family.samples
            if each.labels == {"kind": "delayed", "topic": "t.delayed"}
        }
        assert samples == {
            "ottla_queue_parked_records": 1,
            "ottla_queue_due_records": 0,
            "ottla_queue_late_seconds": 0,
            "ottla_queue_delivered_records_total": 1,
            "ottla_queue_dead_records_total": 0,
            "ottla_queue_dropped_records_total": 0,
            "ottla_queue_asked_records_total": 0,
            "ottla_queue_contradicted_decisions_total": 0,
            "ottla_queue_unmatched_decisions_total": 0,
            "ottla_queue_failed_deliveries_total": 0,
        }


@pytest.mark.slow
async def test_the_log_start_follows_what_is_delivered_and_sequences_go_on_after_a_restart(tmp_path: Path) -> None:
    async def park_many(broker: Broker, first: int, count: int) -> None:
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}", linger_ms=20) as producer:
            sends = [producer.send("t.delayed", b"%d" % at, partition=0) for at in range(first, first + count)]
            await asyncio.gather(*sends)

    def partition(broker: Broker, topic: str) -> Partition:
        (found,) = broker.partitions.of_topic(topic)
        return found

    count = 12_000
    async with running(tmp_path) as broker, asyncio.timeout(SOON_SECONDS):
        await make_topic(broker, "t", ottla_delay_enable="true")
        await park_many(broker, 0, count)
        await send(broker, (b"late", {DELAY_MS: b"3600000"}))
        await until(lambda: partition(broker, "t.delayed").start_offset >= count)
        assert shard_of(broker).parked == 1
    async with running(tmp_path) as broker, asyncio.timeout(SOON_SECONDS):
        await until(lambda: shard_of(broker).is_loaded)
        assert shard_of(broker).parked == 1
        await park_many(broker, count, 100)
        await until(lambda: partition(broker, "t").end_offset == count + 100)
        assert shard_of(broker).parked == 1
        values = [record.value for record, _ in await read(broker, count + 100)]
        assert sorted(values) == sorted(b"%d" % at for at in range(count + 100))


async def test_a_delivery_waits_for_a_target_that_cannot_be_written(tmp_path: Path) -> None:
    async with serving_queue(tmp_path) as broker:
        await send(broker, (b"v", {DELAY_MS: b"100"}))
        with unserved(broker, "t"):
            await until(lambda: shard_of(broker).counts.failed_attempts >= 3)
            assert shard_of(broker).late_by_ms() >= 0
        assert [b"v"] == [record.value for record, _ in await read(broker, 1)]


async def test_due_records_count_while_their_partition_cannot_be_written(tmp_path: Path) -> None:
    async with serving_queue(tmp_path) as broker:
        with unserved(broker, "t"):
            await send(broker, (b"planned", {}))
            await until(lambda: shard_of(broker).counts.failed_attempts >= 1)
            await send(broker, (b"due", {}), (b"due too", {}), (b"late", {DELAY_MS: b"3600000"}))
            await until(lambda: (shard_of(broker).parked, shard_of(broker).due) == (3, 2))
        await until(lambda: (shard_of(broker).parked, shard_of(broker).due) == (1, 0))


async def test_a_clock_that_is_set_forward_makes_records_due(tmp_path: Path) -> None:
    async with serving_set_clock(tmp_path) as (broker, clock):
        await send(broker, (b"in an hour", {DELAY_MS: b"%d" % HOUR_MS}))
        await until(lambda: shard_of(broker).parked == 1)
        clock.ahead_ms = HOUR_MS
        await until(lambda: shard_of(broker).counts.delivered == 1)
        for _ in tries("the clock is set back before the record is due"):
            sent_at = time.monotonic()
            await send(broker, (b"soon", {DELAY_MS: b"1000"}))
            clock.ahead_ms = 0
            if time.monotonic() < sent_at + 1:
                break
            clock.ahead_ms = HOUR_MS
            await until(lambda: shard_of(broker).parked == 0)
        await asyncio.sleep(1.2)  # in which it would be due
        assert shard_of(broker).parked == 1, "early: the clock was set back, so it is due in an hour"


async def test_a_queue_reads_its_log_again_when_it_does_not_know_what_was_written(tmp_path: Path) -> None:
    async with running(tmp_path, log_flush_interval_messages="1") as broker, asyncio.timeout(SOON_SECONDS):
        await make_topic(broker, "t", ottla_delay_enable="true")
        await send(broker, (b"v", {DELAY_MS: b"1500"}))
        shard = shard_of(broker)
        await until(lambda: shard.parked == 1 and shard._state.producer_id is not None)
        before = shard._state
        # The fsync that would commit it has only begun.
        assert shard._write([Done(())])
        shard.partition.fail_waiting(StorageError("the disk failed for a moment"))
        await until(lambda: shard._state is not before and shard.is_loaded)
        assert shard.parked <= 1
        assert [b"v"] == [record.value for record, _ in await read(broker, 1)]
        await until(lambda: shard.parked == 0)


async def test_an_unexpected_error_does_not_end_a_delivery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving_queue(tmp_path) as broker:
        sinks, failures = shard_of(broker)._sinks, [ValueError("a bug")]
        append = sinks.append

        async def failing(sink: TopicPartition, batch: bytearray) -> Delivery:
            if failures:
                raise failures.pop()
            return await append(sink, batch)

        monkeypatch.setattr(sinks, "append", failing)
        await send(broker, (b"v", {}))
        assert [b"v"] == [record.value for record, _ in await read(broker, 1)]


async def test_what_the_topic_accepts_compressed_is_delivered(tmp_path: Path) -> None:
    async with serving_queue(tmp_path, max_message_bytes="20000") as broker:
        value = bytes(1_000_000)
        options = {"bootstrap_servers": f"127.0.0.1:{broker.port}", "compression_type": "gzip"}
        async with AsyncProducer(**options) as producer:  # type: ignore[arg-type]
            for topic in ("t", "t.delayed"):
                await (await producer.send(topic, value, partition=0))
        assert [value] * 2 == [record.value for record, _ in await read(broker, 2)]


async def test_a_record_that_would_not_fit_with_its_origin_is_refused_and_smaller_ones_are_delivered(
    tmp_path: Path,
) -> None:
    async with serving_queue(tmp_path, max_message_bytes="20000") as broker:
        accepted = []
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
            # A batch of one record has 72 bytes more than its value.
            for size in range(19_700, 19_930, 8):
                sent = await producer.send("t.delayed", bytes(size), partition=0)
                refusal = (await asyncio.gather(sent, return_exceptions=True))[0]
                if not isinstance(refusal, BaseException):
                    accepted.append(size)
                    continue
                assert isinstance(refusal, AnswerError)
                assert ErrorCode.MESSAGE_TOO_LARGE == refusal.error_code
                assert "with the headers that the broker adds" in str(refusal)
        assert 19_700 in accepted
        assert 19_924 not in accepted
        assert accepted == [len(record.value or b"") for record, _ in await read(broker, len(accepted))]
        assert 0 == broker.partitions.of_topic("dlq.t")[0].end_offset
