"""The records of `__transaction_state`, in Kafka's own bytes: a transactional id as the key, its state as the value.

A value is the whole state of a transactional id (`TransactionEntry`); each new one replaces the one before.
Version 0 of a value is plain; version 1, which a cluster writes from `transaction.version` 1 on, adds tagged fields:
the producer id before and after, and how the client ends its transactions. What is decided on an entry is in
`transaction_state.py`.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.coordination.runtime.record_fields import FieldReader, FieldWriter
from ottla.model.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)

_KEY_VERSION: Final = 0
_PLAIN_VERSION: Final = 0
_FLEXIBLE_VERSION: Final = 1
_FLEXIBLE_FROM_TRANSACTION_VERSION: Final = 1

_PREVIOUS_PRODUCER_ID_TAG: Final = 0
_NEXT_PRODUCER_ID_TAG: Final = 1
_CLIENT_VERSION_TAG: Final = 2
_NEXT_PRODUCER_EPOCH_TAG: Final = 3
_INT16: Final = struct.Struct(">h")
_INT64: Final = struct.Struct(">q")


class TransactionStatus(IntEnum):
    """Where a transactional id stands, by the number that its record has.

    EMPTY: initialised, nothing added yet. Exits: a partition is added (ONGOING); a version 2 client aborts without
    knowing whether something was added (PREPARE_ABORT); expiry.
    ONGOING: partitions are being added; a timeout runs. Exits: commit or abort by the client, abort by timeout or by
    another producer that takes the id over.
    PREPARE_COMMIT, PREPARE_ABORT: decided, for ever; markers are being written to every partition. Exit: all have them.
    COMPLETE_COMMIT, COMPLETE_ABORT: all markers are written. Exits: as EMPTY.
    DEAD: expired. In the log that is a tombstone, so it is never written.
    PREPARE_EPOCH_FENCE: another producer is taking over. Becomes PREPARE_ABORT at once, so it is never written.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def wire_name(self) -> str:
        """The name by which clients list and describe it: `PrepareCommit`."""
        return "".join(map(str.capitalize, self.name.split("_")))


