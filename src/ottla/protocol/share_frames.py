"""ShareFetch and ShareAcknowledge (KIP-932), versions 1 and 2; records are views of the frame and are not copied. Pure.

Version 2 adds the acquire mode (KIP-1206) and the renewal of acquisition locks (KIP-1222). Sessions and epochs are the
client's (`ottla.client.share.share_session_state`).
"""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from ottla.protocol.fetch_layout import INDEX, by_topic
from ottla.protocol.fields import FieldReader, compact_string
from ottla.protocol.varints import unsigned_varint

VERSION: Final = 2
"""The first version with acquire modes and renewals."""
GAP: Final = 0
"""The acknowledge type of an acquired offset that has no record."""

_EPOCH: Final = Struct(">i")
_LIMITS: Final = Struct(">iiiii")
_MODE: Final = Struct(">b?")
_FLAG: Final = Struct(">?")
_BATCH: Final = Struct(">qq")
_START: Final = Struct(">ih")
_CODE: Final = Struct(">h")
_TOPIC_ID: Final = Struct(">16s")
_LEADER: Final = Struct(">ii")
_ACQUIRED: Final = Struct(">qqh")


class TopicIdPartition(NamedTuple):
    """A partition of the topic with this id."""

    topic_id: UUID
    partition: int


class AcknowledgementBatch(NamedTuple):
    """Offsets that are acknowledged in the same way; both ends are included."""

    first_offset: int
    last_offset: int
    type: int


class AcquiredRange(NamedTuple):
    """Offsets that a fetch acquired; both ends are included."""

    first_offset: int
    last_offset: int
    delivery_count: int


class ShareLimits(NamedTuple):
    """How much a ShareFetch waits for and returns."""

    wait_ms: int
    bytes_min: int
    bytes_max: int
    records_max: int
    batch_records: int


class ShareFetched(NamedTuple):
    """The result for one partition. `records` are whole batches; only offsets in `acquired` belong to the member."""

    partition: TopicIdPartition
    error_code: int
    error_message: str | None
    acknowledge_error_code: int
    acknowledge_error_message: str | None
    records: memoryview
    acquired: list[AcquiredRange]


class Acknowledged(NamedTuple):
    """The result of a ShareAcknowledge for one partition."""

    partition: TopicIdPartition
    error_code: int
    error_message: str | None


class ShareAnswer(NamedTuple):
    """A response. After an error of the whole response there are no partitions."""

    error_code: int
    error_message: str | None
    lock_timeout_ms: int
    """How long records stay acquired; 0 if the broker does not say."""
    fetched: list[ShareFetched]
    acknowledged: list[Acknowledged]


Acknowledging = Mapping[TopicIdPartition, Sequence[AcknowledgementBatch]]


def acknowledgement_batches(types: Mapping[int, int]) -> list[AcknowledgementBatch]:
    """Acknowledge types by offset as batches: runs of adjacent offsets with the same type."""
    found: list[AcknowledgementBatch] = []
    for offset in sorted(types):
        kind = types[offset]
        last = found[-1] if found else None
        if last is not None and last.last_offset + 1 == offset and last.type == kind:
            found[-1] = last._replace(last_offset=offset)
        else:
            found.append(AcknowledgementBatch(offset, offset, kind))
    return found


def share_fetch_body(
    version: int,
    *,
    group_id: str,
    member_id: str,
    epoch: int,
    limits: ShareLimits,
    acquire_mode: int,
    partitions: Iterable[TopicIdPartition],
    acknowledgements: Acknowledging,
    forgotten: Iterable[TopicIdPartition],
) -> list[bytes]:
    """The body of a ShareFetch that adds partitions to the session, acknowledges records, and forgets partitions."""
    body = compact_string(group_id) + compact_string(member_id) + _EPOCH.pack(epoch) + _LIMITS.pack(*limits)
    if version >= VERSION:
        body += _MODE.pack(acquire_mode, False)
    named = sorted({*partitions, *acknowledgements})
    body += by_topic([(each.topic_id, _partition(each, acknowledgements)) for each in named], _id_bytes)
    body += by_topic([(each.topic_id, INDEX.pack(each.partition)) for each in sorted(forgotten)], _id_bytes)
    return [body + b"\0"]


