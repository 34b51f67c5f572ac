"""The records of `__consumer_offsets` that classic groups and offsets write, in Kafka's own bytes.

A key starts with the record type: 0 and 1 for a committed offset, 2 for a classic group's metadata. The types of the
newer protocols, from 3 on, are in `consumer/records.py`; `kind_of` gives the type of a key. Values are read in every
version that Kafka has written, and written as Kafka 4.3 does: an
offset in version 4, or 1 if it has its own expiry; a group in version 3. `offset_records.pyx` does the same for many
offsets at once.
"""

from struct import Struct as Layout
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Struct

from ottla.coordination.runtime.effects import CoordinatorRecord, DecodedRecord
from ottla.coordination.runtime.record_fields import FieldReader, FieldWriter, uuid_of

LEGACY_OFFSET_KIND: Final = 0
OFFSET_KIND: Final = 1
GROUP_KIND: Final = 2

RECORD_TYPES: Final = frozenset({GROUP_KIND})
"""Those of classic groups."""

_OFFSET_VERSION: Final = 4
_OFFSET_VERSION_WITH_EXPIRY: Final = 1
_GROUP_VERSION: Final = 3
_FLEXIBLE_FROM: Final = 4
_VERSION_MAX: Final = 4
_TOPIC_ID_TAG: Final = 0
_NOT_KNOWN: Final = -1

_TEXT_SIZE: Final = Layout(">h")
_BLOB_SIZE: Final = Layout(">i")
_TIMEOUTS_AND_BLOB_SIZE: Final = Layout(">iii")
_NULL_TEXT: Final = _TEXT_SIZE.pack(-1)


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The key of a classic group."""

    group_id: str


class OffsetValue(NamedTuple):
    """A committed offset. `expire_ms` is set only if an old client asked for its own retention."""

    offset: int
    commit_ms: int
    leader_epoch: int = -1
    metadata: str = ""
    expire_ms: int | None = None
    topic_id: UUID | None = None


class CommittedOffset(NamedTuple):
    """A committed offset. `turn` is the number of its record: of two commits, the one written later counts."""

    value: OffsetValue
    turn: int


class MemberValue(Struct, frozen=True, kw_only=True):
    """A member of a stable group; `subscription` is its metadata for the chosen protocol."""

    member_id: str
    instance_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(Struct, frozen=True, kw_only=True):
    """A classic group at the moment when it became stable, or empty. `state_ms` is None where it was not recorded."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int | None
    members: tuple[MemberValue, ...]


class DecodedGroup(DecodedRecord):
    """A classic group that this broker encoded itself. A class of its own: `consumer/records.py` has other contents."""

    content: GroupValue


