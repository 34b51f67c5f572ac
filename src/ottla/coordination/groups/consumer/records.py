"""The records of `__consumer_offsets` that consumer groups write, in Kafka's own bytes.

One class for each record type, with its key's fields first; a value of None is the tombstone of that key. Types 3 to 8
and 16; those of classic groups are in `groups/records.py`. Written as Kafka 4.3 does, in version 0 with tagged fields.
The partition metadata (type 4) that Kafka wrote before 4.1 is read, so that it can be deleted, but never written.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct, pack
from typing import Final
from uuid import UUID

from ottla.coordination.groups.record_values import (
    ONLY_TAG,
    VERSION,
    Assignment,
    or_none,
    read_assignment,
    read_tagged_epoch,
    tag_bytes,
    tag_fields,
    value_fields,
    value_writer,
    write_assignment,
    write_key,
    write_tagged_epoch,
)
from ottla.coordination.runtime.effects import CoordinatorRecord, DecodedRecord
from ottla.coordination.runtime.record_fields import FieldReader
from ottla.protocol.varints import unsigned_varint

Holdings = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch since which the member has it."""

EPOCH_KIND: Final = 3
PARTITION_METADATA_KIND: Final = 4
MEMBER_KIND: Final = 5
TARGET_EPOCH_KIND: Final = 6
TARGET_KIND: Final = 7
CURRENT_KIND: Final = 8
REGEX_KIND: Final = 16

_CURRENT: Final = Struct(">hiib")
_NO_TAGS: Final = b"\0"
_ONE_TAG: Final = b"\1\0"
_EMPTY_ARRAY: Final = b"\1"


class MemberState(IntEnum):
    """How far a member is on its way to its target."""

    STABLE = 0
    """Has its whole target. Exit: a newer target."""
    UNREVOKED = 1
    """Must give up partitions. Exits: it reports that it owns none of them, or its rebalance timeout passes."""
    UNRELEASED = 2
    """Is at the target epoch, but other members still own some of its partitions. Exit: they have released them."""
    UNKNOWN = 127
    """Written by a newer broker. Exit: it joins again without partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMetadata:
    """What a member that uses the classic protocol sent when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochValue:
    """The group's epoch, and a digest of the topics that the group was subscribed to then."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    """What a member sent about itself. An empty pattern is none; old clients send null."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEpochValue:
    """The group epoch that the target assignment was computed for, and when (0: not known)."""

    epoch: int
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentValue:
    """A member's epoch, and the partitions that it has or is giving up."""

    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    assigned: Holdings
    revoking: Holdings


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexValue:
    """The topics that a pattern matched, with the metadata version and the time."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The group itself; its tombstone deletes the group."""

    group_id: str
    value: EpochValue | None


@dataclass(frozen=True, slots=True)
class PartitionMetadataRecord:
    """Replaced by the hash in `EpochValue`; `exists` tells an old record from its tombstone."""

    group_id: str
    exists: bool


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
class RegexRecord:
    """The topics that a pattern of the group matched."""

    group_id: str
    regex: str
    value: RegexValue | None


GroupRecord = (
    EpochRecord
    | PartitionMetadataRecord
    | MemberRecord
    | TargetEpochRecord
    | TargetRecord
    | CurrentRecord
    | RegexRecord
)


