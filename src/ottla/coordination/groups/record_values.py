"""What the records of consumer, share and streams groups have in common: keys of names, values with tagged fields.

All of them are written in version 0. The records themselves are in the `records.py` of each kind of group; classic
groups and offsets (`groups/records.py`) are older and have versions of their own.
"""

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final, TypeVar
from uuid import UUID

from ottla.coordination.runtime.record_fields import FieldReader, FieldWriter

V = TypeVar("V")

Assignment = Mapping[UUID, tuple[int, ...]]
"""Partitions by topic id, ascending; a topic without partitions is not in it."""

VERSION: Final = 0
ONLY_TAG: Final = 0
"""The tag of the tagged field, where there is one only."""

_INT16: Final = Struct(">h")
_VERSION_BYTES: Final = _INT16.pack(VERSION)


def write_key(kind: int, *names: str) -> bytes:
    """The key of a record: its type, and the names that it is found by."""
    key = _INT16.pack(kind)
    for name in names:
        text = name.encode()
        key += _INT16.pack(len(text)) + text
    return key


def or_none(write: Callable[[V], bytes], value: V | None) -> bytes | None:
    """The bytes of a value; None, the tombstone, for None."""
    return None if value is None else write(value)


def value_writer() -> FieldWriter:
    """For the fields of a value."""
    return FieldWriter(VERSION, flexible=True)


def value_fields(value: bytes, what: str) -> FieldReader:
    """The fields of a value, which `what` names in errors."""
    fields = FieldReader(value, what)
    if fields.version != VERSION:
        raise fields.fail(f"version {fields.version} is newer than {VERSION}, the newest supported version,")
    fields.flexible = True
    return fields


def tag_bytes(fields: FieldWriter) -> bytes:
    """What was written with a `value_writer`, as the content of a tagged field: those have no version."""
    return fields.finish()[len(_VERSION_BYTES) :]


def tag_fields(tag: bytes, what: str) -> FieldReader:
    """The fields of a tagged field, which `what` names in errors."""
    return value_fields(_VERSION_BYTES + tag, what)


def write_tagged_epoch(epoch: int, number: int) -> bytes:
    """An epoch, and a number in a tagged field, which is left out for 0."""
    fields = value_writer()
    fields.int32(epoch)
    tag = value_writer()
    tag.int64(number)
    fields.tags({ONLY_TAG: tag_bytes(tag)} if number else {})
    return fields.finish()


def read_tagged_epoch(value: bytes, what: str, what_number: str) -> tuple[int, int]:
    """The epoch and the number of `write_tagged_epoch`; the arguments name both in errors."""
    fields = value_fields(value, what)
    epoch = fields.int32()
    tag = fields.tags().get(ONLY_TAG)
    return epoch, 0 if tag is None else tag_fields(tag, what_number).int64()


def write_assignment(fields: FieldWriter, assignment: Assignment) -> None:
    """Topics and their partitions."""
    fields.count(len(assignment))
    for topic_id, partitions in sorted(assignment.items()):
        fields.uuid(topic_id)
        fields.int32s(partitions)
        fields.tags()


def read_assignment(fields: FieldReader) -> Assignment:
    """Topics and their partitions, ascending in whatever order they were written."""
    assignment: dict[UUID, tuple[int, ...]] = {}
    for _ in range(fields.count()):
        topic_id = fields.uuid()
        assignment[topic_id] = tuple(sorted(fields.int32s()))
        fields.tags()
    return dict(sorted(assignment.items()))
