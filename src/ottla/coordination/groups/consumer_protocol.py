"""What consumers of classic groups tell each other, which the coordinator otherwise leaves alone: subscriptions and
assignments, versions 0 to 3.

Read and written only where a group changes between the protocols, or has members of both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.coordination.runtime.record_fields import FieldReader, FieldWriter

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_VERSION_MAX: Final = 3

NamedAssignment = Mapping[str, tuple[int, ...]]
"""Partitions by topic name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a consumer wants, and what it still owns; one that gives up everything before it joins owns nothing."""

    version: int
    topics: tuple[str, ...]
    owned: NamedAssignment
    rack_id: str | None = None


def version_of(data: bytes) -> int:
    """The version of a subscription or an assignment, whatever else is in it."""
    return int.from_bytes(data[:2], signed=True)


def read_subscription(data: bytes) -> Subscription:
    """Takes a member's metadata apart; raises `CorruptError` for what is none."""
    fields = FieldReader(data, "a consumer's subscription")
    version = fields.version
    topics = tuple(fields.text() for _ in range(fields.count()))
    _user_data(fields)
    owned = _read_partitions(fields) if version >= 1 else {}
    if version >= 2:
        fields.int32()
    rack_id = fields.nullable_text() if version >= 3 else None
    return Subscription(version=version, topics=topics, owned=owned, rack_id=rack_id)


def read_assignment(data: bytes) -> tuple[NamedAssignment, bytes]:
    """Takes a member's assignment apart: the partitions, and what its leader added for itself. Nothing has neither."""
    if not data:
        return {}, b""
    fields = FieldReader(data, "a consumer's assignment")
    return _read_partitions(fields), _user_data(fields)


def write_assignment(assignment: NamedAssignment, version: int) -> bytes:
    """An assignment in the version that its member's subscription had."""
    fields = FieldWriter(min(max(version, 0), _VERSION_MAX))
    fields.count(len(assignment))
    for topic, partitions in assignment.items():
        fields.text(topic)
        fields.count(len(partitions))
        for partition in partitions:
            fields.int32(partition)
    fields.int32(-1)
    return fields.finish()


def _read_partitions(fields: FieldReader) -> NamedAssignment:
    assignment = {}
    for _ in range(fields.count()):
        topic = fields.text()
        assignment[topic] = tuple(fields.int32() for _ in range(fields.count()))
    return assignment


def _user_data(fields: FieldReader) -> bytes:
    size = fields.int32()
    return b"" if size < 0 else fields.take(size)
