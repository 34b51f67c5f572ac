"""Dead letters: records that nothing more can be done with, and the headers that say where they came from and why.

Key, value, timestamp and the record's own headers are unchanged. The broker, the clients, Spark's readers and pipelines
add the same headers. Their names are KIP-1191's (`__dlq.errors.*`, all values UTF-8 text), or Spring's (`kafka_dlt-*`,
numbers big-endian) for topics with `ottla.deadletter.headers=spring`. Reading understands both. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ottla.model import queue_names
from ottla.model.ids import TopicPartition

Header = tuple[str, bytes | None]

TOPIC: Final = "__dlq.errors.topic"
PARTITION: Final = "__dlq.errors.partition"
OFFSET: Final = "__dlq.errors.offset"
GROUP: Final = "__dlq.errors.group"
DELIVERY_COUNT: Final = "__dlq.errors.delivery.count"
MESSAGE: Final = "__dlq.errors.message"
# The following are not KIP-1191's.
EXCEPTION: Final = "__dlq.errors.exception"
"""The type of the error."""
STACKTRACE: Final = "__dlq.errors.stacktrace"
TIMESTAMP: Final = "__dlq.errors.timestamp"
"""The original timestamp, in milliseconds."""
PIPELINE: Final = "__dlq.errors.pipeline"
STEP: Final = "__dlq.errors.step"
"""The pipeline that rejected the record, and the step in it."""
SCHEMA_ID: Final = "__dlq.errors.schema.id"
"""The id of the value's schema in the registry, or its GUID."""

SPRING_TOPIC: Final = "kafka_dlt-original-topic"
SPRING_PARTITION: Final = "kafka_dlt-original-partition"
SPRING_OFFSET: Final = "kafka_dlt-original-offset"
SPRING_TIMESTAMP: Final = "kafka_dlt-original-timestamp"
SPRING_GROUP: Final = "kafka_dlt-original-consumer-group"
SPRING_MESSAGE: Final = "kafka_dlt-exception-message"
SPRING_EXCEPTION: Final = "kafka_dlt-exception-fqcn"
SPRING_STACKTRACE: Final = "kafka_dlt-exception-stacktrace"
SPRING_ATTEMPTS: Final = "retry_topic-attempts"

STORY_NAMES: Final = frozenset(
    {
        *(TOPIC, PARTITION, OFFSET, GROUP, DELIVERY_COUNT, MESSAGE, EXCEPTION, STACKTRACE, TIMESTAMP, PIPELINE, STEP),
        SCHEMA_ID,
        *(SPRING_TOPIC, SPRING_PARTITION, SPRING_OFFSET, SPRING_TIMESTAMP, SPRING_GROUP),
        *(SPRING_MESSAGE, SPRING_EXCEPTION, SPRING_STACKTRACE, SPRING_ATTEMPTS),
    }
)
"""All headers that tell a dead letter's story; a record that dies again gets a new story."""

RETRY_NAMES: Final = frozenset(
    {
        *(name for name in queue_names.BROKER_HEADERS if name != queue_names.RETRY_BEHIND),
        *(queue_names.RETRY_REASON, queue_names.RETRY_EXCEPTION, queue_names.RETRY_REJECT, queue_names.RETRY_ORIGIN),
    }
)
"""Headers of earlier deliveries, which end with the record: a dead letter does not have them."""

REASON_CHARACTERS_MAX: Final = 2000
STACK_CHARACTERS_MAX: Final = 8000

_INT32_BYTES: Final = 4
_INT64_BYTES: Final = 8
_DIGITS_MAX: Final = 19


class DeadLetterHeaders(Enum):
    """The names of the headers; the value is that of the topic config `ottla.deadletter.headers`."""

    KIP1191 = "kip1191"
    SPRING = "spring"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a record was delivered first."""

    topic: str
    partition: int
    offset: int | None = None
    """None if it is not known: a plain client handed the record back without saying."""

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{'' if self.offset is None else self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Why a record is dead, and where it came from."""

    origin: Origin
    reason: str
    exception: str | None = None
    """The type of the error, with its module."""
    group: str | None = None
    """The group that could not handle the record."""
    attempts: int | None = None
    """How often the record was delivered to the group."""
    timestamp_ms: int | None = None
    stack: str | None = None
    schema_id: str | None = None
    """The schema of the value in the registry, if it has one; not among Spring's headers."""


def parse_origin(text: bytes | None) -> Origin | None:
    """The origin in a header `ottla.retry.origin`; None if it is malformed."""
    try:
        topic, partition, offset = (text or b"").decode().split("/")
    except ValueError:
        return None
    if not topic or not _is_number(partition) or not (offset == "" or _is_number(offset)):
        return None
    return Origin(topic=topic, partition=int(partition), offset=int(offset) if offset else None)


def dead_letter_headers(
    headers: Iterable[Header], letter: DeadLetter, style: DeadLetterHeaders = DeadLetterHeaders.KIP1191
) -> list[Header]:
    """The headers of a dead letter: the record's own, without those of earlier deliveries, and its story."""
    kept = [header for header in headers if header[0] not in STORY_NAMES and header[0] not in RETRY_NAMES]
    return [*kept, *story_headers(letter, style)]


