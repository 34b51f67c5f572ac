"""Open transactions by age, those that hang, and how they are aborted.

A transaction that a coordinator knows ends when its producer ends it, or at its timeout; it is aborted by fencing the
producer (as `Admin.forceTerminateTransaction` of Java's client does). One that hangs is known to no coordinator; it is
aborted by a marker in its partition.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.hanging_transactions import OpenTransaction, find_hanging
from ottla.client.admin.transaction_requests import (
    UNDER_WAY,
    ActiveProducer,
    TransactionDescription,
    describe_transaction,
    list_transactions,
    open_transaction_at,
)
from ottla.client.errors import AnswerError
from ottla.client.network.list_offsets import offset_bounds
from ottla.console.cluster.access import Access
from ottla.console.errors import NotFoundError
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError
from ottla.model.ids import TopicPartition
from ottla.operations.termination import terminate_transaction
from ottla.protocol.fetch_frames import READ_COMMITTED

DEFAULT_TIMEOUT_MS: Final = 15 * 60 * 1000
"""The default of the brokers' transaction.max.timeout.ms."""
DESCRIBED_MAX: Final = 500
"""Open transactions that are described; the page says if there are more."""
_ASKED_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRow:
    """One open transaction, as its coordinator knows it."""

    found: TransactionDescription
    age_ms: int | None

    @property
    def is_late(self) -> bool:
        """Whether it has been open for longer than its own timeout: the coordinator should have aborted it."""
        return self.age_ms is not None and self.age_ms > self.found.timeout_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransactions:
    """The open transactions, oldest first."""

    rows: Sequence[TransactionRow]
    open: int
    """How many are open, described or not."""
    ids: int
    """How many transactional ids the coordinators know."""
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransactions:
    """The result of a search."""

    found: Sequence[OpenTransaction]
    searched: int
    """Partitions."""
    timeout_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortPreview:
    """What a marker in one partition would do."""

    partition: TopicPartition
    producer: ActiveProducer
    start_offset: int
    end_offset: int
    stable_offset: int
    """Consumers with isolation.level=read_committed read up to here."""
    at_ms: int

    @property
    def blocked(self) -> int:
        """Offsets that such consumers cannot read now."""
        return max(0, self.end_offset - self.stable_offset)

    @property
    def is_first(self) -> bool:
        """Whether it is the oldest open transaction of the partition, so that its end frees others."""
        return self.stable_offset == self.start_offset


async def find_open(access: Access) -> OpenTransactions:
    """The transactions that are open, or that are being ended."""
    cluster = access.cluster
    every = await list_transactions(cluster)
    listed = [each for each in every if each.state in UNDER_WAY]
    limit = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def describe(transactional_id: str) -> TransactionDescription | None:
        async with limit:
            try:
                return await describe_transaction(cluster, transactional_id)
            except AnswerError as error:
                # It ended, and was forgotten.
                if error.error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    return None
                raise

    found = await asyncio.gather(*(describe(each.transactional_id) for each in listed[:DESCRIBED_MAX]))
    now_ms = cluster.clock.now_ms()
    rows = [
        TransactionRow(found=each, age_ms=None if each.start_ms is None else max(0, now_ms - each.start_ms))
        for each in found
        if each is not None and each.is_under_way
    ]
    rows.sort(key=lambda row: -(row.age_ms or 0))
    return OpenTransactions(rows=rows, open=len(listed), ids=len(every), at_ms=now_ms)


async def find_transaction(access: Access, transactional_id: str) -> TransactionRow:
    """One transactional id. Raises `NotFoundError`."""
    try:
        found = await describe_transaction(access.cluster, transactional_id)
    except AnswerError as error:
        if error.error_code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        raise NotFoundError(f"transactional id {transactional_id} does not exist") from None
    now_ms = access.cluster.clock.now_ms()
    return TransactionRow(found=found, age_ms=None if found.start_ms is None else max(0, now_ms - found.start_ms))


async def search_hanging(access: Access, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> HangingTransactions:
    """Searches all partitions with a leader for transactions that are open for longer and that no coordinator knows."""
    cluster = access.cluster
    view = await cluster.retry(cluster.refresh)
    partitions = sorted(
        TopicPartition(topic.name, each.index)
        for topic in view.topics.values()
        for each in topic.partitions
        if each.leader is not None
    )
    found = await find_hanging(cluster, partitions, timeout_ms=timeout_ms)
    return HangingTransactions(
        found=found, searched=len(partitions), timeout_ms=timeout_ms, at_ms=cluster.clock.now_ms()
    )


async def preview_abort(access: Access, partition: TopicPartition, start_offset: int) -> AbortPreview:
    """What would be aborted. Raises `NoOpenTransactionError`."""
    cluster = access.cluster
    producer = await open_transaction_at(cluster, partition, start_offset)
    end = (await offset_bounds(cluster, [partition]))[partition][1]
    stable = (await offset_bounds(cluster, [partition], isolation_level=READ_COMMITTED))[partition][1]
    return AbortPreview(
        partition=partition,
        producer=producer,
        start_offset=start_offset,
        end_offset=end,
        stable_offset=stable,
        at_ms=cluster.clock.now_ms(),
    )


async def abort(access: Access, partition: TopicPartition, start_offset: int, producer_id: int) -> None:
    """Writes an abort marker into one partition, if the transaction at that offset is still that of the producer."""
    details = {"start_offset": start_offset, "producer_id": producer_id}
    async with access.change("abort transaction", str(partition), details):
        found = await open_transaction_at(access.cluster, partition, start_offset)
        if found.producer_id != producer_id:
            raise InvalidRequestError(
                f"the transaction at offset {start_offset} of {partition} is one of producer {found.producer_id} now,"
                f" not of {producer_id}; look at it again"
            )
        await access.admin().abort_transaction(partition, start_offset)


async def terminate(access: Access, transactional_id: str) -> None:
    """Fences the producer of a transactional id: its coordinator aborts the open transaction in all partitions."""
    async with access.change("terminate transaction", transactional_id):
        await terminate_transaction(access.cluster, transactional_id, lambda id: access.producer(transactional_id=id))
