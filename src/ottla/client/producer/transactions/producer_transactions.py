"""The transactions of a producer: init, send offsets, commit and abort, in requests to the coordinators.

Runs in the sender's event loop. `transaction_state.py` decides which method may be called when, and what is possible
after an error; the requests are in `transaction_requests.py`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from threading import Lock
from typing import Final, TypeVar

from ottla.client.admin.transaction_requests import describe_transaction
from ottla.client.errors import AnswerError, CannotConnectError, DeadlineError, answer_error
from ottla.client.network.cluster import Cluster
from ottla.client.producer.batching.accumulator_state import AccumulatorState, Finished
from ottla.client.producer.batching.partition_queue_state import PartitionQueue
from ottla.client.producer.batching.producer_batch import NO_SEQUENCE, Identity
from ottla.client.producer.errors import ProducerFencedError, TransactionAbortedError, TransactionFailedError
from ottla.client.producer.options import ProducerConfig
from ottla.client.producer.sender import Sender
from ottla.client.producer.transactions.transaction_requests import (
    PRODUCE_VERSION_MAX,
    add_offsets,
    add_partitions,
    commit_offsets,
    end_transaction,
    init_producer_id,
    transaction_version,
)
from ottla.client.producer.transactions.transaction_state import (
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

_LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")
_COORDINATOR_PAUSE_MS: Final = 20
"""The wait after CONCURRENT_TRANSACTIONS: ending a transaction takes a moment."""
_REGISTRATION: Final = "AddPartitionsToTxn"
"""The sender's task that adds partitions. A transaction ends after it, or they would be added to the next one."""
_DESCRIBE_SECONDS: Final = 2.0
"""How long a fenced producer waits for the description of the new one."""