def encode(record: GroupRecord) -> CoordinatorRecord:
    """The record as it is appended, with what it was encoded from."""
    match record:
        case CurrentRecord(group_id, member_id, current):
            key, value = write_key(CURRENT_KIND, group_id, member_id), or_none(_write_current, current)
        case TargetRecord(group_id, member_id, assignment):
            key, value = write_key(TARGET_KIND, group_id, member_id), or_none(_write_target, assignment)
        case MemberRecord(group_id, member_id, member):
            key, value = write_key(MEMBER_KIND, group_id, member_id), or_none(_write_member, member)
        case EpochRecord(group_id, epoch):
            key, value = write_key(EPOCH_KIND, group_id), or_none(_write_epoch, epoch)
        case TargetEpochRecord(group_id, target):
            key, value = write_key(TARGET_EPOCH_KIND, group_id), or_none(_write_target_epoch, target)
        case PartitionMetadataRecord(group_id):
            return CoordinatorRecord(write_key(PARTITION_METADATA_KIND, group_id), None)
        case RegexRecord(group_id, regex, resolved):
            key, value = write_key(REGEX_KIND, group_id, regex), or_none(_write_regex, resolved)
    encoded = DecodedRecord(key, value)
    encoded.content = record
    return encoded


def decode(record: CoordinatorRecord) -> GroupRecord | None:
    """The record that was appended; None for a type that consumer groups do not write."""
    if type(record) is DecodedRecord:
        content: GroupRecord = record.content
        return content
    key = FieldReader(record.key, "a key of __consumer_offsets")
    read = _READERS.get(key.version)
    return None if read is None else read(key, record.value)


def _write_epoch(value: EpochValue) -> bytes:
    return write_tagged_epoch(value.epoch, value.metadata_hash)


