"""The requests of the driver of a sink: the fence, decisions as committed offsets of a group, ending transactions.

Each method retries until the deadline of the sink. `decision_state.py` decides what to do.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from ottla.client.admin.transaction_inspection import inspect_transaction
from ottla.client.admin.transaction_outcome import TransactionOutcome
from ottla.client.admin.transaction_requests import describe_transaction, list_transactions
from ottla.client.errors import AnswerError, DeadlineError, UnsupportedByBrokerError
from ottla.client.group.offset_requests import ask_committed
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import ClusterView
from ottla.client.network.coordinators import CoordinatorType, find_coordinator
from ottla.client.producer.batching.producer_batch import Identity
from ottla.client.producer.transactions.transaction_requests import (
    add_offsets,
    commit_offsets,
    end_transaction,
    init_producer_id,
    transaction_version,
)
from ottla.client.producer.transactions.transaction_state import FENCING_CODES
from ottla.client.values import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError, OttlaError, RetriableError
from ottla.model.ids import TopicPartition
from ottla.spark.sink.decision import CommitDecision, TaskTransaction
from ottla.spark.sink.decision_state import Names
from ottla.spark.sink.decision_text import part_count, read_decision, write_decision
from ottla.spark.sink.errors import DecisionDeniedError, ReplacedDriverError
from ottla.spark.sink.names import fence_id, group_id, task_ids_pattern

K = TypeVar("K")
T = TypeVar("T")

PLACE: Final = "__consumer_offsets"
"""The topic for whose partitions a sink commits offsets, unless another is named: it exists wherever groups exist, and
is not deleted."""
_FENCE_TIMEOUT_MS: Final = 60_000
"""Long enough for a broker to restart while a decision is stored."""
_FENCE_TIMEOUT_LEAST_MS: Final = 10_000
"""For brokers that allow less."""
_AT_ONCE_MAX: Final = 64
_PAUSE_FIRST_MS: Final = 4
_PAUSE_MOST_MS: Final = 1_000
_ONGOING: Final = "Ongoing"
_log = logging.getLogger(__name__)


class SinkBroker:
    """Requests of one sink, with a deadline. Made for one commit or abort.

    `decision_topic` is for users that may not read the offsets of all groups (`PLACE`).
    """

    def __init__(self, cluster: Cluster, sink_id: str, *, timeout_ms: int, decision_topic: str | None = None) -> None:
        self._cluster = cluster
        self._sink_id = sink_id
        self._decision_topic = decision_topic
        self._timeout_ms = timeout_ms
        self._deadline = cluster.clock.monotonic() + timeout_ms / 1000
        self._fence: Identity | None = None
        self._version = 1

    # Deciding

    async def take_fence(self) -> None:
        """Fences earlier drivers of the sink. A decision that they were storing is now stored or never will be."""
        name = fence_id(self._sink_id)
        try:
            self._fence = await self._retry(lambda: init_producer_id(self._cluster, name, _FENCE_TIMEOUT_MS))
        except AnswerError as error:
            if error.error_code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise
            self._fence = await self._retry(lambda: init_producer_id(self._cluster, name, _FENCE_TIMEOUT_LEAST_MS))
        self._version = await self._retry(lambda: transaction_version(self._cluster, name))

    async def read(self) -> CommitDecision | None:
        """The last decision of the sink; None if there is none. Raises `DecisionTextError` if it is damaged."""
        try:
            first = (await self._parts([0], 1)).get(0)
        except AnswerError as error:
            if error.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise DecisionDeniedError(self._denied()) from error
            raise
        if first is None:
            return None
        parts = {0: first}
        count = part_count(first)
        if count > 1:
            parts |= await self._parts(range(1, count), await self._place_count())
        return read_decision([parts.get(number, "") for number in range(count)], self._sink_id)

    async def store(self, decision: CommitDecision) -> None:
        """Replaces the decision in one transaction. Raises `ReplacedDriverError` if another driver has the fence."""
        name, fence, version = fence_id(self._sink_id), self._taken(), self._version
        parts = write_decision(decision)
        place_count = 1 if len(parts) == 1 else await self._place_count()
        by_group: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        for number, text in enumerate(parts):
            group, place = self._place(number, place_count)
            by_group.setdefault(group, {})[place] = OffsetAndMetadata(decision.batch_id, text)
        try:
            for group, offsets in by_group.items():
                if version == 1:
                    await self._retry(partial(add_offsets, self._cluster, name, fence, group))
                whose = ConsumerGroupMetadata(group_id=group)
                await self._retry(partial(commit_offsets, self._cluster, name, fence, offsets, whose, version))
            self._fence = await self._retry(
                lambda: end_transaction(self._cluster, name, fence, committed=True, version=version)
            )
        except AnswerError as error:
            if error.error_code in FENCING_CODES:
                raise ReplacedDriverError(
                    f"another driver has taken over sink {self._sink_id}; this driver stops. The other driver knows"
                    f" what was committed of batch {decision.batch_id}: {error}"
                ) from error
            raise

    # Transactions of tasks

    async def commit(self, transactions: Sequence[TaskTransaction]) -> list[TaskTransaction]:
        """Commits transactions; returns those that the coordinator refuses. Committing twice is not refused."""
        answers = await self._each(transactions, lambda each: self._end(each, committed=True))
        return [each for each, is_ended in zip(transactions, answers, strict=True) if not is_ended]

    async def inspect(self, transactions: Sequence[TaskTransaction]) -> dict[TaskTransaction, TransactionOutcome]:
        """The outcomes of transactions; waits for those that have not ended."""
        return dict(zip(transactions, await self._each(transactions, self._outcome), strict=True))

    async def abort(self, transactions: Sequence[TaskTransaction]) -> None:
        """Aborts these transactions, if they are open."""
        await self._each(transactions, lambda each: self._end(each, committed=False))

    async def abort_open(self, keep: Names) -> None:
        """Aborts all open transactions of tasks of the sink except `keep`: those of failed and superseded attempts.

        Never raises for what could not be aborted: the transactions' timeout does it then.
        """
        kept = {transactional_id for transactional_id, _, _ in keep}
        try:
            found = [name for name in await self._open_ids() if name not in kept]
            await self._each(found, self._fence_off)
        except OttlaError as error:
            _log.warning(
                "cannot abort the open transactions of sink %s; brokers abort them after their timeout: %s",
                self._sink_id,
                error,
            )

    async def _end(self, transaction: TaskTransaction, *, committed: bool) -> bool:
        name, version = transaction.transactional_id, self._version
        identity = Identity(transaction.producer_id, transaction.epoch)
        try:
            await self._retry(
                lambda: end_transaction(self._cluster, name, identity, committed=committed, version=version)
            )
        except AnswerError as error:
            if isinstance(error, RetriableError):
                raise
            _log.info("%s", error)
            return False
        return True

    async def _outcome(self, transaction: TaskTransaction) -> TransactionOutcome:
        topic, partition, offset = transaction.first_offsets[0]
        pause_ms = _PAUSE_FIRST_MS
        while True:
            outcome = await self._retry(
                lambda: inspect_transaction(
                    self._cluster, TopicPartition(topic, partition), offset, transaction.producer_id
                )
            )
            if outcome is not TransactionOutcome.OPEN or self._cluster.clock.monotonic() > self._deadline:
                return outcome
            pause_ms = min(pause_ms * 2, _PAUSE_MOST_MS)
            await self._cluster.clock.sleep(pause_ms / 1000)

    async def _open_ids(self) -> list[str]:
        pattern = task_ids_pattern(self._sink_id)
        try:
            found = await list_transactions(self._cluster, states=[_ONGOING], pattern=pattern)
        except UnsupportedByBrokerError:
            found = await list_transactions(self._cluster, states=[_ONGOING])
        return [each.transactional_id for each in found if re.fullmatch(pattern, each.transactional_id)]

    async def _fence_off(self, transactional_id: str) -> None:
        """Fences a transactional id, if its producer is still the one that was seen; this aborts its transaction."""
        try:
            seen = await describe_transaction(self._cluster, transactional_id)
            if seen.state == _ONGOING:
                identity = Identity(seen.producer_id, seen.producer_epoch)
                await init_producer_id(self._cluster, transactional_id, seen.timeout_ms, identity)
        except OttlaError as error:
            # Also raised while the transaction is being aborted. If it is not, its timeout aborts it.
            _log.debug("%s", error)

    # Where decisions are

    def _denied(self) -> str:
        if self._decision_topic is not None:
            return f"sink {self._sink_id} stores its decisions for topic {self._decision_topic}: allow READ on it"
        return (
            f"sink {self._sink_id} stores its decisions for topic {PLACE}: allow READ on it, or set decisionTopic to a"
            " topic that this user may read, such as the output topic"
        )

    def _place(self, number: int, place_count: int) -> tuple[str, TopicPartition]:
        """The group and the partition whose committed offset stores this part of a decision."""
        topic = PLACE if self._decision_topic is None else self._decision_topic
        return group_id(self._sink_id, number // place_count), TopicPartition(topic, number % place_count)

    async def _place_count(self) -> int:
        if self._decision_topic is not None:
            # Partitions can be added to it, and parts must be found again.
            return 1
        # Brokers create the topic when the first group is looked up.
        whose = group_id(self._sink_id, 0)
        await self._retry(lambda: find_coordinator(self._cluster, CoordinatorType.GROUP, whose))
        topic = await self._retry(lambda: self._cluster.topic(PLACE))
        return len(topic.partitions)

    async def _parts(self, numbers: Iterable[int], place_count: int) -> dict[int, str]:
        by_group: dict[str, dict[TopicPartition, int]] = {}
        for number in numbers:
            group, place = self._place(number, place_count)
            by_group.setdefault(group, {})[place] = number
        found: dict[int, str] = {}
        for group, places in by_group.items():
            offsets = await self._retry(partial(self._ask_offsets, group, list(places)))
            found |= {places[place]: kept.metadata for place, kept in offsets.items() if kept is not None}
        return found

    async def _ask_offsets(
        self, group: str, places: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        coordinator = await find_coordinator(self._cluster, CoordinatorType.GROUP, group)
        connection = await self._cluster.broker_connection(coordinator)
        timeout_ms = self._cluster.request_timeout_ms
        try:
            return await ask_committed(connection, group, None, places, timeout_ms, stable_only=True)
        except AnswerError as error:
            if error.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                return {}
            raise

    # Retries

    def _taken(self) -> Identity:
        if self._fence is None:
            raise MisuseError(f"take the fence of sink {self._sink_id} first")
        return self._fence

    async def _each(self, wishes: Sequence[K], carry_out: Callable[[K], Awaitable[T]]) -> list[T]:
        at_once = asyncio.Semaphore(_AT_ONCE_MAX)

        async def one(wish: K) -> T:
            async with at_once:
                return await carry_out(wish)

        return list(await asyncio.gather(*(one(wish) for wish in wishes)))

    async def _retry(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retries until there is an answer or the deadline has passed."""
        clock, cluster = self._cluster.clock, self._cluster
        pause_ms = _PAUSE_FIRST_MS
        while True:
            try:
                return await ask()
            except RetriableError as error:
                is_ending = isinstance(error, AnswerError) and error.error_code is ErrorCode.CONCURRENT_TRANSACTIONS
                if clock.monotonic() + pause_ms / 1000 > self._deadline:
                    raise DeadlineError(f"{error} (tried for {self._timeout_ms} ms)") from error
                if not is_ending:
                    cluster.view = ClusterView(cluster_id=cluster.view.cluster_id, brokers=cluster.view.brokers)
                await clock.sleep(pause_ms / 1000)
                pause_ms = min(pause_ms * 2, _PAUSE_FIRST_MS * 4 if is_ending else _PAUSE_MOST_MS)
