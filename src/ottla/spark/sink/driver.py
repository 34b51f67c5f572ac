"""The driver's side of a write: commits a batch that all tasks have written, or aborts a failed one.

Runs the effects of `decision_state.py` in a loop. Blocking: the process in which Spark calls it has no other work.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from ottla.client.admin.options import AdminConfig
from ottla.client.network.cluster import Cluster
from ottla.model.errors import OttlaError
from ottla.spark.driver_connections import CONNECTIONS
from ottla.spark.sink.broker_requests import SinkBroker
from ottla.spark.sink.decision import BatchName, CommitDecision, TaskTransaction
from ottla.spark.sink.decision_state import (
    CommitTransactions,
    FinishBatch,
    InspectTransactions,
    ReadDecision,
    SinkCommitState,
    StoreDecision,
    TakeFence,
    undecided_of,
)
from ottla.spark.sink.options import SinkOptions

T = TypeVar("T")

_ABORT_TIMEOUT_MS: Final = 15_000
"""Short, so that a failed query reports its error soon."""
_STRAGGLER_PAUSES: Final = (0, 0.3, 1)
"""Spark does not wait for the other tasks of a failed job, so they may still begin transactions."""
_log = logging.getLogger(__name__)


def commit_batch(options: SinkOptions, name: BatchName, offered: Sequence[TaskTransaction]) -> None:
    """Returns once the batch is committed, by this run or an earlier one. Raises the errors of `errors.py`."""
    _run(options, name, options.producer.delivery_timeout_ms, lambda broker: _commit(broker, name, offered))


def abort_batch(
    options: SinkOptions, name: BatchName, offered: Sequence[TaskTransaction], *, finish_decided: bool
) -> None:
    """Aborts the transactions of a failed run, unless the decision to commit them is stored. Never raises.

    Transactions that cannot be aborted now are left to their timeout. Decided transactions are left to the next run
    of the batch; if there will be none (`finish_decided`), they are committed.
    """
    try:
        _run(options, name, _ABORT_TIMEOUT_MS, lambda broker: _abort(broker, offered, finish_decided))
    except OttlaError as error:
        _log.warning(
            "cannot abort the transactions of batch %s; brokers abort them after their timeout: %s", name, error
        )


def _run(
    options: SinkOptions, name: BatchName, timeout_ms: int, work: Callable[[SinkBroker], Coroutine[Any, Any, T]]
) -> T:
    def with_cluster(cluster: Cluster) -> Coroutine[Any, Any, T]:
        return work(SinkBroker(cluster, name.sink_id, timeout_ms=timeout_ms, decision_topic=options.decision_topic))

    return CONNECTIONS.run(AdminConfig(**options.client), with_cluster)


async def _commit(broker: SinkBroker, name: BatchName, offered: Sequence[TaskTransaction]) -> None:
    state = SinkCommitState(sink_id=name.sink_id, owner=name.owner, batch_id=name.batch_id, offered=offered)
    effect = state.start()
    while True:
        match effect:
            case TakeFence():
                await broker.take_fence()
                effect = state.on_fence()
            case ReadDecision():
                effect = state.on_read(await broker.read())
            case StoreDecision(decision=decision):
                await broker.store(decision)
                effect = state.on_stored()
            case CommitTransactions(waves=waves):
                effect = state.on_ended([each for wave in waves for each in await broker.commit(wave)])
            case InspectTransactions(transactions=doubtful):
                effect = state.on_inspected(await broker.inspect(doubtful))
            case FinishBatch() as finish:
                await _finish(broker, finish)
                return


async def _finish(broker: SinkBroker, finish: FinishBatch) -> None:
    """Stores that the batch is done and aborts other transactions, concurrently."""
    parts = [broker.abort(finish.undecided), broker.abort_open(finish.keep)]
    if finish.done is not None:
        parts.append(broker.store(finish.done))
    await asyncio.gather(*parts)


async def _abort(broker: SinkBroker, offered: Sequence[TaskTransaction], finish_decided: bool) -> None:
    await broker.take_fence()
    found: CommitDecision | None = await broker.read()
    undecided = undecided_of(offered, found)
    decided = found.transactions if found is not None else ()
    await broker.abort(undecided)
    for pause in _STRAGGLER_PAUSES:
        await asyncio.sleep(pause)
        await broker.abort_open(frozenset(each.name for each in decided))
    if finish_decided and decided:
        await broker.commit(decided)
