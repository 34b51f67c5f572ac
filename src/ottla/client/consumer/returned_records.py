"""Gives up records for a consumer: hands them back, so that they return after a backoff, or makes them dead letters.

A record is handed back by producing it to `<topic>.<group>.retry`, in the partition that it came from; the broker
counts the attempts and returns it on `<topic>.<group>.redelivery`. The methods return when the record is written with
acks=all, so that its offset may be committed then.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from ottla.client.consumer.errors import RecordGoneError, RetryNotEnabledError
from ottla.client.consumer.key_order_state import KeyOrderState
from ottla.client.consumer.options import ConsumerConfig
from ottla.client.consumer.topic_queues import RETRY_ENABLE, TopicQueues
from ottla.client.errors import AnswerError
from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules
from ottla.client.network.cluster import Cluster
from ottla.client.options import ClientConfig
from ottla.client.values import ConsumerRecord, Header
from ottla.model import queue_names
from ottla.model.dead_letters import (
    DeadLetter,
    DeadLetterHeaders,
    Origin,
    dead_letter_headers,
    dead_letter_partition,
    error_reason,
    error_type,
    first_delivery,
    redelivered_topic,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.client.producer.async_producer import AsyncProducer

_RECORD_BYTES_MAX: Final = 128 << 20
"""A record that was read may be larger than what a producer sends by default."""
_REPLACED: Final = frozenset(
    {queue_names.RETRY_REASON, queue_names.RETRY_EXCEPTION, queue_names.RETRY_REJECT, queue_names.RETRY_ORIGIN}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Raw:
    """What is written: key and value as they were before deserializers."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]


