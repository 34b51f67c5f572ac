"""The records of `__consumer_offsets` that share groups write, in Kafka's own bytes.

One class for each record type, with its key's fields first; a value of None is the tombstone of that key. Types 10 to
15, written as Kafka 4.3 does, in version 0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from ottla.coordination.groups.record_values import (
    Assignment,
    or_none,
    read_assignment,
    read_tagged_epoch,
    value_fields,
    value_writer,
    write_assignment,
    write_key,
    write_tagged_epoch,
)
from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.coordination.runtime.record_fields import FieldReader

MEMBER_KIND: Final = 10
EPOCH_KIND: Final = 11
TARGET_EPOCH_KIND: Final = 12
TARGET_KIND: Final = 13
CURRENT_KIND: Final = 14
STATE_PARTITIONS_KIND: Final = 15

_STABLE: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochValue:
    """The group's epoch, and a digest of the topics that the group was subscribed to then."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    """What a member sent about itself."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEpochValue:
    """The group epoch that the target assignment was computed for, and when (0: not known)."""

    epoch: int
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentValue:
    """A member's epoch and the partitions that it may fetch."""

    member_epoch: int
    previous_member_epoch: int
    assigned: Assignment


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """Partitions of a topic; the name is the one that the topic had when this was written."""

    name: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePartitionsValue:
    """Which share-partitions have state at the share coordinator, by topic id."""

    initializing: Mapping[UUID, TopicPartitions] = field(default_factory=dict)
    """The share coordinator was asked, and has not confirmed."""
    initialized: Mapping[UUID, TopicPartitions] = field(default_factory=dict)
    deleting: Mapping[UUID, str] = field(default_factory=dict)
    """Topic names; all partitions of these topics are being deleted."""


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The group itself; its tombstone deletes the group."""

    group_id: str
    value: EpochValue | None


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """What a member sent about itself; the tombstone, the last of a member's three, deletes the member."""

    group_id: str
    member_id: str
    value: MemberValue | None


@dataclass(frozen=True, slots=True)
class TargetEpochRecord:
    """The epoch of the target assignment; written after its members' targets."""

    group_id: str
    value: TargetEpochValue | None


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """A member's target assignment."""

    group_id: str
    member_id: str
    value: Assignment | None


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    """A member's current assignment."""

    group_id: str
    member_id: str
    value: CurrentValue | None


@dataclass(frozen=True, slots=True)
class StatePartitionsRecord:
    """Which share-partitions of the group have state at the share coordinator."""

    group_id: str
    value: StatePartitionsValue | None


GroupRecord = EpochRecord | MemberRecord | TargetEpochRecord | TargetRecord | CurrentRecord | StatePartitionsRecord


def encode(record: GroupRecord) -> CoordinatorRecord:
    """The record as it is appended."""
    match record:
        case EpochRecord(group_id, value):
            return CoordinatorRecord(write_key(EPOCH_KIND, group_id), or_none(_write_epoch, value))
        case MemberRecord(group_id, member_id, member):
            return CoordinatorRecord(write_key(MEMBER_KIND, group_id, member_id), or_none(_write_member, member))
        case TargetEpochRecord(group_id, target):
            return CoordinatorRecord(write_key(TARGET_EPOCH_KIND, group_id), or_none(_write_target_epoch, target))
        case TargetRecord(group_id, member_id, assignment):
            return CoordinatorRecord(write_key(TARGET_KIND, group_id, member_id), or_none(_write_target, assignment))
        case CurrentRecord(group_id, member_id, current):
            return CoordinatorRecord(write_key(CURRENT_KIND, group_id, member_id), or_none(_write_current, current))
        case StatePartitionsRecord(group_id, states):
            return CoordinatorRecord(write_key(STATE_PARTITIONS_KIND, group_id), or_none(_write_states, states))


def decode(record: CoordinatorRecord) -> GroupRecord | None:
    """The record that was appended; None for a type that share groups do not write."""
    key = FieldReader(record.key, "a key of __consumer_offsets")
    read = _READERS.get(key.version)
    return None if read is None else read(key, record.value)


def _write_epoch(value: EpochValue) -> bytes:
    fields = value_writer()
    fields.int32(value.epoch)
    fields.int64(value.metadata_hash)
    fields.tags()
    return fields.finish()


