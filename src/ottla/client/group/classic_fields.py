"""The fields of what consumers of classic groups tell each other: numbers, texts, and partitions by topic.

The bytes come from any client, through the coordinator, which does not look at them: they are read with bounds.
"""

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import Final

from ottla.client.group.classic_members import UnreadableMemberError
from ottla.model.ids import TopicPartition

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


class MemberFieldReader:
    """Reads from front to back; raises `UnreadableMemberError` rather than beyond the end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        """A number of two bytes."""
        return self._number(_INT16)

    def int32(self) -> int:
        """A number of four bytes."""
        return self._number(_INT32)

    def text(self) -> str:
        """A text, empty where there is none."""
        return self._take(max(self.int16(), 0)).decode("utf-8", "replace")

    def blob(self) -> bytes | None:
        """Bytes, None where there are none."""
        size = self.int32()
        return None if size < 0 else self._take(size)

    def texts(self) -> tuple[str, ...]:
        """Several texts."""
        return tuple(self.text() for _ in range(self._count()))

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Partitions, in the order in which they were written."""
        found: list[TopicPartition] = []
        for _ in range(self._count()):
            topic = self.text()
            found += [TopicPartition(topic, self.int32()) for _ in range(self._count())]
        return tuple(found)

    def _count(self) -> int:
        count = max(self.int32(), 0)
        # Every element takes two bytes at least.
        if count * 2 > len(self._data) - self._at:
            raise UnreadableMemberError(f"{count} elements are announced at byte {self._at} of {len(self._data)}")
        return count

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise UnreadableMemberError(f"{size} bytes are announced at byte {self._at} of {len(self._data)}")
        self._at += size
        return self._data[self._at - size : self._at]

    def _number(self, kind: Struct) -> int:
        try:
            (value,) = kind.unpack_from(self._data, self._at)
        except StructError as error:
            raise UnreadableMemberError(f"it ends at byte {len(self._data)}, within a number") from error
        self._at += kind.size
        return int(value)


class MemberFieldWriter:
    """Writes what `MemberFieldReader` reads."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def int16(self, value: int) -> None:
        """A number of two bytes."""
        self._data += _INT16.pack(value)

    def int32(self, value: int) -> None:
        """A number of four bytes."""
        self._data += _INT32.pack(value)

    def text(self, value: str | None) -> None:
        """A text, or none."""
        encoded = None if value is None else value.encode()
        self.int16(-1 if encoded is None else len(encoded))
        self._data += encoded or b""

    def blob(self, value: bytes | None) -> None:
        """Bytes, or none."""
        self.int32(-1 if value is None else len(value))
        self._data += value or b""

    def texts(self, values: Iterable[str]) -> None:
        """Several texts."""
        listed = list(values)
        self.int32(len(listed))
        for value in listed:
            self.text(value)

    def partitions(self, values: Iterable[TopicPartition]) -> None:
        """Partitions, those of a topic together."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in values:
            by_topic.setdefault(topic, []).append(partition)
        self.int32(len(by_topic))
        for topic, partitions in by_topic.items():
            self.text(topic)
            self.int32(len(partitions))
            for partition in partitions:
                self.int32(partition)

    def finish(self) -> bytes:
        """All that was written."""
        return bytes(self._data)
