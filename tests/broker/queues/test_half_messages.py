"""Half messages on one broker, over real sockets and files: prepared, decided, asked about, given up."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla import AsyncAdmin, AsyncConsumer, AsyncProducer, ConfigResource, ConsumerRecord, ResourceType
from ottla.broker.broker import Broker
from ottla.client.errors import AnswerError
from ottla.model.errors import InvalidRecordError, OttlaError
from ottla.model.queue_names import HALF_CHECK_AFTER_MS, HALF_CHECKS, HALF_ID, HALF_STATE, ORIGIN
from ottla.queues import queue_shard
from ottla.queues.queue_shard import QueueShard
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder
from tests.broker import inside
from tests.broker.inside import append
from tests.broker.running_broker import make_topic, running
from tests.waiting import PATIENCE_SECONDS, until

SOON_SECONDS = PATIENCE_SECONDS

Headers = list[tuple[str, bytes | None]]


@asynccontextmanager
async def serving_halves(
    folder: Path, partitions: int = 1, **configs: str
) -> AsyncIterator[tuple[Broker, AsyncProducer]]:
    """A broker with the topic `t`, which has half messages, and a producer."""

    async with running(folder) as broker, asyncio.timeout(SOON_SECONDS):
        await make_topic(broker, "t", partitions, ottla_half_enable="true", **configs)
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
            yield broker, producer


def half(id: str, state: str, **others: str) -> Headers:
    more = [(f"ottla.{name.replace('__', '.').replace('_', '-')}", value.encode()) for name, value in others.items()]
    return [(HALF_ID, id.encode()), (HALF_STATE, state.encode()), *more]


async def send(
    producer: AsyncProducer, id: str, state: str, value: str = "", *, partition: int = 0, **others: str
) -> None:
    headers = [*half(id, state, **others), ("colour", b"red")]
    await producer.send_and_wait("t.half", value.encode(), b"k", headers, partition)


async def read(broker: Broker, topic: str, count: int, start: int = 0) -> list[ConsumerRecord]:
    """The first records of a topic."""
    found: list[ConsumerRecord] = []
    async with AsyncConsumer(
        topic, bootstrap_servers=f"127.0.0.1:{broker.port}", group_id=None, auto_offset_reset="earliest"
    ) as consumer:
        async for record in consumer:
            found.append(record)
            if len(found) == start + count:
                break
    return found[start:]


def shard_of(broker: Broker, partition: int = 0) -> QueueShard:
    return inside.queue_shard(broker, "t.half", partition)


def end_offset(broker: Broker, topic: str) -> int:
    return sum(partition.end_offset for partition in broker.partitions.of_topic(topic))


async def test_a_half_message_is_delivered_when_it_is_committed(tmp_path: Path) -> None:
    async with serving_halves(tmp_path) as (broker, producer):
        await send(producer, "a", "prepare", "1")
        await send(producer, "b", "prepare", "2")
        await send(producer, "c", "prepare", "3")
        await until(lambda: shard_of(broker).parked == 3)
        assert 0 == end_offset(broker, "t")
        await send(producer, "b", "commit", "ignored")
        (found,) = await read(broker, "t", 1)
        assert (b"k", b"2") == (found.key, found.value)
        headers = dict(found.headers)
        assert (headers.pop(ORIGIN) or b"").startswith(b"t.half/0/")
        assert {HALF_ID: b"b", "colour": b"red"} == headers
        await send(producer, "a", "commit")
        assert [b"2", b"1"] == [record.value for record in await read(broker, "t", 2)]
        assert 1 == shard_of(broker).parked


async def test_a_rolled_back_message_is_never_delivered(tmp_path: Path) -> None:
    async with serving_halves(tmp_path) as (broker, producer):
        await send(producer, "a", "prepare", "1")
        await send(producer, "b", "prepare", "2")
        await send(producer, "a", "rollback")
        await send(producer, "b", "commit")
        assert [b"2"] == [record.value for record in await read(broker, "t", 1)]
        await until(lambda: shard_of(broker).parked == 0)
        assert 1 == end_offset(broker, "t")
        # The decision stays: a later commit contradicts it, and the same decision again changes nothing.
        await send(producer, "a", "rollback")
        await send(producer, "a", "commit")
        await send(producer, "b", "commit")
        await until(lambda: shard_of(broker).counts.contradicted == 1)
        assert 1 == end_offset(broker, "t")


async def test_a_decision_that_no_partition_knows_is_logged_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_halves(tmp_path, partitions=2) as (broker, producer):
        await send(producer, "a", "prepare", "1", partition=1)
        # What a client says about the way that the decision has gone does not count.
        await send(producer, "a", "commit", half__hops="99")
        assert [b"1"] == [record.value for record in await read(broker, "t", 1)]
        for _ in range(3):
            await send(producer, "typo", "commit")
        await until(lambda: sum(shard_of(broker, each).counts.unmatched for each in (0, 1)) == 3)
    told = [each.message for each in caplog.records if "no partition knows a half message" in each.message]
    assert 1 <= len(told) < 3
    assert "'typo'" in told[0]


async def test_the_broker_asks_and_delivers_after_the_answer(tmp_path: Path) -> None:
    async with serving_halves(tmp_path, ottla_half_check_interval_ms="100", ottla_half_check_max="100000") as (
        broker,
        producer,
    ):
        before = time.time()
        await send(producer, "a", "prepare", "1", half__check_after_ms="200")
        first, second = await read(broker, "t.half-checks", 2)
        assert time.time() - before >= 0.2
        for question, count in ((first, b"1"), (second, b"2")):
            headers = dict(question.headers)
            assert (b"k", b"1", 0) == (question.key, question.value, question.partition)
            assert (b"a", count, b"red") == (headers[HALF_ID], headers[HALF_CHECKS], headers["colour"])
        assert 0 == end_offset(broker, "t")
        await send(producer, "a", "commit")
        assert [b"1"] == [record.value for record in await read(broker, "t", 1)]


async def test_a_message_without_a_decision_becomes_a_dead_letter(tmp_path: Path) -> None:
    async with serving_halves(
        tmp_path, ottla_half_check_after_ms="50", ottla_half_check_interval_ms="50", ottla_half_check_max="2"
    ) as (broker, producer):
        await send(producer, "a", "prepare", "1")
        (dead,) = await read(broker, "dlq.t", 1)
        headers = dict(dead.headers)
        assert (b"k", b"1", b"red", b"a") == (dead.key, dead.value, headers["colour"], headers[HALF_ID])
        assert b"no decision after 2 checks" in (headers["__dlq.errors.message"] or b"")
        assert 2 == end_offset(broker, "t.half-checks")
        await until(lambda: shard_of(broker).parked == 0)
        # Too late: it is not delivered twice, and the id is free again.
        await send(producer, "a", "commit")
        await until(lambda: shard_of(broker).counts.contradicted == 1)
        assert 0 == end_offset(broker, "t")
        await send(producer, "a", "prepare", "2", half__check_after_ms="3600000")
        await send(producer, "a", "commit")
        assert [b"2"] == [record.value for record in await read(broker, "t", 1)]


async def test_decisions_find_their_message_in_another_partition(tmp_path: Path) -> None:
    async with serving_halves(tmp_path, partitions=4) as (broker, producer):
        for partition in range(4):
            await send(producer, f"c{partition}", "prepare", f"c{partition}", partition=partition)
            await send(producer, f"r{partition}", "prepare", f"r{partition}", partition=partition)
        for partition in range(4):
            await send(producer, f"r{partition}", "rollback", partition=(partition + 1) % 4)
            await send(producer, f"c{partition}", "commit", partition=(partition + 3) % 4)
        found = await read(broker, "t", 4)
        assert {(b"c%d" % each, each) for each in range(4)} == {(record.value, record.partition) for record in found}
        await send(producer, "unknown", "commit")
        await until(lambda: sum(shard_of(broker, each).parked for each in range(4)) == 0)
        assert 4 == end_offset(broker, "t")
        assert 0 == end_offset(broker, "dlq.t")


async def test_headers_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    async with serving_halves(tmp_path) as (broker, producer):
        after = HALF_CHECK_AFTER_MS
        bad: list[tuple[str, Headers]] = [
            (HALF_ID, []),
            (HALF_ID, [(HALF_STATE, b"prepare")]),
            (HALF_ID, [(HALF_ID, b""), (HALF_STATE, b"prepare")]),
            (HALF_ID, [(HALF_ID, b"x" * 256), (HALF_STATE, b"prepare")]),
            (HALF_ID, [(HALF_ID, b"\xff"), (HALF_STATE, b"prepare")]),
            (HALF_STATE, [(HALF_ID, b"a")]),
            (HALF_STATE, [(HALF_ID, b"a"), (HALF_STATE, b"maybe")]),
            (after, [*half("a", "prepare"), (after, b"soon")]),
            (after, [*half("a", "prepare"), (after, b"-1")]),
            (after, [*half("a", "prepare"), (after, b"99999999999999")]),
            (after, [*half("a", "prepare"), (after, b"9" * 30)]),
            (after, [*half("a", "commit"), (after, b"5")]),
        ]
        for name, headers in bad:
            with pytest.raises(AnswerError, match=rf"header {name}.*INVALID_RECORD"):
                await producer.send_and_wait("t.half", b"x", headers=headers, partition=0)
        assert 0 == end_offset(broker, "t.half")


async def test_an_id_that_is_open_is_refused(tmp_path: Path) -> None:
    async with serving_halves(tmp_path) as (broker, producer):
        await send(producer, "a", "prepare", "1")
        await until(lambda: shard_of(broker).parked == 1)
        with pytest.raises(AnswerError, match=r"header ottla\.half\.id: 'a' .*INVALID_RECORD"):
            await send(producer, "a", "prepare", "2")
        await send(producer, "a", "commit")
        assert [b"1"] == [record.value for record in await read(broker, "t", 1)]
        await send(producer, "a", "prepare", "3")
        await send(producer, "a", "commit")
        assert [b"1", b"3"] == [record.value for record in await read(broker, "t", 2)]


async def test_too_many_open_messages_are_refused_until_some_are_decided(tmp_path: Path) -> None:
    async with serving_halves(tmp_path, ottla_half_open_max="2") as (broker, producer):
        await send(producer, "a", "prepare", "1")
        await send(producer, "b", "prepare", "2")
        await until(lambda: shard_of(broker).parked == 2)
        server = f"127.0.0.1:{broker.port}"
        async with AsyncProducer(
            bootstrap_servers=server, request_timeout_ms=1000, delivery_timeout_ms=3000
        ) as impatient:
            with pytest.raises(OttlaError, match=r"2 half messages wait.*ottla\.half\.open\.max=2"):
                await send(impatient, "c", "prepare", "3")
        # The error is retriable: a producer that waits longer succeeds when there is room.
        waiting = asyncio.create_task(send(producer, "c", "prepare", "3"))
        async with AsyncProducer(bootstrap_servers=server) as deciding:
            await send(deciding, "a", "commit")
            await waiting
            await send(deciding, "c", "commit")
        assert [b"1", b"3"] == [record.value for record in await read(broker, "t", 2)]
        assert 1 == shard_of(broker).parked


async def test_a_batch_that_is_sent_again_is_not_a_repeated_id(tmp_path: Path) -> None:
    def batch(sequence: int) -> Batch:
        builder = BatchBuilder(producer_id=5, producer_epoch=0, base_sequence=sequence)
        builder.append(1, b"k", b"v", half("a", "prepare"))
        return Batch(bytearray(builder.build()))

    # Not even if there is no room for another one.
    async with serving_halves(tmp_path, ottla_half_open_max="1") as (broker, _producer):
        (partition,) = broker.partitions.of_topic("t.half")
        gate = partition.gate
        assert gate is not None
        append(partition, gate(batch(0)))
        shard_of(broker).wake()
        await until(lambda: shard_of(broker).parked == 1)
        # The log will find that it has this batch.
        assert gate(batch(0)).count == 1
        with pytest.raises(InvalidRecordError, match=r"ottla\.half\.id: 'a'"):
            gate(batch(1))


async def test_an_aborted_message_never_existed(tmp_path: Path) -> None:
    async with serving_halves(tmp_path) as (broker, producer):
        server = f"127.0.0.1:{broker.port}"
        async with AsyncProducer(bootstrap_servers=server, transactional_id="x") as transactional:
            await transactional.init_transactions()
            transactional.begin_transaction()
            await send(transactional, "a", "prepare", "1", half__check_after_ms="0")
            await transactional.abort_transaction()
            transactional.begin_transaction()
            await send(transactional, "b", "prepare", "2")
            await send(transactional, "b", "commit")
            await transactional.commit_transaction()
        assert [b"2"] == [record.value for record in await read(broker, "t", 1)]
        await send(producer, "a", "prepare", "3")
        await send(producer, "a", "commit")
        assert [b"2", b"3"] == [record.value for record in await read(broker, "t", 2)]
        assert 0 == end_offset(broker, "t.half-checks")


async def test_open_messages_and_their_checks_survive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, asyncio.timeout(SOON_SECONDS):
        await make_topic(
            broker, "t", ottla_half_enable="true", ottla_half_check_interval_ms="1000", ottla_half_check_max="2"
        )
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
            await send(producer, "kept", "prepare", "1")
            await send(producer, "asked", "prepare", "2", half__check_after_ms="0")
            await send(producer, "gone", "prepare", "3")
            await send(producer, "gone", "rollback")
            await send(producer, "done", "prepare", "4")
            await send(producer, "done", "commit")
        await read(broker, "t", 1)
        await read(broker, "t.half-checks", 1)
    async with running(tmp_path) as broker, asyncio.timeout(SOON_SECONDS):
        (question,) = await read(broker, "t.half-checks", 1, start=1)
        assert b"2" == dict(question.headers)[HALF_CHECKS]
        (dead,) = await read(broker, "dlq.t", 1)
        assert b"2" == dead.value
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
            await send(producer, "kept", "commit")
        assert [b"4", b"1"] == [record.value for record in await read(broker, "t", 2)]
        await until(lambda: shard_of(broker).parked == 0)
        assert 2 == end_offset(broker, "t")


async def test_what_is_decided_is_cleaned_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_shard, "_SNAPSHOT_OFFSETS", 20)
    async with serving_halves(tmp_path) as (broker, producer):
        (parked,) = broker.partitions.of_topic("t.half")
        # Where a snapshot is taken depends on how records arrive, so as many are sent as it takes.
        for number in range(1000):
            await send(producer, f"{number}", "prepare", f"{number}")
            await send(producer, f"{number}", "rollback")
            if parked.start_offset >= 40:
                break
        assert parked.start_offset >= 40
        assert 0 == end_offset(broker, "t")


async def test_decisions_are_accepted_after_half_messages_were_disabled(tmp_path: Path) -> None:
    async with serving_halves(tmp_path) as (broker, producer):
        await send(producer, "a", "prepare", "1")
        await until(lambda: shard_of(broker).parked == 1)
        async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
            await admin.alter_configs([ConfigResource(ResourceType.TOPIC, "t", {"ottla.half.enable": "false"})])
        with pytest.raises(AnswerError, match=r"disabled.*INVALID_RECORD"):
            await send(producer, "b", "prepare", "2")
        await send(producer, "a", "commit")
        assert [b"1"] == [record.value for record in await read(broker, "t", 1)]
