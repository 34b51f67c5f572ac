"""Drives what a client program does with transactions: producers, readers of either isolation, and transformers.

`ForeignClient` drives everything else, and sends, polls and closes what was opened here.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from tests.compat.clients.foreign_client import (
    EARLIEST,
    ClientError,
    ForeignClient,
    ForeignConsumer,
    ForeignProducer,
    Read,
)

GroupOffset = tuple[str, int, int]
"""Topic, partition, and the offset to commit."""


class TransactionalProducer(ForeignProducer):
    """A producer with a transactional id inside a client program; sends are part of the open transaction."""

    def begin(self) -> None:
        """Begins a transaction; brokers hear of it with its first record or offset."""
        self._client.call("begin_transaction", id=self._number)

    def commit(self) -> None:
        """Commits the open transaction."""
        self._client.call("commit_transaction", id=self._number)

    def abort(self) -> None:
        """Aborts the open transaction."""
        self._client.call("abort_transaction", id=self._number)

    def send_offsets(self, group: str, offsets: Sequence[GroupOffset]) -> None:
        """Makes a group's offsets part of the open transaction, by somebody who is no member of the group."""
        self._client.call("send_offsets", id=self._number, group=group, offsets=[list(each) for each in offsets])

    def close(self) -> None:
        """A producer that has failed may fail once more when it is closed; that is its own affair."""
        with suppress(ClientError):
            self._client.call("close_producer", id=self._number)


@contextmanager
def transactional_producer(
    client: ForeignClient, transactional_id: str, *, transaction_timeout_ms: int | None = None
) -> Iterator[TransactionalProducer]:
    """A producer that has its producer id and epoch, and fenced every other with this transactional id."""
    number = client.next_number()
    client.call(
        "open_transactional",
        id=number,
        transactional_id=transactional_id,
        transaction_timeout_ms=transaction_timeout_ms,
    )
    producer = TransactionalProducer(client, number)
    try:
        yield producer
    finally:
        producer.close()


@contextmanager
def isolated_consumer(
    client: ForeignClient,
    topic: str,
    positions: Mapping[int, int],
    *,
    committed: bool,
    fetch_wait_ms: int | None = None,
) -> Iterator[ForeignConsumer]:
    """A consumer that sees only what is committed, or everything; closed in the end."""
    number = client.next_number()
    client.call(
        "open_isolated_consumer",
        id=number,
        topic=topic,
        positions=[list(pair) for pair in positions.items()],
        committed=committed,
        fetch_wait_ms=fetch_wait_ms,
    )
    try:
        yield ForeignConsumer(client, number)
    finally:
        client.call("close_consumer", id=number)


def read_isolated(client: ForeignClient, topic: str, count: int, *, committed: bool, partitions: int = 1) -> list[Read]:
    """The first `count` records that this isolation shows, in the order of partition; inside one as they came."""
    positions = dict.fromkeys(range(partitions), EARLIEST)
    # Some clients are closed only once the request that is under way has been answered.
    with isolated_consumer(client, topic, positions, committed=committed, fetch_wait_ms=50) as consumer:
        return sorted(consumer.poll(count), key=lambda record: record.partition)


def transform(
    client: ForeignClient, *, transactional_id: str, group: str, source: str, target: str, count: int, commit: bool
) -> None:
    """Joins the group, takes `count` records, and in one transaction writes each to the same partition of the target
    with an exclamation mark behind its value, and commits the group's offsets; then commits or aborts all of it.
    """
    client.call(
        "transform",
        transactional_id=transactional_id,
        group=group,
        source=source,
        target=target,
        count=count,
        commit=commit,
    )
