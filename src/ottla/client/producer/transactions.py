"""A transactional producer's talk with its coordinators: from taking its id to commit and abort.

Runs in the sender's event loop. What may be called when, and what an error leaves possible, is decided in
`producer_transaction_state.py`; the requests are in `transaction_requests.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from threading import Lock
from typing import Final, TypeVar

from ottla.client.admin.transaction_requests import describe_transaction
from ottla.client.errors import AnswerError, DeadlineError, answer_error
from ottla.client.network.cluster import Cluster
from ottla.client.producer.accumulator_state import AccumulatorState, Finished
from ottla.client.producer.errors import ProducerFencedError, TransactionAbortedError, TransactionFailedError
from ottla.client.producer.options import ProducerConfig
from ottla.client.producer.partition_queue_state import PartitionQueue
from ottla.client.producer.send_loop import ProduceLoop
from ottla.client.producer.transaction_requests import (
    PRODUCE_VERSION_MAX,
    add_offsets,
    add_partitions,
    commit_offsets,
    end_transaction,
    init_producer_id,
    transaction_version,
)
from ottla.client.producer.transaction_state import (
    FENCING_CODES,
    ProducerTransactionState,
    Severity,
    TransactionPhase,
    severity,
)
from ottla.client.values import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError, OttlaError, RetriableError
from ottla.model.ids import TopicPartition

T = TypeVar("T")
_COORDINATOR_PAUSE_MS: Final = 20
"""A transaction that is being ended is so for moments."""
_STORY_SECONDS: Final = 2.0
"""How long one who is fenced waits to hear by whom."""


class ProducerTransactions:
    """One for a producer with a transactional id. `flush` waits for all records that were sent."""

    def __init__(
        self,
        transactional_id: str,
        accumulator: AccumulatorState,
        lock: Lock,
        loop: ProduceLoop,
        config: ProducerConfig,
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        self.state = ProducerTransactionState(transactional_id)
        self._accumulator = accumulator
        self._lock = lock
        self._loop = loop
        self._cluster: Cluster = loop.cluster
        self._config = config
        self._flush = flush

    def call(self, name: str) -> ProducerTransactionState:
        """The program calls this method; raises if it is not its time."""
        with self._lock:
            self.state.call(name)
        return self.state

    def check_sendable(self) -> None:
        """Raises unless a record may be sent now; with the lock held."""
        self.state.check_sendable()

    def touch(self, queue: PartitionQueue) -> None:
        """A record for this partition was appended; the lock has been held since, so none of it has been sent."""
        if self.state.touch(queue.partition):
            queue.is_in_transaction = False
            self._accumulator.wants_wake = True

    def on_turn(self) -> None:
        """Called in each of the sender's turns."""
        if self.state.unregistered():
            self._loop.run_task("adding partitions to the transaction", self._register)

    def on_finished(self, finished: list[Finished]) -> None:
        """Batches came to their end: one that failed is the end of the transaction."""
        for each in finished:
            if each.error is None or isinstance(each.error, TransactionAbortedError):
                continue
            with self._lock:
                if isinstance(each.error, ProducerFencedError) and ErrorCode.PRODUCER_FENCED.name in str(each.error):
                    self.state.break_off(each.error)
                else:
                    self.state.fail(each.error)

    async def init_transactions(self) -> None:
        """Takes the transactional id; whoever had it is fenced, and its open transaction aborted."""
        transaction = self.call("init_transactions")
        name = transaction.transactional_id
        identity = await self._coordinate(
            lambda: init_producer_id(self._cluster, name, self._config.transaction_timeout_ms)
        )
        version = await self._coordinate(lambda: transaction_version(self._cluster, name))
        self._loop.produce_version_max = PRODUCE_VERSION_MAX[version]
        with self._lock:
            self._accumulator.adopt(identity)
            self._accumulator.needs_registration = version == 1
            transaction.initialized(version)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata | str
    ) -> None:
        """Makes a group's offsets part of the transaction."""
        transaction = self.call("send_offsets_to_transaction")
        if isinstance(group, str):
            group = ConsumerGroupMetadata(group_id=group)
        if not group.group_id:
            raise MisuseError("offsets in a transaction are of a group: its consumer must have a group_id")
        if not offsets:
            return
        identity, name, whose = self._accumulator.identity, transaction.transactional_id, group
        if identity is None:
            raise MisuseError("call init_transactions first")
        if transaction.version == 1:
            await self._coordinate(lambda: add_offsets(self._cluster, name, identity, whose.group_id))
        transaction.touch_offsets()
        version = transaction.version
        await self._coordinate(lambda: commit_offsets(self._cluster, name, identity, offsets, whose, version))

    async def commit(self) -> None:
        """Waits for all records of the transaction and commits it. Raises `TransactionFailedError` if one failed."""
        self.call("commit_transaction")
        await self.end(committed=True)

    async def abort(self) -> None:
        """Gives up what was not sent yet, waits for the rest, and aborts the transaction."""
        self.call("abort_transaction")
        await self.end(committed=False)

    async def end(self, *, committed: bool) -> None:
        """Ends the transaction, whoever called for it."""
        transaction, identity = self.state, self._accumulator.identity
        try:
            if not committed:
                with self._lock:
                    dropped = self._accumulator.drop_unsent(TransactionAbortedError("the transaction was aborted"))
                self._loop.report(dropped)
            await self._flush()
            self._check_not_failed(committed=committed)
            if identity is not None and not transaction.is_empty:
                name, version = transaction.transactional_id, transaction.version
                following = await self._coordinate(
                    lambda: end_transaction(self._cluster, name, identity, committed=committed, version=version)
                )
                if transaction.wants_new_epoch and version == 1:
                    following = await self._coordinate(
                        lambda: init_producer_id(
                            self._cluster, name, self._config.transaction_timeout_ms, identity=identity
                        )
                    )
                with self._lock:
                    if following != identity:
                        self._accumulator.adopt(following)
        except BaseException as error:
            # The end is not known: all that is left is to abort, which also settles a commit whose answer was lost.
            with self._lock:
                if transaction.phase is TransactionPhase.ENDING:
                    transaction.fail(error if isinstance(error, Exception) else DeadlineError("ending was cancelled"))
            raise
        with self._lock:
            transaction.ended()

    def _check_not_failed(self, *, committed: bool) -> None:
        transaction = self.state
        if transaction.phase is TransactionPhase.BROKEN and transaction.error is not None:
            raise transaction.error.with_traceback(None)
        if transaction.phase is TransactionPhase.FAILED:
            if committed:
                raise TransactionFailedError(
                    f"the transaction of {transaction.transactional_id!r} cannot be committed, since a record of it"
                    f" failed: {transaction.error}; call abort_transaction, then begin again"
                ) from transaction.error
            transaction.phase = TransactionPhase.ENDING

    async def _register(self) -> None:
        """Tells the coordinator of partitions that the transaction writes to, so that their batches may leave."""
        transaction, identity = self.state, self._accumulator.identity
        wanted = transaction.unregistered()
        if identity is None or not wanted:
            return
        codes = await self._coordinate(
            lambda: add_partitions(self._cluster, transaction.transactional_id, identity, wanted), fails=True
        )
        done = [partition for partition in wanted if not codes.get(partition, 0)]
        refused = {
            code for partition in wanted if (code := codes.get(partition, 0)) and severity(code) is not Severity.RETRY
        } - {ErrorCode.OPERATION_NOT_ATTEMPTED}
        with self._lock:
            for partition in done:
                self._accumulator.queue(partition).is_in_transaction = True
            transaction.registered(done)
            failure = None
            if refused:
                failure = transaction.refused(answer_error(refused.pop(), "adding partitions to the transaction"))
            dropped = self._accumulator.drop_unsent(failure) if failure is not None else []
        self._loop.report(dropped)
        if failure is not None:
            raise failure
        if len(done) < len(wanted):
            await self._cluster.clock.sleep(_COORDINATOR_PAUSE_MS / 1000)

    async def _coordinate(self, ask: Callable[[], Awaitable[T]], *, fails: bool = False) -> T:
        """Asks a coordinator until it answers, up to `max_block_ms`; what it refuses for good becomes the state."""
        deadline = self._cluster.clock.monotonic() + self._config.max_block_ms / 1000
        tries = 0
        while True:
            try:
                return await ask()
            except RetriableError as error:
                tries += 1
                is_ending = isinstance(error, AnswerError) and error.error_code is ErrorCode.CONCURRENT_TRANSACTIONS
                wait_ms = self._config.backoff.wait_ms(tries, self._cluster.random)
                if is_ending:
                    wait_ms = min(wait_ms, _COORDINATOR_PAUSE_MS)
                if self._cluster.clock.monotonic() + wait_ms / 1000 >= deadline:
                    if fails:
                        with self._lock:
                            self.state.fail(error)
                    raise DeadlineError(
                        f"{error} (tried {tries} times in {self._config.max_block_ms} ms, max_block_ms)"
                    ) from error
                await self._cluster.clock.sleep(wait_ms / 1000)
            except AnswerError as error:
                story = await self.who_has_it() if error.error_code in FENCING_CODES else ""
                with self._lock:
                    raise self.state.refused(error, story) from error

    async def who_has_it(self) -> str:
        """What the coordinator knows of our transactional id, for one who was fenced; nothing if it does not say."""
        ours = self._accumulator.identity
        with suppress(OttlaError, TimeoutError):
            async with asyncio.timeout(_STORY_SECONDS):
                found = await describe_transaction(self._cluster, self.state.transactional_id)
            since = "" if found.start_ms is None else f" since {datetime.fromtimestamp(found.start_ms / 1000, UTC)}"
            had = "" if ours is None else f"; this one is producer {ours.producer_id}, epoch {ours.epoch}"
            return f"producer {found.producer_id}, epoch {found.producer_epoch}, has it, {found.state}{since}{had}"
        return ""
