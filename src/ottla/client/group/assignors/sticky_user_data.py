"""What a member of a `sticky` group tells the leader in its subscription: its last partitions, and their generation.

The layout is that of Java's StickyAssignor, version 1; version 0 has no generation.
"""

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import Final

from ottla.model.errors import CorruptError
from ottla.model.ids import TopicPartition

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


class StickyUserDataError(CorruptError):
    """The user data of a member of a sticky group cannot be read."""


def write_user_data(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """The bytes for these partitions, which were assigned in this generation."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    data = bytearray(_INT32.pack(len(by_topic)))
    for topic, indexes in by_topic.items():
        name = topic.encode()
        data += _INT16.pack(len(name)) + name + _INT32.pack(len(indexes))
        data += b"".join(map(_INT32.pack, indexes))
    return bytes(data + _INT32.pack(generation))


def read_user_data(data: bytes) -> tuple[tuple[TopicPartition, ...], int | None]:
    """(partitions, generation); the generation is None in version 0. Raises `StickyUserDataError`."""
    found: list[TopicPartition] = []
    try:
        # A count that is too large soon meets the end of the bytes: every element takes some.
        (topics,), at = _INT32.unpack_from(data), _INT32.size
        for _ in range(topics):
            (size,), at = _INT16.unpack_from(data, at), at + _INT16.size
            topic, at = data[at : at + max(size, 0)].decode("utf-8", "replace"), at + max(size, 0)
            (count,), at = _INT32.unpack_from(data, at), at + _INT32.size
            for _ in range(count):
                found.append(TopicPartition(topic, _INT32.unpack_from(data, at)[0]))
                at += _INT32.size
        generation = _INT32.unpack_from(data, at)[0] if len(data) - at >= _INT32.size else None
    except StructError as error:
        raise StickyUserDataError(f"sticky user data ends too early ({len(data)} bytes)") from error
    return tuple(found), generation
