"""The sink's driver against a broker, without Spark: decisions of any size, fences, orphans, waking ids."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.options import AdminConfig
from ottla.client.admin.transaction_inspection import inspect_transaction
from ottla.client.admin.transaction_outcome import TransactionOutcome
from ottla.client.admin.values import NewPartitions
from ottla.client.producer.transactions.preparing_producer import PreparingProducer
from ottla.model.ids import TopicPartition
from ottla.spark.sink.broker_requests import SinkBroker
from ottla.spark.sink.decision import BatchName, CommitDecision, FirstOffset, TaskTransaction, commit_waves
from ottla.spark.sink.driver import abort_batch, commit_batch
from ottla.spark.sink.errors import BatchNotWrittenError, ReplacedDriverError, SinkTakenError
from ottla.spark.sink.names import group_id, task_id
from ottla.spark.sink.options import SinkOptions, sink_options
from ottla.spark.sink.transaction_pool import TransactionPool
from ottla.testing import InProcessBroker
from tests.waiting import wait_until

T = TypeVar("T")
SINK = "sink"


def ask(bootstrap: str, work: Callable[[SinkBroker], Awaitable[T]]) -> T:
    async def connected() -> T:
        async with AdminConfig(bootstrap_servers=bootstrap).cluster() as cluster:
            return await work(SinkBroker(cluster, SINK, timeout_ms=20_000))

    return asyncio.run(connected())


def options_for(bootstrap: str) -> SinkOptions:
    return sink_options({"kafka.bootstrap.servers": bootstrap, "topic": "any"}, is_stream=True)


def named(batch_id: int, owner: str = "query") -> BatchName:
    return BatchName(sink_id=SINK, owner=owner, batch_id=batch_id)


def write(pool: TransactionPool, bootstrap: str, topic: str, batch_id: int, task: int = 0) -> TaskTransaction:
    options = options_for(bootstrap)
    producer = pool.begin(options, SINK, batch_id)
    written = producer.send(topic, b"%d" % batch_id).get(60)
    prepared = producer.prepare()
    pool.give_back(options, SINK, batch_id, producer)
    return TaskTransaction(
        task=task,
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        epoch=prepared.epoch,
        row_count=1,
        byte_count=1,
        first_offsets=(FirstOffset(topic, written.partition, written.offset),),
    )


def states(bootstrap: str) -> dict[str, str]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        return {each.transactional_id: each.state for each in admin.list_transactions()}


def wait_state(bootstrap: str, transaction: TaskTransaction, wanted: str) -> None:
    def state() -> str:
        return states(bootstrap)[transaction.transactional_id]

    wait_until(lambda: not state().startswith("Prepare"), lambda: f"{wanted}, not {state()}")
    assert wanted == state()


def _large(task_count: int) -> CommitDecision:
    return CommitDecision(
        owner="query",
        batch_id=7,
        transactions=tuple(
            TaskTransaction(
                task=task,
                transactional_id=task_id(SINK, f"{task * 0x9E3779B97F4A7C15 % 2**64:016x}"),
                producer_id=task * 7919 % 100_003,
                epoch=task % 11,
                row_count=task * 104_729 % 50_000,
                byte_count=task * 1_299_709 % 9_999_991,
                first_offsets=(FirstOffset("topic", task % 17, task * 15_485_863 % 2**40),),
            )
            for task in range(task_count)
        ),
    )


@pytest.mark.parametrize("task_count", [1, 1_000])
def test_a_decision_of_any_size_is_kept_by_the_broker(ottla_broker: InProcessBroker, task_count: int) -> None:
    decision = _large(task_count)

    async def store(broker: SinkBroker) -> None:
        await broker.take_fence()
        assert None is await broker.read()
        await broker.store(decision)

    ask(ottla_broker.bootstrap, store)

    async def read(broker: SinkBroker) -> CommitDecision | None:
        await broker.take_fence()
        return await broker.read()

    assert decision == ask(ottla_broker.bootstrap, read)
    ottla_broker.restart()
    assert decision == ask(ottla_broker.bootstrap, read)


def test_decisions_for_a_topic_that_gets_more_partitions(ottla_broker: InProcessBroker, ottla_topic: str) -> None:
    """In place of __consumer_offsets; also a decision of several parts is found again."""
    bootstrap, decision = ottla_broker.bootstrap, _large(300)

    async def keep_and_find() -> CommitDecision | None:
        async with AdminConfig(bootstrap_servers=bootstrap).cluster() as cluster:
            first = SinkBroker(cluster, SINK, timeout_ms=20_000, decision_topic=ottla_topic)
            await first.take_fence()
            await first.store(decision)
            with Admin(bootstrap_servers=bootstrap) as admin:
                admin.create_partitions({ottla_topic: NewPartitions(4)})
                places = [list(admin.list_consumer_group_offsets(group_id(SINK, number))) for number in range(2)]
            assert [[TopicPartition(ottla_topic, 0)], [TopicPartition(ottla_topic, 0)]] == places
            assert None is await SinkBroker(cluster, SINK, timeout_ms=20_000).read()
            return await SinkBroker(cluster, SINK, timeout_ms=20_000, decision_topic=ottla_topic).read()

    assert decision == asyncio.run(keep_and_find())


def test_only_who_took_the_fence_last_may_decide(ottla_broker: InProcessBroker) -> None:
    bootstrap = ottla_broker.bootstrap

    async def late(broker: SinkBroker) -> None:
        await broker.take_fence()
        async with AdminConfig(bootstrap_servers=bootstrap).cluster() as cluster:
            other = SinkBroker(cluster, SINK, timeout_ms=20_000)
            await other.take_fence()
            with pytest.raises(ReplacedDriverError, match="another driver has taken over sink sink"):
                await broker.store(_large(1))
            assert None is await other.read()

    ask(bootstrap, late)


def test_a_batch_is_visible_and_what_nobody_decided_is_aborted(ottla_broker: InProcessBroker, ottla_topic: str) -> None:
    bootstrap, pool = ottla_broker.bootstrap, TransactionPool()
    lost = write(TransactionPool(), bootstrap, ottla_topic, 0)
    kept = write(pool, bootstrap, ottla_topic, 0)
    commit_batch(options_for(bootstrap), named(0), [kept])
    wait_state(bootstrap, kept, "CompleteCommit")
    wait_state(bootstrap, lost, "CompleteAbort")


def test_a_batch_run_again_is_not_written_again(ottla_broker: InProcessBroker, ottla_topic: str) -> None:
    bootstrap, pool = ottla_broker.bootstrap, TransactionPool()
    first = write(pool, bootstrap, ottla_topic, 0)
    commit_batch(options_for(bootstrap), named(0), [first])
    again = write(pool, bootstrap, ottla_topic, 0)
    assert first.transactional_id != again.transactional_id, "an id must not serve the same batch again"
    commit_batch(options_for(bootstrap), named(0), [again])
    wait_state(bootstrap, first, "CompleteCommit")
    wait_state(bootstrap, again, "CompleteAbort")


def test_ids_serve_one_batch_after_the_other(ottla_broker: InProcessBroker, ottla_topic: str) -> None:
    bootstrap, pool = ottla_broker.bootstrap, TransactionPool()
    used = set()
    for batch_id in range(4):
        # More tasks than producers are kept open: their ids are used again all the same.
        tasks = [write(pool, bootstrap, ottla_topic, batch_id, task) for task in range(6)]
        used |= {each.transactional_id for each in tasks}
        commit_batch(options_for(bootstrap), named(batch_id), tasks)
        for each in tasks:
            # An id whose transaction is still being ended is not used again.
            wait_state(bootstrap, each, "CompleteCommit")
    assert 6 == len(used)


def test_an_id_whose_transaction_is_open_is_left_alone(ottla_broker: InProcessBroker, ottla_topic: str) -> None:
    bootstrap, pool = ottla_broker.bootstrap, TransactionPool()
    first = write(pool, bootstrap, ottla_topic, 0)
    second = write(pool, bootstrap, ottla_topic, 1)
    assert first.transactional_id != second.transactional_id
    assert "Ongoing" == states(bootstrap)[first.transactional_id]


def test_a_transaction_that_was_aborted_behind_the_decision(ottla_broker: InProcessBroker, ottla_topic: str) -> None:
    bootstrap = ottla_broker.bootstrap
    slow = write(TransactionPool(), bootstrap, ottla_topic, 0)
    with PreparingProducer(bootstrap_servers=bootstrap, transactional_id=slow.transactional_id) as other:
        other.init_transactions()
    with pytest.raises(BatchNotWrittenError, match="1 rows of task 0 before it was committed; committed: nothing"):
        commit_batch(options_for(bootstrap), named(0), [slow])
    again = write(TransactionPool(), bootstrap, ottla_topic, 0)
    commit_batch(options_for(bootstrap), named(0), [again])
    wait_state(bootstrap, again, "CompleteCommit")


def test_abort_ends_what_is_not_decided_and_nothing_else(ottla_broker: InProcessBroker, ottla_topic: str) -> None:
    bootstrap, pool = ottla_broker.bootstrap, TransactionPool()
    decided = write(pool, bootstrap, ottla_topic, 0)

    async def decide(broker: SinkBroker) -> None:
        await broker.take_fence()
        await broker.store(CommitDecision(owner="query", batch_id=0, transactions=(decided,)))

    ask(bootstrap, decide)
    other = write(pool, bootstrap, ottla_topic, 0)
    abort_batch(options_for(bootstrap), named(0), [decided, other], finish_decided=False)
    wait_state(bootstrap, other, "CompleteAbort")
    assert "Ongoing" == states(bootstrap)[decided.transactional_id]
    abort_batch(options_for(bootstrap), named(0), [decided, other], finish_decided=True)
    wait_state(bootstrap, decided, "CompleteCommit")


def test_abort_does_not_raise_when_no_broker_is_there(
    ottla_broker: InProcessBroker, ottla_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.spark.sink import driver as sink_coordinator

    transaction = write(TransactionPool(), ottla_broker.bootstrap, ottla_topic, 0)
    ottla_broker.kill()
    with monkeypatch.context() as patched:
        patched.setattr(sink_coordinator, "_ABORT_TIMEOUT_MS", 200)
        abort_batch(options_for(ottla_broker.bootstrap), named(0), [transaction], finish_decided=False)
    ottla_broker.start()


def test_two_queries_cannot_share_a_sink(ottla_broker: InProcessBroker, ottla_topic: str) -> None:
    bootstrap, pool = ottla_broker.bootstrap, TransactionPool()
    commit_batch(options_for(bootstrap), named(0), [write(pool, bootstrap, ottla_topic, 0)])
    with pytest.raises(SinkTakenError, match="belongs to the query query, but the query other tried"):
        commit_batch(options_for(bootstrap), named(1, "other"), [write(pool, bootstrap, ottla_topic, 1)])


def test_readers_see_a_partitions_part_of_a_batch_all_at_once(ottla_broker: InProcessBroker, ottla_topic: str) -> None:
    bootstrap, pool = ottla_broker.bootstrap, TransactionPool()
    tasks = tuple(write(pool, bootstrap, ottla_topic, 0, task) for task in range(3))

    def visible() -> list[TransactionOutcome]:
        async def look() -> list[TransactionOutcome]:
            async with AdminConfig(bootstrap_servers=bootstrap).cluster() as cluster:
                return [
                    await inspect_transaction(
                        cluster, TopicPartition(ottla_topic, 0), each.first_offsets[0].offset, each.producer_id
                    )
                    for each in tasks
                ]

        return asyncio.run(look())

    async def commit(broker: SinkBroker) -> None:
        await broker.take_fence()
        others, first = commit_waves(tasks)
        assert [] == await broker.commit(others)
        for each in others:
            await asyncio.to_thread(wait_state, bootstrap, each, "CompleteCommit")
        assert [TransactionOutcome.OPEN] * 3 == await asyncio.to_thread(visible)
        assert [] == await broker.commit(first)

    ask(bootstrap, commit)
    wait_state(bootstrap, tasks[0], "CompleteCommit")
    assert [TransactionOutcome.COMMITTED] * 3 == visible()