def _read_epoch(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id = key.text()
    if value is None:
        return EpochRecord(group_id, None)
    fields = value_fields(value, "a share group's epoch")
    return EpochRecord(group_id, EpochValue(epoch=fields.int32(), metadata_hash=fields.int64()))


def _write_member(value: MemberValue) -> bytes:
    fields = value_writer()
    fields.text(value.rack_id)
    fields.text(value.client_id)
    fields.text(value.client_host)
    fields.texts(value.topic_names)
    fields.tags()
    return fields.finish()


def _read_member(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id, member_id = key.text(), key.text()
    if value is None:
        return MemberRecord(group_id, member_id, None)
    fields = value_fields(value, "a share group member's metadata")
    member = MemberValue(
        rack_id=fields.nullable_text(),
        client_id=fields.text(),
        client_host=fields.text(),
        topic_names=fields.texts(),
    )
    return MemberRecord(group_id, member_id, member)


def _write_target_epoch(value: TargetEpochValue) -> bytes:
    return write_tagged_epoch(value.epoch, value.timestamp_ms)


def _read_target_epoch(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id = key.text()
    if value is None:
        return TargetEpochRecord(group_id, None)
    epoch, timestamp_ms = read_tagged_epoch(value, "a share group's target epoch", "a share group's target time")
    return TargetEpochRecord(group_id, TargetEpochValue(epoch=epoch, timestamp_ms=timestamp_ms))


def _write_target(value: Assignment) -> bytes:
    fields = value_writer()
    write_assignment(fields, value)
    fields.tags()
    return fields.finish()


def _read_target(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id, member_id = key.text(), key.text()
    if value is None:
        return TargetRecord(group_id, member_id, None)
    return TargetRecord(
        group_id, member_id, read_assignment(value_fields(value, "a share group member's target assignment"))
    )


def _write_current(value: CurrentValue) -> bytes:
    fields = value_writer()
    fields.int32(value.member_epoch)
    fields.int32(value.previous_member_epoch)
    # A member of a share group gives nothing up, so it is always in the first of Kafka's states.
    fields.int8(_STABLE)
    write_assignment(fields, value.assigned)
    fields.tags()
    return fields.finish()


def _read_current(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id, member_id = key.text(), key.text()
    if value is None:
        return CurrentRecord(group_id, member_id, None)
    fields = value_fields(value, "a share group member's current assignment")
    member_epoch, previous_member_epoch, _ = fields.int32(), fields.int32(), fields.int8()
    current = CurrentValue(
        member_epoch=member_epoch, previous_member_epoch=previous_member_epoch, assigned=read_assignment(fields)
    )
    return CurrentRecord(group_id, member_id, current)


def _write_states(value: StatePartitionsValue) -> bytes:
    fields = value_writer()
    for topics in (value.initializing, value.initialized):
        fields.count(len(topics))
        for topic_id, topic in sorted(topics.items()):
            fields.uuid(topic_id)
            fields.text(topic.name)
            fields.int32s(tuple(sorted(topic.partitions)))
            fields.tags()
    fields.count(len(value.deleting))
    for topic_id, name in sorted(value.deleting.items()):
        fields.uuid(topic_id)
        fields.text(name)
        fields.tags()
    fields.tags()
    return fields.finish()


def _read_states(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id = key.text()
    if value is None:
        return StatePartitionsRecord(group_id, None)
    fields = value_fields(value, "a share group's initialized partitions")

    def topics() -> dict[UUID, TopicPartitions]:
        found = {}
        for _ in range(fields.count()):
            topic_id = fields.uuid()
            found[topic_id] = TopicPartitions(fields.text(), frozenset(fields.int32s()))
            fields.tags()
        return found

    initializing, initialized = topics(), topics()
    deleting = {}
    for _ in range(fields.count()):
        topic_id = fields.uuid()
        deleting[topic_id] = fields.text()
        fields.tags()
    states = StatePartitionsValue(initializing=initializing, initialized=initialized, deleting=deleting)
    return StatePartitionsRecord(group_id, states)


_READERS: Final[Mapping[int, Callable[[FieldReader, bytes | None], GroupRecord]]] = {
    EPOCH_KIND: _read_epoch,
    MEMBER_KIND: _read_member,
    TARGET_EPOCH_KIND: _read_target_epoch,
    TARGET_KIND: _read_target,
    CURRENT_KIND: _read_current,
    STATE_PARTITIONS_KIND: _read_states,
}
RECORD_TYPES: Final = frozenset(_READERS)