def story_headers(letter: DeadLetter, style: DeadLetterHeaders = DeadLetterHeaders.KIP1191) -> list[Header]:
    """The headers that tell the story. What is not known is left out."""
    origin = letter.origin
    reason = letter.reason[:REASON_CHARACTERS_MAX]
    stack = None if letter.stack is None else letter.stack[-STACK_CHARACTERS_MAX:]
    story: dict[str, str | bytes | None]
    if style is DeadLetterHeaders.KIP1191:
        story = {
            TOPIC: origin.topic,
            PARTITION: str(origin.partition),
            OFFSET: _text(origin.offset),
            GROUP: letter.group,
            DELIVERY_COUNT: _text(letter.attempts),
            MESSAGE: reason,
            EXCEPTION: letter.exception,
            TIMESTAMP: _text(letter.timestamp_ms),
            STACKTRACE: stack,
            SCHEMA_ID: letter.schema_id,
        }
    else:
        story = {
            SPRING_TOPIC: origin.topic,
            SPRING_PARTITION: _big_endian(origin.partition, _INT32_BYTES),
            SPRING_OFFSET: _big_endian(origin.offset, _INT64_BYTES),
            SPRING_GROUP: letter.group,
            SPRING_ATTEMPTS: _big_endian(letter.attempts, _INT32_BYTES),
            SPRING_MESSAGE: reason,
            SPRING_EXCEPTION: letter.exception,
            SPRING_TIMESTAMP: _big_endian(letter.timestamp_ms, _INT64_BYTES),
            SPRING_STACKTRACE: stack,
        }
    return [
        (name, value if isinstance(value, bytes) else value.encode(errors="replace"))
        for name, value in story.items()
        if value is not None
    ]


def read_dead_letter(headers: Iterable[Header]) -> DeadLetter | None:
    """The story in the headers of a dead letter, in either style; None without an origin that can be read."""
    found = {name: value for name, value in headers if name in STORY_NAMES and value is not None}
    if TOPIC in found:
        topic, partition = _decoded(found[TOPIC]), _number(found.get(PARTITION))
        offset, attempts, timestamp_ms = (_number(found.get(name)) for name in (OFFSET, DELIVERY_COUNT, TIMESTAMP))
        names = (MESSAGE, EXCEPTION, GROUP, STACKTRACE)
    elif SPRING_TOPIC in found:
        topic, partition = _decoded(found[SPRING_TOPIC]), _from_big_endian(found.get(SPRING_PARTITION))
        offset, attempts, timestamp_ms = (
            _from_big_endian(found.get(name)) for name in (SPRING_OFFSET, SPRING_ATTEMPTS, SPRING_TIMESTAMP)
        )
        names = (SPRING_MESSAGE, SPRING_EXCEPTION, SPRING_GROUP, SPRING_STACKTRACE)
    else:
        return None
    if not topic or partition is None or partition < 0:
        return None
    reason, exception, group, stack = (_decoded(found[name]) if name in found else None for name in names)
    return DeadLetter(
        origin=Origin(topic=topic, partition=partition, offset=offset),
        reason=reason or "",
        exception=exception,
        group=group,
        attempts=attempts,
        timestamp_ms=timestamp_ms,
        stack=stack,
        schema_id=_decoded(found[SCHEMA_ID]) if SCHEMA_ID in found else None,
    )


def dead_letter_partition(partition: int, partitions: int) -> int:
    """The partition of a dead letter, by that of its record and how many the dead-letter topic has, as in KIP-1191."""
    return partition % partitions


def error_type(error: BaseException) -> str:
    """The type of an error as dead letters name it: with its module."""
    return f"{type(error).__module__}.{type(error).__qualname__}"


def error_reason(error: BaseException) -> str:
    """The message of an error, or its type if it has none, shortened to a reasonable length."""
    return (str(error) or type(error).__name__)[:REASON_CHARACTERS_MAX]


def first_delivery(position: TopicPartition, offset: int, headers: Iterable[Header], group: str | None) -> Origin:
    """Where a record that a consumer of `group` has read was delivered first, as far as that is known.

    A record of a redelivery topic has its origin in a header, unless a plain client handed it back without one.
    """
    topic = redelivered_topic(position.topic, group)
    if topic is None:
        return Origin(topic=position.topic, partition=position.partition, offset=offset)
    told = None
    for name, value in headers:
        if name == queue_names.RETRY_ORIGIN:
            told = parse_origin(value)
    return told or Origin(topic=topic, partition=position.partition)


def redelivered_topic(topic: str, group: str | None) -> str | None:
    """The topic whose redelivery topic for the group this is; None if it is an ordinary topic."""
    ending = queue_names.redelivery_topic("", group) if group else ""
    return topic[: -len(ending)] if ending and topic.endswith(ending) and len(topic) > len(ending) else None


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def _number(value: bytes | None) -> int | None:
    text = "" if value is None else _decoded(value)
    return int(text) if _is_number(text) else None


def _decoded(value: bytes) -> str:
    return value.decode(errors="replace")


def _big_endian(number: int | None, size: int) -> bytes | None:
    return None if number is None else number.to_bytes(size, "big", signed=True)


def _from_big_endian(value: bytes | None) -> int | None:
    return int.from_bytes(value, "big", signed=True) if value and len(value) <= _INT64_BYTES else None