class ReturnedRecords:
    """One for each consumer; its methods may be called by several tasks at once.

    `is_assigned` tells whether the consumer reads a partition now.
    """

    def __init__(self, cluster: Cluster, config: ConsumerConfig, is_assigned: Callable[[TopicPartition], bool]) -> None:
        self._cluster = cluster
        self._is_assigned = is_assigned
        self._config = config
        self._group = config.group_id
        self.queues = TopicQueues(cluster, config.metadata_max_age_ms)
        self._producer: AsyncProducer | None = None
        self._starting = asyncio.Lock()
        self.order = KeyOrderState()

    async def hold_back(self, record: ConsumerRecord) -> bool:
        """Hands a record back if an earlier one of its key is in retry and the topic keeps the order of keys.

        To be called with each record before it is handled, in order. Returns whether the record was handed back.
        """
        if not self.order or record.key is None:
            return False
        origin = self._origin(record)
        place = TopicPartition(origin.topic, origin.partition)
        if not self._sees_returns_to(place):
            # Another consumer gets what was handed back: waiting for it would have no end.
            self.order.forget([place])
            return False
        if origin.offset is None or not self.order.on_delivered(place, _hashable(record.key), origin.offset):
            return False
        await self.retry(record, "an earlier record of its key is in retry", is_behind=True)
        return True

    async def retry(self, record: ConsumerRecord, error: BaseException | str, *, is_behind: bool = False) -> None:
        """Hands a record back; `is_behind` if it was not handled, so that this is not an attempt.

        Raises `RetryNotEnabledError`, `RecordGoneError` and the errors of a producer.
        """
        group = self._group
        if group is None:
            raise MisuseError("retry needs a group_id: a record that is handed back returns to its group")
        topic = _base(record, group)
        queue = await self.queues.of(topic)
        if not queue.has_retry:
            raise RetryNotEnabledError(
                f"records of topic {topic} cannot be handed back; set its config {RETRY_ENABLE}=true, or call"
                " reject to make them dead letters"
            )
        raw = await self._raw(record)
        kept = [header for header in raw.headers if header[0] not in _REPLACED]
        origin = self._origin(record)
        headers = [*kept, *retry_headers(origin, error)]
        if is_behind:
            headers.append((queue_names.RETRY_BEHIND, b"true"))
        await self._send(queue_names.retry_topic(topic, group), record.partition, raw, headers, record.timestamp)
        place = TopicPartition(origin.topic, origin.partition)
        is_ordered = queue.keeps_key_order and record.key is not None and self._sees_returns_to(place)
        if is_ordered and origin.offset is not None:
            self.order.on_handed_back(place, _hashable(record.key), origin.offset)

    async def reject(
        self,
        record: ConsumerRecord,
        reason: BaseException | str,
        *,
        topic: str | None = None,
        attempts: int | None = None,
    ) -> None:
        """Writes a record to the dead-letter topic of its topic, or to `topic`.

        `attempts` says how often it was tried; by default that is how often it was delivered. Raises `RecordGoneError`
        and the errors of a producer.
        """
        origin = self._origin(record)
        style = DeadLetterHeaders.KIP1191
        if topic is None:
            queue = await self.queues.of(_base(record, self._group))
            topic, style = queue.dead_letter_topic, queue.dead_letter_headers
        raw = await self._raw(record)
        letter = DeadLetter(
            origin=origin,
            reason=_reason(reason),
            exception=error_type(reason) if isinstance(reason, BaseException) else None,
            group=self._group,
            attempts=_deliveries(raw.headers) if attempts is None else attempts,
        )
        producer = await self._started()
        partition = dead_letter_partition(origin.partition, len(await producer.partitions_for(topic)))
        await self._send(topic, partition, raw, dead_letter_headers(raw.headers, letter, style), record.timestamp)

    async def close(self) -> None:
        """Closes the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()

    def _sees_returns_to(self, place: TopicPartition) -> bool:
        """Whether records of this partition that are handed back return to this consumer."""
        topic = queue_names.redelivery_topic(place.topic, self._group or "")
        return self._is_assigned(TopicPartition(topic, place.partition))

    def _origin(self, record: ConsumerRecord) -> Origin:
        place = TopicPartition(record.topic, record.partition)
        return first_delivery(place, record.offset, record.headers, self._group)

    async def _raw(self, record: ConsumerRecord) -> _Raw:
        """The record as it is in the log. With deserializers it is read again: only its objects were kept."""
        config = self._config
        if config.key_deserializer is None and config.value_deserializer is None:
            return _Raw(key=record.key, value=record.value, headers=record.headers)
        partition = TopicPartition(record.topic, record.partition)
        span = OffsetRange(start=record.offset, end=record.offset + 1)
        rules = RangeRules(request_timeout_ms=config.request_timeout_ms, wait_ms=config.fetch_max_wait_ms)
        chunks = RangeFetch(self._cluster, {partition: span}, rules).chunks()
        problem: AnswerError | None = None
        try:
            async for chunk in chunks:
                for found in chunk.records():
                    return _Raw(key=found.key, value=found.value, headers=found.headers)
        except AnswerError as error:
            if error.error_code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            problem = error
        finally:
            await chunks.aclose()
        raise RecordGoneError(
            f"record {record.offset} of {partition} was deleted before it could be handed back or rejected; read"
            " without"
            " deserializers if records may be deleted"
        ) from problem

    async def _send(self, topic: str, partition: int, raw: _Raw, headers: Sequence[Header], timestamp_ms: int) -> None:
        producer = await self._started()
        await producer.send_and_wait(
            topic, raw.value, raw.key, headers, partition, timestamp_ms if timestamp_ms >= 0 else None
        )

    async def _started(self) -> "AsyncProducer":
        async with self._starting:
            if self._producer is None:
                from ottla.client.producer.async_producer import AsyncProducer

                options: dict[str, Any] = {each.name: getattr(self._config, each.name) for each in fields(ClientConfig)}
                producer = AsyncProducer(
                    linger_ms=0, max_request_size=_RECORD_BYTES_MAX, buffer_memory=_RECORD_BYTES_MAX, **options
                )
                await producer.start()
                self._producer = producer
        return self._producer


def retry_headers(origin: Origin, error: BaseException | str) -> list[Header]:
    """The headers that a client adds to a record when it hands it back."""
    found: list[Header] = [
        (queue_names.RETRY_REASON, _reason(error).encode(errors="replace")),
        (queue_names.RETRY_ORIGIN, str(origin).encode()),
    ]
    if isinstance(error, BaseException):
        found.append((queue_names.RETRY_EXCEPTION, error_type(error).encode(errors="replace")))
    return found


def _base(record: ConsumerRecord, group: str | None) -> str:
    """The topic that a record belongs to, also if it was redelivered."""
    return redelivered_topic(record.topic, group) or record.topic


def _hashable(key: Any) -> Hashable:
    """A deserialized key as it can be looked up."""
    return key if isinstance(key, Hashable) else repr(key)


def _reason(error: BaseException | str) -> str:
    return error if isinstance(error, str) else error_reason(error)


def _deliveries(headers: Sequence[Header]) -> int:
    """How often a record was delivered: once, and again after each time that it was handed back."""
    attempts = [value for name, value in headers if name == queue_names.RETRY_ATTEMPT and value is not None]
    if not attempts or not attempts[-1].isdigit():
        return 1
    return int(attempts[-1][:9]) + 1