def kind_of(key: bytes) -> int:
    """The record type of a key."""
    return FieldReader(key, "a key of __consumer_offsets").version


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key under which a committed offset is written."""
    fields = FieldWriter(OFFSET_KIND)
    fields.text(group_id)
    fields.text(topic)
    fields.int32(partition)
    return fields.finish()


def group_key(group_id: str) -> bytes:
    """The key under which a classic group is written."""
    fields = FieldWriter(GROUP_KIND)
    fields.text(group_id)
    return fields.finish()


def offset_record(group_id: str, topic: str, partition: int, value: OffsetValue) -> CoordinatorRecord:
    """A committed offset as a record."""
    version = _OFFSET_VERSION if value.expire_ms is None else _OFFSET_VERSION_WITH_EXPIRY
    return CoordinatorRecord(offset_key(group_id, topic, partition), _write_offset(value, version))


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """Deletes a committed offset."""
    return CoordinatorRecord(offset_key(group_id, topic, partition), None)


def group_record(group_id: str, value: GroupValue) -> CoordinatorRecord:
    """A classic group as a record."""
    key, written = group_key(group_id), _write_group(value)
    if any(member.rebalance_timeout_ms == _NOT_KNOWN for member in value.members):
        # It is read with another timeout.
        return CoordinatorRecord(key, written)
    encoded = DecodedGroup(key, written)
    encoded.content = value
    return encoded


def group_of(record: CoordinatorRecord) -> GroupValue | None:
    """The classic group in a record with such a key; None in a tombstone."""
    if type(record) is DecodedGroup:
        return record.content
    return None if record.value is None else read_group(record.value)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """Deletes a classic group; its offsets are records of their own."""
    return CoordinatorRecord(group_key(group_id), None)


def record_type(key: bytes) -> int:
    """The record type that a key starts with."""
    return int.from_bytes(key[:2])


def read_key(key: bytes) -> OffsetKey | GroupKey | None:
    """Reads a key; None for another record type."""
    fields = FieldReader(key, "a key of __consumer_offsets")
    if fields.version in (LEGACY_OFFSET_KIND, OFFSET_KIND):
        return OffsetKey(fields.text(), fields.text(), fields.int32())
    if fields.version == GROUP_KIND:
        return GroupKey(fields.text())
    return None


def read_offset(value: bytes) -> OffsetValue:
    """Reads the value of a committed offset, in any version."""
    fields = _value_fields(value, "a committed offset")
    version = fields.version
    offset = fields.int64()
    leader_epoch = fields.int32() if version >= 3 else _NOT_KNOWN
    metadata = fields.text()
    commit_ms = fields.int64()
    expire_ms = fields.int64() if version == 1 else _NOT_KNOWN
    return OffsetValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_ms=commit_ms,
        expire_ms=None if expire_ms == _NOT_KNOWN else expire_ms,
        topic_id=uuid_of(fields.tags().get(_TOPIC_ID_TAG)),
    )


def read_group(value: bytes) -> GroupValue:
    """Reads the value of a classic group, in any version."""
    fields = _value_fields(value, "a classic group")
    protocol_type = fields.text()
    generation = fields.int32()
    protocol = fields.nullable_text()
    leader = fields.nullable_text()
    state_ms = fields.int64() if fields.version >= 2 else _NOT_KNOWN
    members = tuple(_read_member(fields) for _ in range(fields.count()))
    fields.tags()
    return GroupValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        state_ms=None if state_ms == _NOT_KNOWN else state_ms,
        members=members,
    )


def _value_fields(value: bytes, what: str) -> FieldReader:
    fields = FieldReader(value, what)
    if not 0 <= fields.version <= _VERSION_MAX:
        raise fields.fail(f"version {fields.version} is newer than {_VERSION_MAX}, the newest supported version,")
    fields.flexible = fields.version >= _FLEXIBLE_FROM
    return fields


def _read_member(fields: FieldReader) -> MemberValue:
    member_id = fields.text()
    instance_id = fields.nullable_text() if fields.version >= 3 else None
    client_id = fields.text()
    client_host = fields.text()
    rebalance_timeout_ms = fields.int32() if fields.version >= 1 else _NOT_KNOWN
    session_timeout_ms = fields.int32()
    member = MemberValue(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        # The oldest clients have one timeout for both.
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms == _NOT_KNOWN else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=fields.blob(),
        assignment=fields.blob(),
    )
    fields.tags()
    return member


def _write_offset(value: OffsetValue, version: int) -> bytes:
    fields = FieldWriter(version, flexible=version >= _FLEXIBLE_FROM)
    fields.int64(value.offset)
    if version >= 3:
        fields.int32(value.leader_epoch)
    fields.text(value.metadata)
    fields.int64(value.commit_ms)
    if version == 1:
        fields.int64(_NOT_KNOWN if value.expire_ms is None else value.expire_ms)
    fields.tags({} if value.topic_id is None else {_TOPIC_ID_TAG: value.topic_id.bytes})
    return fields.finish()


def _write_group(value: GroupValue) -> bytes:
    fields = FieldWriter(_GROUP_VERSION)
    fields.text(value.protocol_type)
    fields.int32(value.generation)
    fields.text(value.protocol)
    fields.text(value.leader)
    fields.int64(_NOT_KNOWN if value.state_ms is None else value.state_ms)
    fields.count(len(value.members))
    return b"".join((fields.finish(), *map(_written_member, value.members)))


def _written_member(member: MemberValue) -> bytes:
    """At once instead of field by field: a rebalance waits until all members are written."""
    member_id, instance_id = member.member_id.encode(), member.instance_id
    client_id, client_host = member.client_id.encode(), member.client_host.encode()
    size = _TEXT_SIZE.pack
    return b"".join(
        (
            size(len(member_id)),
            member_id,
            _NULL_TEXT if instance_id is None else _sized(instance_id.encode()),
            size(len(client_id)),
            client_id,
            size(len(client_host)),
            client_host,
            _TIMEOUTS_AND_BLOB_SIZE.pack(
                member.rebalance_timeout_ms, member.session_timeout_ms, len(member.subscription)
            ),
            member.subscription,
            _BLOB_SIZE.pack(len(member.assignment)),
            member.assignment,
        )
    )


def _sized(text: bytes) -> bytes:
    return _TEXT_SIZE.pack(len(text)) + text