_STATUS_BY_NUMBER: Final = {int(status): status for status in TransactionStatus}
STATUS_BY_WIRE_NAME: Final = {status.wire_name: status for status in TransactionStatus}
"""How to read a filter by state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEntry:
    """The state of one transactional id in the log.

    `previous_producer_id` is what `producer_id` was before this entry, mostly the same; `next_producer_id` what it will
    be once the markers are written, if the epochs of the present one are used up. `start_ms` is -1 where no transaction
    was begun. `client_version` is the `transaction.version` by which the last step was taken: from 2 on each end of a
    transaction bumps the epoch. `partitions` has no partition twice.
    """

    producer_id: ProducerId
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    next_producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch
    next_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    timeout_ms: int
    status: TransactionStatus
    partitions: tuple[TopicPartition, ...] = ()
    last_update_ms: TimestampMs
    start_ms: TimestampMs = NO_TIMESTAMP
    client_version: int = 0


def entry_record(transactional_id: str, entry: TransactionEntry, transaction_version: int) -> CoordinatorRecord:
    """The record of an entry, in the format of a cluster of that `transaction.version`."""
    # The fields of a version 2 client must not be lost, even if the cluster was downgraded.
    is_flexible = max(transaction_version, entry.client_version) >= _FLEXIBLE_FROM_TRANSACTION_VERSION
    version = _FLEXIBLE_VERSION if is_flexible else _PLAIN_VERSION
    return CoordinatorRecord(_encode_key(transactional_id), encode_value(entry, version))


def tombstone_record(transactional_id: str) -> CoordinatorRecord:
    """The tombstone of a transactional id."""
    return CoordinatorRecord(_encode_key(transactional_id), None)


def _encode_key(transactional_id: str) -> bytes:
    writer = FieldWriter(_KEY_VERSION)
    writer.text(transactional_id)
    return writer.finish()


def decode_key(key: bytes) -> str | None:
    """The transactional id; None for an unknown, newer record type, which is skipped."""
    reader = FieldReader(key, "A key of __transaction_state")
    return reader.text() if reader.version == _KEY_VERSION else None


def encode_value(entry: TransactionEntry, version: int) -> bytes:
    """The value in that version; version 0 lacks the tagged fields."""
    writer = FieldWriter(version, flexible=version >= _FLEXIBLE_VERSION)
    writer.int64(entry.producer_id)
    writer.int16(entry.producer_epoch)
    writer.int32(entry.timeout_ms)
    writer.int8(entry.status)
    if entry.status is TransactionStatus.EMPTY:
        # Kafka writes null here, and an empty array in every other state.
        if version >= _FLEXIBLE_VERSION:
            writer.varint(0)
        else:
            writer.int32(-1)
    else:
        _encode_partitions(writer, entry.partitions)
    writer.int64(entry.last_update_ms)
    writer.int64(entry.start_ms)
    tags = {}
    if entry.previous_producer_id != NO_PRODUCER_ID:
        tags[_PREVIOUS_PRODUCER_ID_TAG] = _INT64.pack(entry.previous_producer_id)
    if entry.next_producer_id != NO_PRODUCER_ID:
        tags[_NEXT_PRODUCER_ID_TAG] = _INT64.pack(entry.next_producer_id)
    if entry.client_version != 0:
        tags[_CLIENT_VERSION_TAG] = _INT16.pack(entry.client_version)
    if entry.next_producer_epoch != NO_PRODUCER_EPOCH:
        tags[_NEXT_PRODUCER_EPOCH_TAG] = _INT16.pack(entry.next_producer_epoch)
    writer.tags(tags)
    return writer.finish()


def _encode_partitions(writer: FieldWriter, partitions: tuple[TopicPartition, ...]) -> None:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    writer.count(len(by_topic))
    for topic, ids in by_topic.items():
        writer.text(topic)
        writer.count(len(ids))
        for partition in ids:
            writer.int32(partition)
        writer.tags()


def decode_value(value: bytes) -> TransactionEntry:
    """Reads a value of either version; raises `CorruptError` for anything else, since to skip the state of a
    transaction would leave its partitions waiting for a marker for ever."""
    reader = FieldReader(value, "A value of __transaction_state")
    if reader.version not in (_PLAIN_VERSION, _FLEXIBLE_VERSION):
        raise reader.fail(f"version {reader.version} is not known, perhaps written by a newer broker,")
    reader.flexible = reader.version >= _FLEXIBLE_VERSION
    producer_id = reader.int64()
    producer_epoch = reader.int16()
    timeout_ms = reader.int32()
    status_number = reader.int8()
    status = _STATUS_BY_NUMBER.get(status_number)
    if status is None:
        raise reader.fail(f"unknown transaction state {status_number}")
    partitions = _decode_partitions(reader)
    last_update_ms = reader.int64()
    start_ms = reader.int64()
    tags = reader.tags()
    return TransactionEntry(
        producer_id=ProducerId(producer_id),
        previous_producer_id=ProducerId(_tagged(reader, tags, _PREVIOUS_PRODUCER_ID_TAG, _INT64, NO_PRODUCER_ID)),
        next_producer_id=ProducerId(_tagged(reader, tags, _NEXT_PRODUCER_ID_TAG, _INT64, NO_PRODUCER_ID)),
        producer_epoch=ProducerEpoch(producer_epoch),
        next_producer_epoch=ProducerEpoch(_tagged(reader, tags, _NEXT_PRODUCER_EPOCH_TAG, _INT16, NO_PRODUCER_EPOCH)),
        timeout_ms=timeout_ms,
        status=status,
        partitions=partitions,
        last_update_ms=TimestampMs(last_update_ms),
        start_ms=TimestampMs(start_ms),
        client_version=_tagged(reader, tags, _CLIENT_VERSION_TAG, _INT16, 0),
    )


def _decode_partitions(reader: FieldReader) -> tuple[TopicPartition, ...]:
    count = reader.varint() - 1 if reader.flexible else reader.int32()
    if count < -1:
        raise reader.fail(f"an array claims {count} elements")
    found: dict[TopicPartition, None] = {}
    # Null is -1. A count that is too large reaches the end of the bytes, and the reader raises.
    for _ in range(count):
        topic = reader.text()
        for _ in range(reader.count()):
            found[TopicPartition(topic, reader.int32())] = None
        reader.tags()
    return tuple(found)


def _tagged(reader: FieldReader, tags: dict[int, bytes], tag: int, form: struct.Struct, default: int) -> int:
    field = tags.get(tag)
    if field is None:
        return default
    if len(field) != form.size:
        raise reader.fail(f"the tagged field {tag} has {len(field)} bytes, not {form.size},")
    number: int = form.unpack(field)[0]
    return number
