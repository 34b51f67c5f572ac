"""The records of `__share_group_state`, in Kafka's own bytes: snapshots (type 0) and updates (type 1).

A snapshot is the whole state of a share-partition, an update what has changed since; the tombstone of a snapshot
deletes the state. Written as Kafka 4.3 does, in version 0.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from ottla.coordination.runtime.effects import CoordinatorRecord, DecodedRecord
from ottla.coordination.runtime.record_fields import FieldReader, FieldWriter
from ottla.coordination.share_state.state_batches import StateBatch
from ottla.model.base64_ids import id_text, parse_id

SNAPSHOT_KIND: Final = 0
UPDATE_KIND: Final = 1
NOT_SET: Final = -1

_VERSION: Final = 0
_COUNT_TAG: Final = 0


class ShareKey(NamedTuple):
    """A share-partition: a partition as one group consumes it."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def text(self) -> str:
        """The key of FindCoordinator, whose hash says which partition has the state."""
        return f"{self.group_id}:{id_text(self.topic_id)}:{self.partition}"


def read_share_key(text: str) -> ShareKey | None:
    """The share-partition that a key of FindCoordinator names; None if it names none."""
    group_id, _, index = text.rpartition(":")
    group_id, _, id_ = group_id.rpartition(":")
    topic_id = parse_id(id_)
    if not group_id or topic_id is None or not (index.isascii() and index.isdigit() and len(index) <= 10):
        return None
    return ShareKey(group_id, topic_id, int(index))


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The whole state of a share-partition. `start_offset` and `delivery_complete_count` are -1 before its first
    leader has set them."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_ms: int
    write_ms: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What has changed since the snapshot with this epoch; a leader epoch or start offset of -1 has not."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class StateRecord:
    """A record of a share-partition; None deletes its state."""

    key: ShareKey
    value: Snapshot | Update | None


def encode(record: StateRecord) -> CoordinatorRecord:
    """The record as it is appended, with what it was encoded from."""
    value = record.value
    if isinstance(value, Update):
        encoded = DecodedRecord(_key(UPDATE_KIND, record.key), _write_update(value))
    else:
        snapshot = None if value is None else _write_snapshot(value)
        encoded = DecodedRecord(_key(SNAPSHOT_KIND, record.key), snapshot)
    encoded.content = record
    return encoded


def decode(record: CoordinatorRecord) -> StateRecord | None:
    """The record that was appended; None for another type, and for the tombstone of an update."""
    if type(record) is DecodedRecord:
        content: StateRecord = record.content
        return content
    fields = FieldReader(record.key, "a key of __share_group_state")
    if fields.version not in (SNAPSHOT_KIND, UPDATE_KIND):
        return None
    key = ShareKey(fields.text(), fields.uuid(), fields.int32())
    if record.value is None:
        return StateRecord(key, None) if fields.version == SNAPSHOT_KIND else None
    value = FieldReader(record.value, "the state of a share-partition")
    if value.version != _VERSION:
        raise value.fail(f"version {value.version} is newer than {_VERSION}, the newest supported version,")
    value.flexible = True
    return StateRecord(key, _read_snapshot(value) if fields.version == SNAPSHOT_KIND else _read_update(value))


def _key(kind: int, key: ShareKey) -> bytes:
    fields = FieldWriter(kind)
    fields.text(key.group_id)
    fields.uuid(key.topic_id)
    fields.int32(key.partition)
    return fields.finish()


def _write_snapshot(value: Snapshot) -> bytes:
    fields = FieldWriter(_VERSION, flexible=True)
    fields.int32(value.snapshot_epoch)
    fields.int32(value.state_epoch)
    fields.int32(value.leader_epoch)
    fields.int64(value.start_offset)
    fields.int64(value.create_ms)
    fields.int64(value.write_ms)
    _write_batches(fields, value.batches)
    _write_count(fields, value.delivery_complete_count)
    return fields.finish()


def _read_snapshot(fields: FieldReader) -> Snapshot:
    snapshot_epoch, state_epoch, leader_epoch = fields.int32(), fields.int32(), fields.int32()
    start_offset, create_ms, write_ms = fields.int64(), fields.int64(), fields.int64()
    batches = _read_batches(fields)
    return Snapshot(
        snapshot_epoch=snapshot_epoch,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=_read_count(fields),
        create_ms=create_ms,
        write_ms=write_ms,
        batches=batches,
    )


def _write_update(value: Update) -> bytes:
    fields = FieldWriter(_VERSION, flexible=True)
    fields.int32(value.snapshot_epoch)
    fields.int32(value.leader_epoch)
    fields.int64(value.start_offset)
    _write_batches(fields, value.batches)
    _write_count(fields, value.delivery_complete_count)
    return fields.finish()


def _read_update(fields: FieldReader) -> Update:
    snapshot_epoch, leader_epoch, start_offset = fields.int32(), fields.int32(), fields.int64()
    batches = _read_batches(fields)
    return Update(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=_read_count(fields),
        batches=batches,
    )


def _write_batches(fields: FieldWriter, batches: Iterable[StateBatch]) -> None:
    batches = tuple(batches)
    fields.count(len(batches))
    for each in batches:
        fields.int64(each.first_offset)
        fields.int64(each.last_offset)
        fields.int8(each.delivery_state)
        fields.int16(each.delivery_count)
        fields.tags()


def _read_batches(fields: FieldReader) -> tuple[StateBatch, ...]:
    batches = []
    for _ in range(fields.count()):
        batches.append(StateBatch(fields.int64(), fields.int64(), fields.int8(), fields.int16()))
        fields.tags()
    return tuple(batches)


def _write_count(fields: FieldWriter, count: int) -> None:
    """The delivery complete count in a tagged field, which is left out for -1."""
    fields.tags({} if count == NOT_SET else {_COUNT_TAG: count.to_bytes(4, signed=True)})


def _read_count(fields: FieldReader) -> int:
    tag = fields.tags().get(_COUNT_TAG)
    return NOT_SET if tag is None else int.from_bytes(tag, signed=True)
