"""The fields of Kafka's internal records, one after the other: integers, text, bytes, arrays and tagged fields.

Covers the two encodings that a schema version may have: plain (lengths of two and four bytes, -1 for null) and flexible
(lengths as unsigned varints plus one, 0 for null, tagged fields at the end of a structure). Does not know any schema;
`groups/records.py` is one that uses it. Bytes that end too early or lie about a length raise
`CorruptError`.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from ottla.model.errors import CorruptError
from ottla.protocol.varints import unsigned_varint

TEXT_BYTES_MAX: Final = 32767
"""The maximum size of a plain text field, encoded."""

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_VARINT_BYTES_MAX: Final = 5


class FieldWriter:
    """Collects the fields of one record; starts with its version."""

    __slots__ = ("_bytes", "_flexible")

    def __init__(self, version: int, *, flexible: bool = False) -> None:
        self._bytes = bytearray(_INT16.pack(version))
        self._flexible = flexible

    def finish(self) -> bytes:
        """All that was written."""
        return bytes(self._bytes)

    def int8(self, value: int) -> None:
        """One byte, signed."""
        self._bytes += _INT8.pack(value)

    def int16(self, value: int) -> None:
        """Two bytes, signed."""
        self._bytes += _INT16.pack(value)

    def int32(self, value: int) -> None:
        """Four bytes, signed."""
        self._bytes += _INT32.pack(value)

    def int64(self, value: int) -> None:
        """Eight bytes, signed."""
        self._bytes += _INT64.pack(value)

    def text(self, value: str | None) -> None:
        """A text, or null."""
        if value is None:
            self._bytes += b"\0" if self._flexible else _INT16.pack(-1)
            return
        encoded = value.encode()
        if self._flexible:
            self.varint(len(encoded) + 1)
        else:
            self._bytes += _INT16.pack(len(encoded))
        self._bytes += encoded

    def uuid(self, value: UUID) -> None:
        """An id of sixteen bytes."""
        self._bytes += value.bytes

    def blob(self, value: bytes) -> None:
        """Bytes with their length."""
        if self._flexible:
            self.varint(len(value) + 1)
        else:
            self._bytes += _INT32.pack(len(value))
        self._bytes += value

    def count(self, value: int) -> None:
        """How many elements of an array follow."""
        if self._flexible:
            self.varint(value + 1)
        else:
            self._bytes += _INT32.pack(value)

    def int32s(self, values: Sequence[int]) -> None:
        """An array of numbers of four bytes, signed."""
        self.count(len(values))
        self._bytes += struct.pack(f">{len(values)}i", *values)

    def texts(self, values: Sequence[str]) -> None:
        """An array of texts."""
        self.count(len(values))
        for value in values:
            self.text(value)

    def tags(self, fields: Mapping[int, bytes] | None = None) -> None:
        """Ends a structure; in a plain version it leaves no trace, so it may have no tagged fields there."""
        if not self._flexible:
            return
        if not fields:
            self._bytes.append(0)
            return
        self.varint(len(fields))
        for tag, value in sorted(fields.items()):
            self.varint(tag)
            self.varint(len(value))
            self._bytes += value

    def varint(self, value: int) -> None:
        """An unsigned varint."""
        self._bytes += unsigned_varint(value)


class FieldReader:
    """Reads the fields of a record in order; `version` is the first. `what` names the record in errors."""

    __slots__ = ("_at", "_bytes", "_what", "flexible", "version")

    def __init__(self, data: bytes, what: str) -> None:
        self._bytes = data
        self._what = what
        self._at = 0
        self.flexible = False
        self.version = self.int16()

    def fail(self, why: str) -> CorruptError:
        """An error that names the record and the place."""
        return CorruptError(f"{self._what}: {why} at byte {self._at} of {len(self._bytes)}; the partition is damaged")

    def int8(self) -> int:
        """One byte, signed."""
        return self._unpacked(_INT8)

    def int16(self) -> int:
        """Two bytes, signed."""
        return self._unpacked(_INT16)

    def int32(self) -> int:
        """Four bytes, signed."""
        return self._unpacked(_INT32)

    def int64(self) -> int:
        """Eight bytes, signed."""
        return self._unpacked(_INT64)

    def nullable_text(self) -> str | None:
        """A text, or None for null."""
        size = self.varint() - 1 if self.flexible else self.int16()
        if size == -1:
            return None
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise self.fail("a text that is not UTF-8 ends") from None

    def text(self) -> str:
        """A text; null is damage."""
        value = self.nullable_text()
        if value is None:
            raise self.fail("a text that may not be null is null")
        return value

    def uuid(self) -> UUID:
        """An id of sixteen bytes."""
        return UUID(bytes=self.take(16))

    def blob(self) -> bytes:
        """Bytes with their length; null is damage."""
        return self.take(self.varint() - 1 if self.flexible else self.int32())

    def count(self) -> int:
        """How many elements of an array follow; never more than there are bytes left."""
        count = self.varint() - 1 if self.flexible else self.int32()
        if not 0 <= count <= len(self._bytes) - self._at:
            raise self.fail(f"an array claims {count} elements")
        return count

    def int32s(self) -> tuple[int, ...]:
        """An array of numbers of four bytes, signed."""
        count = self.count()
        return struct.unpack(f">{count}i", self.take(_INT32.size * count))

    def texts(self) -> tuple[str, ...]:
        """An array of texts; null in it is damage."""
        return tuple(self.text() for _ in range(self.count()))

    def tags(self) -> dict[int, bytes]:
        """The tagged fields that end a structure, known or not; none in a plain version."""
        if not self.flexible:
            return {}
        fields = {}
        for _ in range(self.varint()):
            tag = self.varint()
            fields[tag] = self.take(self.varint())
        return fields

    def varint(self) -> int:
        """An unsigned varint of at most five bytes."""
        value = 0
        for index in range(_VARINT_BYTES_MAX):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise self.fail("a varint does not end")

    def take(self, size: int) -> bytes:
        """That many bytes."""
        end = self._at + size
        if size < 0 or end > len(self._bytes):
            raise self.fail(f"a field claims {size} bytes")
        taken = self._bytes[self._at : end]
        self._at = end
        return taken

    def _unpacked(self, form: struct.Struct) -> int:
        value: int = form.unpack(self.take(form.size))[0]
        return value


def uuid_of(tag: bytes | None) -> UUID | None:
    """A tagged id; None where it is missing, or all zeros, which stands for no id."""
    if tag is None or len(tag) != 16 or not any(tag):
        return None
    return UUID(bytes=tag)
