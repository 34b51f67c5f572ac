"""The records of `__consumer_offsets` that consumer groups write, in Kafka's own bytes.

One class for each record type, with its key's fields first; a value of None is the tombstone of that key. Types 3 to 8
and 16; those of classic groups are in `groups/records.py`. Written as Kafka 4.3 does, in version 0 with tagged fields.
The partition metadata (type 4) that Kafka wrote before 4.1 is read, so that it can be deleted, but never written.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct, pack
from typing import Final, TypeVar
from uuid import UUID

from ottla.coordination.runtime.effects import CoordinatorRecord, DecodedRecord
from ottla.coordination.runtime.record_fields import FieldReader, FieldWriter
from ottla.protocol.varints import unsigned_varint

V = TypeVar("V")

Assignment = Mapping[UUID, tuple[int, ...]]
"""Partitions by topic id, ascending; a topic without partitions is not in it."""

Holdings = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch since which the member has it."""

EPOCH_KIND: Final = 3
PARTITION_METADATA_KIND: Final = 4
MEMBER_KIND: Final = 5
TARGET_EPOCH_KIND: Final = 6
TARGET_KIND: Final = 7
CURRENT_KIND: Final = 8
REGEX_KIND: Final = 16

_INT16: Final = Struct(">h")
_VERSION: Final = 0
_CURRENT: Final = Struct(">hiib")
_NO_TAGS: Final = b"\0"
_ONE_TAG: Final = b"\1\0"
_EMPTY_ARRAY: Final = b"\1"
_ONLY_TAG: Final = 0


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
            key, value = _key(CURRENT_KIND, group_id, member_id), _or_none(_write_current, current)
        case TargetRecord(group_id, member_id, assignment):
            key, value = _key(TARGET_KIND, group_id, member_id), _or_none(_write_target, assignment)
        case MemberRecord(group_id, member_id, member):
            key, value = _key(MEMBER_KIND, group_id, member_id), _or_none(_write_member, member)
        case EpochRecord(group_id, epoch):
            key, value = _key(EPOCH_KIND, group_id), _or_none(_write_epoch, epoch)
        case TargetEpochRecord(group_id, target):
            key, value = _key(TARGET_EPOCH_KIND, group_id), _or_none(_write_target_epoch, target)
        case PartitionMetadataRecord(group_id):
            return CoordinatorRecord(_key(PARTITION_METADATA_KIND, group_id), None)
        case RegexRecord(group_id, regex, resolved):
            key, value = _key(REGEX_KIND, group_id, regex), _or_none(_write_regex, resolved)
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


def _or_none(write: Callable[[V], bytes], value: V | None) -> bytes | None:
    return None if value is None else write(value)


def _key(kind: int, *names: str) -> bytes:
    key = _INT16.pack(kind)
    for name in names:
        text = name.encode()
        key += _INT16.pack(len(text)) + text
    return key


def _value_fields(value: bytes, what: str) -> FieldReader:
    fields = FieldReader(value, what)
    if fields.version != _VERSION:
        raise fields.fail(f"version {fields.version} is newer than {_VERSION}, the newest supported version,")
    fields.flexible = True
    return fields


def _tag_writer() -> FieldWriter:
    return FieldWriter(_VERSION, flexible=True)


def _tag_bytes(fields: FieldWriter) -> bytes:
    return fields.finish()[2:]


def _tag_fields(tag: bytes, what: str) -> FieldReader:
    return _value_fields(b"\0\0" + tag, what)


def _write_epoch(value: EpochValue) -> bytes:
    return _write_tagged_epoch(value.epoch, value.metadata_hash)


