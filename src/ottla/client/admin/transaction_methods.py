"""The admin client's methods about transactions: which there are, who writes where, and ending one that hangs."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from ottla.client.admin.hanging_transactions import OpenTransaction, find_hanging
from ottla.client.admin.methods import Administration
from ottla.client.admin.transaction_requests import (
    ActiveProducer,
    TransactionDescription,
    TransactionListing,
    abort_transaction,
    describe_producers,
    describe_transaction,
    list_transactions,
    open_transaction_at,
)
from ottla.client.admin.values import Outcomes
from ottla.model.ids import TopicPartition

_FIRST_COORDINATOR_EPOCH: Final = 0
"""What a coordinator has that never wrote a marker there."""


class TransactionAdministration(Administration):
    """A part of `AsyncAdmin`."""

    async def list_transactions(
        self,
        state_filters: Collection[str] = (),
        producer_id_filters: Collection[int] = (),
        duration_filter_ms: int = -1,
        transactional_id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all brokers that pass every filter, by name."""
        return await list_transactions(
            self.cluster,
            states=state_filters,
            producer_ids=producer_id_filters,
            duration_ms=duration_filter_ms,
            pattern=transactional_id_pattern,
        )

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, raise_errors: bool = True
    ) -> Outcomes[str, TransactionDescription]:
        """State, producer and partitions of each."""
        return await self._each(transactional_ids, lambda name: describe_transaction(self.cluster, name), raise_errors)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None, *, raise_errors: bool = True
    ) -> Outcomes[TopicPartition, tuple[ActiveProducer, ...]]:
        """The producers that each partition's leader remembers, or this broker's replica of it."""

        async def describe(partition: TopicPartition) -> tuple[ActiveProducer, ...]:
            return (await describe_producers(self.cluster, [partition], broker=broker_id)).get(partition, ())

        return await self._each(partitions, describe, raise_errors)

    async def find_hanging_transactions(
        self, partitions: Sequence[TopicPartition] | None = None, max_transaction_timeout_ms: int = 900_000
    ) -> list[OpenTransaction]:
        """The transactions that nobody will end, in these partitions or in all."""
        if partitions is None:
            view = await self.cluster.retry(self.cluster.refresh)
            partitions = [
                TopicPartition(name, each.index) for name, topic in view.topics.items() for each in topic.partitions
            ]
        return await find_hanging(self.cluster, partitions, timeout_ms=max_transaction_timeout_ms)

    async def abort_transaction(self, partition: TopicPartition, start_offset: int) -> None:
        """Ends the transaction that begins there, in this partition only; raises `NoOpenTransactionError`.

        For transactions that hang. One whose producer lives is fenced by its coordinator if it goes on.
        """
        producer = await open_transaction_at(self.cluster, partition, start_offset)
        await abort_transaction(
            self.cluster,
            partition,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=producer.coordinator_epoch or _FIRST_COORDINATOR_EPOCH,
        )