def share_acknowledge_body(
    version: int, *, group_id: str, member_id: str, epoch: int, is_renewal: bool, acknowledgements: Acknowledging
) -> list[bytes]:
    """The body of a ShareAcknowledge; `is_renewal` if one of the acknowledgements renews a lock."""
    body = compact_string(group_id) + compact_string(member_id) + _EPOCH.pack(epoch)
    if version >= VERSION:
        body += _FLAG.pack(is_renewal)
    named = sorted(acknowledgements)
    body += by_topic([(each.topic_id, _partition(each, acknowledgements)) for each in named], _id_bytes)
    return [body + b"\0"]


def read_share_fetch(frame: memoryview) -> ShareAnswer:
    """The response to a ShareFetch. Raises `BrokenAnswerError`."""
    reader = FieldReader.of_response(frame)
    _, error_code = reader.unpack(_START)
    message = reader.string()
    (lock_timeout_ms,) = reader.unpack(INDEX)
    found: list[ShareFetched] = []
    for topic_id in _topics(reader):
        for _ in range(reader.count()):
            (index,) = reader.unpack(INDEX)
            (code,) = reader.unpack(_CODE)
            words = reader.string()
            (acknowledge_code,) = reader.unpack(_CODE)
            acknowledge_words = reader.string()
            _skip_leader(reader)
            records = reader.bytes()
            acquired = []
            for _ in range(reader.count()):
                acquired.append(AcquiredRange(*reader.unpack(_ACQUIRED)))
                reader.skip_tags()
            reader.skip_tags()
            found.append(
                ShareFetched(
                    TopicIdPartition(topic_id, index),
                    code,
                    words,
                    acknowledge_code,
                    acknowledge_words,
                    memoryview(b"") if records is None else records,
                    acquired,
                )
            )
        reader.skip_tags()
    return ShareAnswer(error_code, message, lock_timeout_ms, found, [])


def read_share_acknowledge(frame: memoryview, version: int) -> ShareAnswer:
    """The response to a ShareAcknowledge. Raises `BrokenAnswerError`."""
    reader = FieldReader.of_response(frame)
    _, error_code = reader.unpack(_START)
    message = reader.string()
    lock_timeout_ms = 0
    if version >= VERSION:
        (lock_timeout_ms,) = reader.unpack(INDEX)
    found: list[Acknowledged] = []
    for topic_id in _topics(reader):
        for _ in range(reader.count()):
            (index,) = reader.unpack(INDEX)
            (code,) = reader.unpack(_CODE)
            words = reader.string()
            _skip_leader(reader)
            reader.skip_tags()
            found.append(Acknowledged(TopicIdPartition(topic_id, index), code, words))
        reader.skip_tags()
    return ShareAnswer(error_code, message, lock_timeout_ms, [], found)


def _partition(partition: TopicIdPartition, acknowledgements: Acknowledging) -> bytes:
    batches = acknowledgements.get(partition, ())
    parts = [INDEX.pack(partition.partition), unsigned_varint(len(batches) + 1)]
    for batch in batches:
        # One type stands for all offsets of the batch.
        parts += (_BATCH.pack(batch.first_offset, batch.last_offset), bytes((2, batch.type)), b"\0")
    parts.append(b"\0")
    return b"".join(parts)


def _id_bytes(topic_id: UUID) -> bytes:
    return topic_id.bytes


def _topics(reader: FieldReader) -> Iterable[UUID]:
    for _ in range(reader.count()):
        (topic_id,) = reader.unpack(_TOPIC_ID)
        yield UUID(bytes=topic_id)


def _skip_leader(reader: FieldReader) -> None:
    """Passes over the current leader: the metadata is refreshed instead."""
    reader.unpack(_LEADER)
    reader.skip_tags()