def _read_epoch(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id = key.text()
    if value is None:
        return EpochRecord(group_id, None)
    epoch, digest = _read_tagged_epoch(value, "a group's epoch", "a group's metadata hash")
    return EpochRecord(group_id, EpochValue(epoch=epoch, metadata_hash=digest))


def _read_partition_metadata(key: FieldReader, value: bytes | None) -> GroupRecord:
    return PartitionMetadataRecord(key.text(), value is not None)


def _write_member(value: MemberValue) -> bytes:
    fields = FieldWriter(_VERSION, flexible=True)
    fields.text(value.instance_id)
    fields.text(value.rack_id)
    fields.text(value.client_id)
    fields.text(value.client_host)
    fields.count(len(value.topic_names))
    for name in value.topic_names:
        fields.text(name)
    fields.text(value.topic_regex)
    fields.int32(value.rebalance_timeout_ms)
    fields.text(value.server_assignor)
    fields.tags({} if value.classic is None else {_ONLY_TAG: _write_classic(value.classic)})
    return fields.finish()


def _write_classic(value: ClassicMetadata) -> bytes:
    fields = _tag_writer()
    # A nullable structure starts with a byte that says whether it is present.
    fields.int8(1)
    fields.int32(value.session_timeout_ms)
    fields.count(len(value.protocols))
    for name, metadata in value.protocols:
        fields.text(name)
        fields.blob(metadata)
        fields.tags()
    fields.tags()
    return _tag_bytes(fields)


def _read_member(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id, member_id = key.text(), key.text()
    if value is None:
        return MemberRecord(group_id, member_id, None)
    fields = _value_fields(value, "a member's metadata")
    instance_id, rack_id = fields.nullable_text(), fields.nullable_text()
    client_id, client_host = fields.text(), fields.text()
    topic_names = tuple(fields.text() for _ in range(fields.count()))
    topic_regex = fields.nullable_text()
    rebalance_timeout_ms = fields.int32()
    server_assignor = fields.nullable_text()
    tag = fields.tags().get(_ONLY_TAG)
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
    fields = _tag_fields(tag, "a classic member's metadata")
    if fields.int8() < 0:
        return None
    session_timeout_ms = fields.int32()
    protocols = []
    for _ in range(fields.count()):
        protocols.append((fields.text(), fields.blob()))
        fields.tags()
    return ClassicMetadata(session_timeout_ms=session_timeout_ms, protocols=tuple(protocols))


def _write_target_epoch(value: TargetEpochValue) -> bytes:
    return _write_tagged_epoch(value.epoch, value.timestamp_ms)


def _read_target_epoch(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id = key.text()
    if value is None:
        return TargetEpochRecord(group_id, None)
    epoch, timestamp_ms = _read_tagged_epoch(value, "a target assignment's epoch", "a target assignment's time")
    return TargetEpochRecord(group_id, TargetEpochValue(epoch=epoch, timestamp_ms=timestamp_ms))


def _write_tagged_epoch(epoch: int, number: int) -> bytes:
    """An epoch, and a number in a tagged field, which is left out for 0."""
    fields = FieldWriter(_VERSION, flexible=True)
    fields.int32(epoch)
    tag = _tag_writer()
    tag.int64(number)
    fields.tags({_ONLY_TAG: _tag_bytes(tag)} if number else {})
    return fields.finish()


def _read_tagged_epoch(value: bytes, what: str, what_number: str) -> tuple[int, int]:
    """The epoch and the number of `_write_tagged_epoch`; the arguments name both in errors."""
    fields = _value_fields(value, what)
    epoch = fields.int32()
    tag = fields.tags().get(_ONLY_TAG)
    return epoch, 0 if tag is None else _tag_fields(tag, what_number).int64()


def _write_target(value: Assignment) -> bytes:
    fields = FieldWriter(_VERSION, flexible=True)
    fields.count(len(value))
    for topic_id, partitions in sorted(value.items()):
        fields.uuid(topic_id)
        fields.int32s(partitions)
        fields.tags()
    fields.tags()
    return fields.finish()


def _read_target(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id, member_id = key.text(), key.text()
    if value is None:
        return TargetRecord(group_id, member_id, None)
    fields = _value_fields(value, "a member's target assignment")
    assignment = {}
    for _ in range(fields.count()):
        topic_id = fields.uuid()
        assignment[topic_id] = tuple(sorted(fields.int32s()))
        fields.tags()
    return TargetRecord(group_id, member_id, dict(sorted(assignment.items())))


def _write_current(value: CurrentValue) -> bytes:
    # The record that is written most, by far: packed in as few steps as possible.
    head = _CURRENT.pack(_VERSION, value.member_epoch, value.previous_member_epoch, value.state)
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
    fields = _value_fields(value, "a member's current assignment")
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
        tag = fields.tags().get(_ONLY_TAG)
        # A null array, or one of the wrong length, means the same as no tag: as old as the member epoch.
        since = () if tag in (None, b"\0") else _tag_fields(tag or b"", "assignment epochs").int32s()
        if len(since) != len(partitions):
            since = (max(member_epoch, 0),) * len(partitions)
        holdings[topic_id] = dict(sorted(zip(partitions, since, strict=True)))
    return dict(sorted(holdings.items()))


def _write_regex(value: RegexValue) -> bytes:
    fields = FieldWriter(_VERSION, flexible=True)
    fields.count(len(value.topics))
    for topic in value.topics:
        fields.text(topic)
    fields.int64(value.version)
    fields.int64(value.timestamp_ms)
    fields.tags()
    return fields.finish()


def _read_regex(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id, regex = key.text(), key.text()
    if value is None:
        return RegexRecord(group_id, regex, None)
    fields = _value_fields(value, "a resolved pattern")
    topics = tuple(fields.text() for _ in range(fields.count()))
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