class ProducerTransactions:
    """One for each producer with a transactional id. `flush` waits for all records that were sent."""

    def __init__(
        self,
        transactional_id: str,
        accumulator: AccumulatorState,
        lock: Lock,
        sender: Sender,
        config: ProducerConfig,
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        self.state = ProducerTransactionState(transactional_id)
        self._accumulator = accumulator
        self._lock = lock
        self._sender = sender
        self._cluster: Cluster = sender.cluster
        self._config = config
        self._flush = flush

    def call(self, name: str) -> ProducerTransactionState:
        """Checks that the producer method `name` may be called now, and returns the state it leads to."""
        with self._lock:
            self.state.call(name)
        return self.state

    def check_sendable(self) -> None:
        """Raises unless a record may be sent now; with the lock held."""
        self.state.check_sendable()

    def touch(self, queue: PartitionQueue) -> None:
        """A record for this partition was appended; the lock is held since, so it is not sent yet."""
        if self.state.touch(queue.partition):
            queue.is_in_transaction = False
            self._accumulator.wants_wake = True

    def on_turn(self) -> None:
        """Called in each turn of the sender."""
        if self.state.unregistered():
            self._sender.run_task(_REGISTRATION, self._register)

    def on_finished(self, finished: list[Finished]) -> None:
        """Batches are finished: a failed one fails the transaction, and the sender fails what it has not sent."""
        for each in finished:
            if each.error is None or isinstance(each.error, TransactionAbortedError):
                continue
            with self._lock:
                if isinstance(each.error, ProducerFencedError) and ErrorCode.PRODUCER_FENCED.name in str(each.error):
                    self.state.break_off(each.error)
                else:
                    self.state.fail(each.error)
            self._sender.wake()

    async def init_transactions(self) -> None:
        """Registers the transactional id; fences the producer that had it and aborts its open transaction."""
        transaction = self.call("init_transactions")
        name = transaction.transactional_id
        identity = await self._coordinate(
            lambda: init_producer_id(self._cluster, name, self._config.transaction_timeout_ms)
        )
        version = await self._coordinate(lambda: transaction_version(self._cluster, name))
        self._sender.produce_version_max = PRODUCE_VERSION_MAX[version]
        with self._lock:
            self._accumulator.adopt(identity)
            self._accumulator.needs_registration = version == 1
            transaction.initialized(version)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata | str
    ) -> None:
        """Commits offsets of a group as part of the transaction."""
        transaction = self.call("send_offsets_to_transaction")
        if isinstance(group, str):
            group = ConsumerGroupMetadata(group_id=group)
        if not group.group_id:
            raise MisuseError(
                "send_offsets_to_transaction: the group id must not be empty; create the consumer with a group_id"
            )
        if not offsets:
            return
        identity, name, whose = self._accumulator.identity, transaction.transactional_id, group
        if identity is None:
            raise MisuseError("send_offsets_to_transaction: call init_transactions first")
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
        """Drops the records not sent yet, waits for the others, and aborts the transaction."""
        self.call("abort_transaction")
        await self.end(committed=False)

    async def end(self, *, committed: bool) -> None:
        """Ends the transaction."""
        transaction, identity = self.state, self._accumulator.identity
        try:
            if not committed:
                with self._lock:
                    transaction.drop_unregistered()
                    dropped = self._accumulator.drop_unsent(TransactionAbortedError("the transaction was aborted"))
                    # A retry that is dropped leaves a gap in the sequence numbers of its partition.
                    if any(each.batch.sequence != NO_SEQUENCE for each in dropped):
                        transaction.wants_new_epoch = True
                self._sender.report(dropped)
            await self._flush()
            await self._sender.wait_task(_REGISTRATION)
            self._check_not_failed(committed=committed)
            if identity is not None:
                await self._end(identity, committed=committed)
        except BaseException as error:
            # The outcome is unknown. Abort is the only call left, and it also settles a commit whose response was lost.
            with self._lock:
                if transaction.phase is TransactionPhase.ENDING:
                    transaction.fail(
                        error if isinstance(error, Exception) else DeadlineError("the commit or abort was cancelled")
                    )
            raise
        with self._lock:
            transaction.ended()

    async def _end(self, identity: Identity, *, committed: bool) -> None:
        """Asks the coordinator to end the transaction, unless it does not know of it, and for a new epoch if needed."""
        transaction, following = self.state, identity
        name, version = transaction.transactional_id, transaction.version
        if not transaction.is_empty:
            following = await self._coordinate(
                lambda: end_transaction(self._cluster, name, identity, committed=committed, version=version)
            )
        if transaction.wants_new_epoch and version == 1:
            following = await self._coordinate(
                lambda: init_producer_id(self._cluster, name, self._config.transaction_timeout_ms, identity=identity)
            )
        with self._lock:
            if following != identity:
                self._accumulator.adopt(following)

    def _check_not_failed(self, *, committed: bool) -> None:
        transaction = self.state
        if transaction.phase is TransactionPhase.BROKEN and transaction.error is not None:
            raise transaction.error.with_traceback(None)
        if transaction.phase is TransactionPhase.FAILED:
            if committed:
                raise TransactionFailedError(
                    f"transaction of {transaction.transactional_id!r} cannot be committed because a record failed:"
                    f" {transaction.error}; call abort_transaction, then begin a new transaction"
                ) from transaction.error
            transaction.phase = TransactionPhase.ENDING

    async def _register(self) -> None:
        """Adds partitions to the transaction at the coordinator; their batches may be sent afterwards."""
        transaction, identity = self.state, self._accumulator.identity
        wanted = transaction.unregistered()
        if identity is None or not wanted:
            return
        try:
            codes = await self._coordinate(
                lambda: add_partitions(self._cluster, transaction.transactional_id, identity, wanted),
                is_wanted=lambda: bool(transaction.unregistered()),
            )
        except OttlaError as error:
            # The coordinator may have added them all the same: a new epoch ends what it has.
            with self._lock:
                transaction.fail(error)
            raise
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
        self._sender.report(dropped)
        if failure is not None:
            raise failure
        if len(done) < len(wanted):
            await self._cluster.clock.sleep(_COORDINATOR_PAUSE_MS / 1000)

    async def _coordinate(self, ask: Callable[[], Awaitable[T]], is_wanted: Callable[[], bool] = lambda: True) -> T:
        """Retries a request for up to `max_block_ms` while it is wanted; a final refusal changes the state."""
        deadline = self._cluster.clock.monotonic() + self._config.max_block_ms / 1000
        tries = 0
        while True:
            try:
                return await ask()
            except RetriableError as error:
                if not is_wanted():
                    raise
                tries += 1
                is_ending = isinstance(error, AnswerError) and error.error_code is ErrorCode.CONCURRENT_TRANSACTIONS
                wait_ms = self._config.backoff.wait_ms(tries, self._cluster.random)
                if is_ending:
                    wait_ms = min(wait_ms, _COORDINATOR_PAUSE_MS)
                if self._cluster.clock.monotonic() + wait_ms / 1000 >= deadline:
                    raise DeadlineError(
                        f"{error} (tried {tries} times in {self._config.max_block_ms} ms, max_block_ms)"
                    ) from error
                if tries == 1 and isinstance(error, CannotConnectError):
                    _LOG.warning("%s; retrying for %s ms (max_block_ms)", error, self._config.max_block_ms)
                await self._cluster.clock.sleep(wait_ms / 1000)
            except AnswerError as error:
                owner = await self.describe_new_owner() if error.error_code in FENCING_CODES else ""
                with self._lock:
                    failure = self.state.refused(error, owner)
                self._sender.wake()
                raise failure from error

    async def describe_new_owner(self) -> str:
        """The producer that has the transactional id now, for the error of a fenced one; "" if it is unknown."""
        ours = self._accumulator.identity
        with suppress(OttlaError, TimeoutError):
            async with asyncio.timeout(_DESCRIBE_SECONDS):
                found = await describe_transaction(self._cluster, self.state.transactional_id)
            since = "" if found.start_ms is None else f" since {datetime.fromtimestamp(found.start_ms / 1000, UTC)}"
            had = "" if ours is None else f"; this producer has id {ours.producer_id}, epoch {ours.epoch}"
            return (
                f"now owned by producer id {found.producer_id}, epoch {found.producer_epoch}, {found.state}{since}{had}"
            )
        return ""
