"""Produce requests from finished batches, which are not copied, and their responses.

Uses versions 9 to 12, which share one layout with topic names. Pure; `sender.py` sends them.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from ottla.model.buffer import Buffer
from ottla.model.ids import TopicPartition
from ottla.protocol.fields import FieldReader, compact_string
from ottla.protocol.varints import unsigned_varint

VERSION_MIN: Final = 9
VERSION_MAX: Final = 12
_START: Final = Struct(">hi")
_INDEX: Final = Struct(">i")
_PARTITION: Final = Struct(">ihqqq")
_LEADER: Final = Struct(">ii")
_CURRENT_LEADER_TAG: Final = 0


class Produced(NamedTuple):
    """The result for one partition's batch."""

    partition: TopicPartition
    error_code: int
    base_offset: int
    append_time: int
    """-1 unless the topic's timestamps are those of the broker."""
    error_message: str | None
    leader: int = -1
    leader_epoch: int = -1
    """The current leader, if the broker that refused the batch sent it; otherwise -1."""


def produce_body(
    batches: Sequence[tuple[TopicPartition, Buffer]],
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> list[Buffer]:
    """The body of a request with one batch for each partition; batches of one topic must be adjacent."""
    parts: list[Buffer] = []
    head = bytearray(compact_string(transactional_id) + _START.pack(acks, timeout_ms))
    topics = _by_topic(batches)
    head += unsigned_varint(len(topics) + 1)
    for topic, some in topics:
        head += compact_string(topic) + unsigned_varint(len(some) + 1)
        for index, batch in some:
            head += _INDEX.pack(index) + unsigned_varint(len(batch) + 1)
            parts += (bytes(head), batch)
            # After the records come the partition's tagged fields.
            head = bytearray(b"\0")
        head += b"\0"
    head += b"\0"
    parts.append(bytes(head))
    return parts


def read_produce_answer(frame: memoryview) -> list[Produced]:
    """The outcome of every partition; raises `BrokenAnswerError`."""
    reader = FieldReader.of_response(frame)
    found: list[Produced] = []
    for _ in range(reader.count()):
        topic = reader.string() or ""
        for _ in range(reader.count()):
            index, error_code, base_offset, append_time, _ = reader.unpack(_PARTITION)
            reasons = []
            for _ in range(reader.count()):
                (at,) = reader.unpack(_INDEX)
                reasons.append(f"record {at}: {reader.string()}")
                reader.skip_tags()
            message = reader.string()
            leader, leader_epoch = _current_leader(reader)
            # Some brokers repeat the first record's reason in the message.
            new_reasons = [each for each in reasons[:3] if each not in (message or "")]
            message = "; ".join([*([message] if message else []), *new_reasons]) or None
            partition = TopicPartition(topic, index)
            found.append(
                Produced(partition, error_code, base_offset, append_time, message, int(leader), int(leader_epoch))
            )
        reader.skip_tags()
    return found


def _current_leader(reader: FieldReader) -> tuple[int, int]:
    """What the tagged fields of a partition say about its leader: (id, epoch), both -1 if absent."""
    leader, leader_epoch = -1, -1
    for tag, value in reader.tags():
        if tag == _CURRENT_LEADER_TAG and len(value) >= _LEADER.size:
            leader, leader_epoch = _LEADER.unpack_from(value)
    return leader, leader_epoch


def _by_topic(batches: Sequence[tuple[TopicPartition, Buffer]]) -> list[tuple[str, list[tuple[int, Buffer]]]]:
    grouped: list[tuple[str, list[tuple[int, Buffer]]]] = []
    for partition, batch in batches:
        if not grouped or grouped[-1][0] != partition.topic:
            grouped.append((partition.topic, []))
        grouped[-1][1].append((partition.partition, batch))
    return grouped
