"""The driver's side of a write: commits a batch that all tasks have written, or aborts what a failed one left.

The one loop over `sink_decision_state.py`'s effects. Blocking: the process in which Spark calls it has nothing else
to do.
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
from ottla.spark.sink.decision import BatchName, Decision, TaskTransaction
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
"""A query that failed should not take long to say so."""
_STRAGGLER_PAUSES: Final = (0, 0.3, 1)
"""Spark does not wait for a failed job's other tasks to end, so they may begin transactions yet."""
_log = logging.getLogger(__name__)


def commit_batch(options: SinkOptions, name: BatchName, offered: Sequence[TaskTransaction]) -> None:
    """Returns once the batch is committed, by this run or by one before. Else raises what is in `sink_errors.py`."""
    _run(options, name, options.producer.delivery_timeout_ms, lambda broker: _commit(broker, name, offered))


def abort_batch(
    options: SinkOptions, name: BatchName, offered: Sequence[TaskTransaction], *, finish_decided: bool
) -> None:
    """Aborts what a failed run wrote, unless it was decided that it counts. Never raises: then the timeout does it.

    What was decided is left to the batch's next run; if there will be none (`finish_decided`), it is committed.
    """
    try:
        _run(options, name, _ABORT_TIMEOUT_MS, lambda broker: _abort(broker, offered, finish_decided))
    except OttlaError as error:
        _log.warning("what batch %s wrote is left to the transactions' timeout: %s", name, error)


def _run(
    options: SinkOptions, name: BatchName, timeout_ms: int, work: Callable[[SinkBroker], Coroutine[Any, Any, T]]
) -> T:
    def with_cluster(cluster: Cluster) -> Coroutine[Any, Any, T]:
        return work(SinkBroker(cluster, name.sink_id, timeout_ms=timeout_ms))

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
    """Its parts do not depend on each other: together they take no longer than one."""
    parts = [broker.abort(finish.undecided), broker.abort_open(finish.keep)]
    if finish.done is not None:
        parts.append(broker.store(finish.done))
    await asyncio.gather(*parts)


async def _abort(broker: SinkBroker, offered: Sequence[TaskTransaction], finish_decided: bool) -> None:
    await broker.take_fence()
    found: Decision | None = await broker.read()
    undecided = undecided_of(offered, found)
    decided = found.transactions if found is not None else ()
    await broker.abort(undecided)
    for pause in _STRAGGLER_PAUSES:
        await asyncio.sleep(pause)
        await broker.abort_open(frozenset(each.name for each in decided))
    if finish_decided and decided:
        await broker.commit(decided)
