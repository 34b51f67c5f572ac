"""Cancels parked records, makes them due now or at another time.

An instruction is a record without a value in the same partition. A record gets another time by a transaction that
cancels it and parks a copy.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.values import Header
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import (
    BROKER_HEADERS,
    CANCEL,
    DELAY_CANCEL,
    DELAY_MS,
    DELAY_REPLACE,
    DELIVER_AT_MS,
    RELEASE,
)
from ottla.operations.queues.owed_scan import Parked

_SENT_AT_ONCE: Final = 10_000
"""Instructions that are sent before they are waited for."""
_REPLACED: Final = frozenset({*BROKER_HEADERS, DELIVER_AT_MS, DELAY_MS, DELAY_REPLACE})


async def cancel(producer: AsyncProducer, partition: TopicPartition, id: bytes) -> None:
    """Cancels the records of a partition that have this id now."""
    await producer.send_and_wait(partition.topic, None, partition=partition.partition, headers=[(DELAY_CANCEL, id)])


async def cancel_at(producer: AsyncProducer, partition: TopicPartition, offsets: Iterable[int]) -> None:
    """Cancels the records at these offsets."""
    await _instruct(producer, partition, CANCEL, offsets)


async def release(producer: AsyncProducer, partition: TopicPartition, offsets: Iterable[int]) -> None:
    """Makes the records at these offsets due now."""
    await _instruct(producer, partition, RELEASE, offsets)


def rescheduling_id(queue: str) -> str:
    """The transactional id of the producer that `reschedule` gets for a queue."""
    return f"ottla-reschedule-{queue}"


def rescheduled_headers(headers: Iterable[Header], due_ms: int) -> list[Header]:
    """The headers of the copy: the record's own with another time, without those that the broker adds."""
    kept = [header for header in headers if header[0] not in _REPLACED]
    return [*kept, (DELIVER_AT_MS, b"%d" % due_ms)]


async def reschedule(producer: AsyncProducer, parked: Parked, due_ms: int) -> None:
    """Lets a delayed record be due at another time: cancels it and parks a copy of it, both or neither.

    `producer` is transactional and initialized. A record that is being delivered at this moment may be delivered
    twice: as it was, and as its copy.
    """
    record, topic, index = parked.record, parked.partition.topic, parked.partition.partition
    producer.begin_transaction()
    try:
        await producer.send(topic, None, partition=index, headers=[(CANCEL, b"%d" % record.offset)])
        timestamp_ms = record.timestamp if record.timestamp >= 0 else None
        headers = rescheduled_headers(record.headers, due_ms)
        await producer.send(topic, record.value, record.key, headers, index, timestamp_ms)
        await producer.commit_transaction()
    except BaseException:
        await producer.abort_transaction()
        raise


async def _instruct(producer: AsyncProducer, partition: TopicPartition, header: str, offsets: Iterable[int]) -> None:
    topic, index, left = partition.topic, partition.partition, iter(offsets)
    while some := list(islice(left, _SENT_AT_ONCE)):
        sent = [
            await producer.send(topic, None, partition=index, headers=[(header, b"%d" % offset)]) for offset in some
        ]
        for each in sent:
            await each
