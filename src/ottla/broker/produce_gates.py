"""What must hold before a client's batch is appended, for the topics where something must: `Partition.gate`.

Plain topics have no gate. Internal topics refuse every client. A companion that parks records passes them to the
admission of its kind (`ottla.queues.gate`), with the settings of the topic that it belongs to; when the feature is
disabled it refuses new records, while those that it holds are still delivered. Topics whose records expire check the
TTLs of their records. Topics with schema validation check schema ids (`ottla.broker.schema_validation`), also of what
is parked for them.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NoReturn

from ottla.broker.configs.topic_settings import TopicSettings
from ottla.broker.schema_validation.schema_gate import ProduceGate, SchemaGate
from ottla.broker.schema_validation.schema_ids import SchemaIds
from ottla.env.ports import Clock
from ottla.metadata.configs.queue_settings import CompanionMark, QueueSettings
from ottla.metadata.image import INTERNAL_TOPICS, TopicImage
from ottla.model.errors import BatchTooLargeError, CancelledIdsError, InvalidRecordError, InvalidTopicNameError
from ottla.model.ids import QUEUE_PRODUCER_BIT, ProducerId, TimestampMs, TopicPartition
from ottla.model.queue_names import PARKING_KINDS, CompanionKind
from ottla.queues.gate import OFFSET_MAX, Admission, Gate
from ottla.queues.kinds.delay_admission import DelayAdmission
from ottla.queues.kinds.delay_queue import DelayQueue
from ottla.queues.kinds.expiry_admission import admit_with_ttl, check_ttls
from ottla.queues.kinds.half_admission import HalfAdmission
from ottla.queues.kinds.half_queue import HalfQueue
from ottla.queues.kinds.retry_admission import RetryAdmission
from ottla.queues.queue_shard import QueueShard
from ottla.records.batch import Batch

Admit = Callable[[Batch, TimestampMs], Batch]
FindQueue = Callable[[], QueueShard | None]
"""The queue of the partition, if it is led here and has been started."""
AdmissionOf = Callable[[TopicImage, QueueSettings, FindQueue], Admit]
"""The admission of a kind for a topic, not the companion, with these settings."""

_ORIGIN_BYTES: Final = 48
"""What the header `ottla.origin` takes beside the topic's name, at most."""


def _delay(_: TopicImage, settings: QueueSettings, find_queue: FindQueue) -> Admit:
    rules = DelayAdmission(delay_ms=settings.delay_ms, delay_max_ms=settings.delay_max_ms)
    end_offset, cancelled_max = _end_offset(find_queue), settings.delay_cancelled_max

    def gate_of(rules: DelayAdmission) -> Admit:
        def admit(payload: memoryview, count: int, now_ms: TimestampMs) -> Admission:
            if settings.has_ttl:
                # The topic does not check what it gets from its companion.
                check_ttls(payload, count)
            return rules.admit(payload, count, now_ms)

        return Gate(admit, end_offset).admit

    gate = gate_of(rules)

    def admit(batch: Batch, now_ms: TimestampMs) -> Batch:
        queue = find_queue()
        kind = queue.kind if queue is not None else None
        if queue is None or not isinstance(kind, DelayQueue) or not kind.is_full(cancelled_max):
            return gate(batch, now_ms)
        # The log answers a batch that was sent again with its first offset.
        if _is_duplicate(batch, queue):
            return gate(batch, now_ms)
        count, is_cancelled = kind.cancel_count, kind.is_cancelled

        def check_cancel(id: bytes) -> None:
            if not is_cancelled(id):
                raise CancelledIdsError(
                    f"{count} cancelled ids are remembered, ottla.delay.cancelled.max={cancelled_max};"
                    " try again when records that were parked before them are delivered"
                )

        return gate_of(replace(rules, check_cancel=check_cancel))(batch, now_ms)

    return admit


def _retry(topic: TopicImage, settings: QueueSettings, find_queue: FindQueue) -> Admit:
    rules = RetryAdmission(
        secret=topic.id.bytes,
        backoff_ms=settings.retry_backoff_ms,
        backoff_max_ms=settings.retry_backoff_max_ms,
        jitter=settings.retry_backoff_jitter,
        attempts_max=settings.retry_max_attempts,
        keeps_key_order=settings.retry_keeps_key_order,
    )
    return Gate(rules.admit, _end_offset(find_queue)).admit


def _end_offset(find_queue: FindQueue) -> Callable[[], int]:
    """Without a queue yet, nothing of the log is known: an instruction about a missing record is ignored later."""

    def end_offset() -> int:
        queue = find_queue()
        return OFFSET_MAX if queue is None else queue.partition.end_offset

    return end_offset


def _half(_: TopicImage, settings: QueueSettings, find_queue: FindQueue) -> Admit:
    def admit(batch: Batch, now_ms: TimestampMs) -> Batch:
        queue = find_queue()
        # While the queue is being loaded it does not know all ids; what is repeated then becomes a dead letter.
        open_count = 0
        is_open: Callable[[bytes], bool] = _never
        is_known: Callable[[bytes], bool] = _never
        if queue is not None and isinstance(queue.kind, HalfQueue):
            is_known = queue.kind.is_known
            # The log answers a batch that was sent again with its first offset.
            if not _is_duplicate(batch, queue):
                is_open, open_count = queue.kind.is_open, queue.kind.open_count
        rules = HalfAdmission(
            check_after_ms=settings.half_check_after_ms,
            is_enabled=settings.half_enable,
            open_max=settings.half_open_max,
            open_count=open_count,
            is_open=is_open,
            is_known=is_known,
            is_handed_on=batch.has_producer_id and bool(batch.producer_id & QUEUE_PRODUCER_BIT),
        )

        def checked(payload: memoryview, count: int, now_ms: TimestampMs) -> Admission:
            if settings.has_ttl:
                # The topic does not check what it gets from its companion.
                check_ttls(payload, count)
            return rules.admit(payload, count, now_ms)

        return Gate(checked).admit(batch, now_ms)

    return admit