def _read_epoch(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id = key.text()
    if value is None:
        return EpochRecord(group_id, None)
    epoch, digest = read_tagged_epoch(value, "a group's epoch", "a group's metadata hash")
    return EpochRecord(group_id, EpochValue(epoch=epoch, metadata_hash=digest))


def _read_partition_metadata(key: FieldReader, value: bytes | None) -> GroupRecord:
    return PartitionMetadataRecord(key.text(), value is not None)


def _write_member(value: MemberValue) -> bytes:
    fields = value_writer()
    fields.text(value.instance_id)
    fields.text(value.rack_id)
    fields.text(value.client_id)
    fields.text(value.client_host)
    fields.texts(value.topic_names)
    fields.text(value.topic_regex)
    fields.int32(value.rebalance_timeout_ms)
    fields.text(value.server_assignor)
    fields.tags({} if value.classic is None else {ONLY_TAG: _write_classic(value.classic)})
    return fields.finish()


def _write_classic(value: ClassicMetadata) -> bytes:
    fields = value_writer()
    # A nullable structure starts with a byte that says whether it is present.
    fields.int8(1)
    fields.int32(value.session_timeout_ms)
    fields.count(len(value.protocols))
    for name, metadata in value.protocols:
        fields.text(name)
        fields.blob(metadata)
        fields.tags()
    fields.tags()
    return tag_bytes(fields)


def _read_member(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id, member_id = key.text(), key.text()
    if value is None:
        return MemberRecord(group_id, member_id, None)
    fields = value_fields(value, "a member's metadata")
    instance_id, rack_id = fields.nullable_text(), fields.nullable_text()
    client_id, client_host = fields.text(), fields.text()
    topic_names = fields.texts()
    topic_regex = fields.nullable_text()
    rebalance_timeout_ms = fields.int32()
    server_assignor = fields.nullable_text()
    tag = fields.tags().get(ONLY_TAG)
    return MemberRecord(
        group_id,
        member_id,
        MemberValue(
            instance_id=instance_id,
            rack_id=rack_id,
            client_id=client_id,
            client_host=client_host,
            topic_names=topic_names,
            topic_regex=topic_regex,
            rebalance_timeout_ms=rebalance_timeout_ms,
            server_assignor=server_assignor,
            classic=None if tag is None else _read_classic(tag),
        ),
    )


def _read_classic(tag: bytes) -> ClassicMetadata | None:
    fields = tag_fields(tag, "a classic member's metadata")
    if fields.int8() < 0:
        return None
    session_timeout_ms = fields.int32()
    protocols = []
    for _ in range(fields.count()):
        protocols.append((fields.text(), fields.blob()))
        fields.tags()
    return ClassicMetadata(session_timeout_ms=session_timeout_ms, protocols=tuple(protocols))


def _write_target_epoch(value: TargetEpochValue) -> bytes:
    return write_tagged_epoch(value.epoch, value.timestamp_ms)


def _read_target_epoch(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id = key.text()
    if value is None:
        return TargetEpochRecord(group_id, None)
    epoch, timestamp_ms = read_tagged_epoch(value, "a target assignment's epoch", "a target assignment's time")
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
    return TargetRecord(group_id, member_id, read_assignment(value_fields(value, "a member's target assignment")))


def _write_current(value: CurrentValue) -> bytes:
    # The record that is written most, by far: packed in as few steps as possible.
    head = _CURRENT.pack(VERSION, value.member_epoch, value.previous_member_epoch, value.state)
    return b"".join((head, _holdings(value.assigned), _holdings(value.revoking), _NO_TAGS))


def _holdings(holdings: Holdings) -> bytes:
    if not holdings:
        return _EMPTY_ARRAY
    parts = [unsigned_varint(len(holdings) + 1)]
    for topic_id, epochs in sorted(holdings.items()):
        count = unsigned_varint(len(epochs) + 1)
        numbers = f">{len(epochs)}i"
        since = count + pack(numbers, *[epoch for _, epoch in sorted(epochs.items())])
        size = unsigned_varint(len(since))
        parts += topic_id.bytes, count, pack(numbers, *sorted(epochs)), _ONE_TAG, size, since
    return b"".join(parts)


def _read_current(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id, member_id = key.text(), key.text()
    if value is None:
        return CurrentRecord(group_id, member_id, None)
    fields = value_fields(value, "a member's current assignment")
    member_epoch, previous_member_epoch, state = fields.int32(), fields.int32(), fields.int8()
    return CurrentRecord(
        group_id,
        member_id,
        CurrentValue(
            member_epoch=member_epoch,
            previous_member_epoch=previous_member_epoch,
            state=_STATES.get(state, MemberState.UNKNOWN),
            assigned=_read_holdings(fields, member_epoch),
            revoking=_read_holdings(fields, member_epoch),
        ),
    )


def _read_holdings(fields: FieldReader, member_epoch: int) -> Holdings:
    holdings = {}
    for _ in range(fields.count()):
        topic_id = fields.uuid()
        partitions = fields.int32s()
        tag = fields.tags().get(ONLY_TAG)
        # A null array, or one of the wrong length, means the same as no tag: as old as the member epoch.
        since = () if tag in (None, b"\0") else tag_fields(tag or b"", "assignment epochs").int32s()
        if len(since) != len(partitions):
            since = (max(member_epoch, 0),) * len(partitions)
        holdings[topic_id] = dict(sorted(zip(partitions, since, strict=True)))
    return dict(sorted(holdings.items()))


def _write_regex(value: RegexValue) -> bytes:
    fields = value_writer()
    fields.texts(value.topics)
    fields.int64(value.version)
    fields.int64(value.timestamp_ms)
    fields.tags()
    return fields.finish()


def _read_regex(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id, regex = key.text(), key.text()
    if value is None:
        return RegexRecord(group_id, regex, None)
    fields = value_fields(value, "a resolved pattern")
    topics = fields.texts()
    return RegexRecord(group_id, regex, RegexValue(topics=topics, version=fields.int64(), timestamp_ms=fields.int64()))


_STATES: Final = {state.value: state for state in MemberState}
_READERS: Final[Mapping[int, Callable[[FieldReader, bytes | None], GroupRecord]]] = {
    EPOCH_KIND: _read_epoch,
    PARTITION_METADATA_KIND: _read_partition_metadata,
    MEMBER_KIND: _read_member,
    TARGET_EPOCH_KIND: _read_target_epoch,
    TARGET_KIND: _read_target,
    CURRENT_KIND: _read_current,
    REGEX_KIND: _read_regex,
}
RECORD_TYPES: Final = frozenset(_READERS)