def _never(_: bytes) -> bool:
    return False


def _is_duplicate(batch: Batch, queue: QueueShard) -> bool:
    producer = queue.partition.log.producers.get(ProducerId(batch.producer_id)) if batch.has_producer_id else None
    return producer is not None and producer.duplicate_of(batch) is not None


ADMISSIONS: Final[Mapping[CompanionKind, AdmissionOf]] = {
    CompanionKind.DELAYED: _delay,
    CompanionKind.RETRY: _retry,
    CompanionKind.HALF: _half,
}
_OPEN_WHEN_DISABLED: Final = frozenset({CompanionKind.HALF})
"""Kinds that decide themselves what they accept when they are disabled."""


class ProduceGates:
    """Makes the gates of partitions; `queue_of` finds the queue of a companion's partition, `schema_ids` knows which
    schemas are registered."""

    def __init__(
        self,
        settings_of: Callable[[Mapping[str, str]], TopicSettings],
        clock: Clock,
        queue_of: Callable[[TopicPartition], QueueShard | None],
        schema_ids: SchemaIds,
    ) -> None:
        self._settings_of = settings_of
        self._clock = clock
        self._queue_of = queue_of
        self._schema_ids = schema_ids

    def gate_of(self, topic: TopicImage, index: int, topics: Mapping[str, TopicImage]) -> ProduceGate | None:
        """The gate of a topic's partition; to be made again when the topic or the one that it belongs to changes."""
        if topic.name in INTERNAL_TOPICS:
            return _internal_gate(topic.name)
        settings = self._settings_of(topic.configs)
        queue = settings.queue
        if queue is None or queue.companion is None or queue.companion.kind not in PARKING_KINDS:
            gate = admit_with_ttl if queue is not None and queue.has_ttl else None
            return self._with_schemas(gate, topic.name, settings)
        return self._companion_gate(topic, index, topics, queue.companion)

    def _with_schemas(self, gate: ProduceGate | None, topic: str, settings: TopicSettings) -> ProduceGate | None:
        """The gate after the check of schema ids, if the topic asks for it."""
        return gate if settings.schemas is None else SchemaGate(self._schema_ids, topic, settings.schemas, gate)

    def _companion_gate(
        self, topic: TopicImage, index: int, topics: Mapping[str, TopicImage], mark: CompanionMark
    ) -> ProduceGate | None:
        of, kind = mark
        owner = topics.get(of)
        settings = self._settings_of(owner.configs) if owner is not None else None
        if owner is None or settings is None:
            return _disabled_gate(topic.name, of)
        # Without any queue enabled, a topic has no settings for them.
        own = settings.queue or QueueSettings()
        if not own.enables(kind) and kind not in _OPEN_WHEN_DISABLED:
            return _disabled_gate(topic.name, of)
        admission_of = ADMISSIONS.get(kind)
        if admission_of is None:
            return _unknown_gate(topic.name, kind)
        name = TopicPartition(topic.name, index)
        admit = admission_of(owner, own, lambda: self._queue_of(name))
        bytes_max, now_ms = settings.max_message_bytes, self._clock.now_ms
        # What is handed back goes to a companion, which takes larger batches than the topic.
        origin_bytes = 0 if kind is CompanionKind.RETRY else len(topic.name) + _ORIGIN_BYTES

        def gate(batch: Batch) -> Batch:
            # The companion allows more, since the broker adds headers; the topic would refuse the record later.
            if batch.size_bytes > bytes_max:
                raise BatchTooLargeError(
                    f"a batch of {batch.size_bytes} bytes exceeds max.message.bytes={bytes_max} of topic {of}"
                )
            admitted = admit(batch, now_ms())
            size = admitted.size_bytes + origin_bytes
            if origin_bytes and batch.count == 1 and size > bytes_max:
                raise BatchTooLargeError(
                    f"a record of {size} bytes with the headers that the broker adds exceeds"
                    f" max.message.bytes={bytes_max} of topic {of}"
                )
            return admitted

        # What consumers hand back was checked when it was produced first.
        return gate if kind is CompanionKind.RETRY else self._with_schemas(gate, of, settings)


def _internal_gate(name: str) -> ProduceGate:
    def refuse(_: Batch) -> NoReturn:
        raise InvalidTopicNameError(f"{name} is an internal topic; only coordinators write to it")

    return refuse


def _unknown_gate(name: str, kind: CompanionKind) -> ProduceGate:
    """Records that could not be delivered must not be accepted."""

    def refuse(_: Batch) -> NoReturn:
        raise InvalidRecordError(f"{name} does not accept records: this version has no queues of kind {kind.value}")

    return refuse


def _disabled_gate(name: str, of: str) -> ProduceGate:
    def refuse(_: Batch) -> NoReturn:
        raise InvalidRecordError(f"{name} does not accept records: its queue is disabled in the configs of topic {of}")

    return refuse
