"""Checks what kio does not check in a message from a client: the number of elements, nulls, and unknown tagged fields.

kio's readers trust a count as long as there are bytes, accept nulls in non-nullable fields, and fail at an unknown
tagged field, although newer clients may send such fields. So a body is first walked along the structure of its class:
nothing is decoded, and adjacent fields of fixed size are skipped in one step. The remaining checks, such as whether
text is UTF-8, are made by kio when it decodes the body (`messages.py`).
"""

from collections.abc import Callable, Iterator
from dataclasses import Field, fields
from functools import cache
from struct import Struct
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin

ELEMENTS_MAX: Final = 250_000
"""The limit of elements in all arrays of one request. Each costs ten microseconds and more until it is answered, and no
other request is served meanwhile. Kafka, with its threads, has a limit of 1,000,000."""
ELEMENTS_ALWAYS: Final = 50_000
"""As many are accepted however short the request is."""
ELEMENT_BYTES: Final = 4
"""In a long request, an element for this many bytes: names, ids and numbers of partitions are not shorter. So memory is
bounded by what arrived: a count that promises more is refused before anything is decoded."""

STRING_BYTES_MAX: Final = 2**15 - 1

_FIXED_BYTES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}
_LENGTHS: Final = {"string": Struct(">h"), "bytes": Struct(">i"), "records": Struct(">i")}
_COUNT: Final = Struct(">i")


class ShapeError(ValueError):
    """A body that does not have the structure of its class, or has too many elements."""


class Walk:
    """A body that is being walked: how many elements may still follow, and which bytes kio must not see."""

    __slots__ = ("body", "end", "kept", "kept_to", "left")

    def __init__(self, body: bytes, elements_max: int) -> None:
        self.body = body
        self.end = len(body)
        self.left = elements_max
        self.kept: list[bytes] = []
        """The parts of the body that are kept, if something was removed."""
        self.kept_to = 0

    def step(self, at: int, size: int) -> int:
        """Skips this number of bytes, which must exist."""
        at += size
        if at > self.end:
            raise ShapeError(f"a field reaches {at - self.end} bytes beyond the end")
        return at

    def count(self, count: int) -> int:
        """Counts the elements that follow."""
        self.left -= count
        if self.left < 0:
            raise ShapeError("its arrays have more elements than are accepted in one request")
        return count

    def varint(self, at: int) -> tuple[int, int]:
        """(the varint that begins here, where it ends)."""
        value = shift = 0
        body, end = self.body, self.end
        while at < end and shift <= 28:
            byte = body[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
        raise ShapeError("a varint does not end")

    def replace(self, start: int, end: int, content: bytes) -> None:
        """Replaces bytes in what kio sees."""
        self.kept += (self.body[self.kept_to : start], content)
        self.kept_to = end

    def result(self) -> bytes:
        """The body as kio may see it."""
        return b"".join((*self.kept, self.body[self.kept_to :])) if self.kept else self.body


Step = Callable[[Walk, int], int]
"""Skips the field that begins there, and returns where it ends."""


def elements_max_of(size: int) -> int:
    """How many elements the arrays of a request may have in all that has this many bytes."""
    # Comparisons, as this runs for every commit and heartbeat: `min` and `max` cost more than the rest of it.
    count = size // ELEMENT_BYTES
    if count <= ELEMENTS_ALWAYS:
        return ELEMENTS_ALWAYS
    return count if count < ELEMENTS_MAX else ELEMENTS_MAX


def checked(message_class: Any, body: bytes, *, elements_max: int | None = None) -> bytes:
    """The body without the tagged fields that its class does not know; raises ShapeError if it is malformed, or if its
    arrays have more elements than `elements_max`, which follows from the size if it is not given.

    Bytes after the message are kept.
    """
    walk = Walk(body, elements_max_of(len(body)) if elements_max is None else elements_max)
    _message(message_class)(walk, 0)
    return walk.result()


@cache
def _message(message_class: Any) -> Step:
    """Skips all fields of a class, including tagged fields."""
    flexible: bool = message_class.__flexible__
    untagged = [each for each in fields(message_class) if "tag" not in each.metadata]
    steps = list(_joined(_field(each, flexible=flexible) for each in untagged))
    if flexible:
        tagged = {each.metadata["tag"]: each for each in fields(message_class) if "tag" in each.metadata}
        steps.append(_tags({tag: _as_step(_field(each, flexible=True)) for tag, each in tagged.items()}))
    if len(steps) == 1:
        return steps[0]

    def over_message(walk: Walk, at: int) -> int:
        for step in steps:
            at = step(walk, at)
        return at

    return over_message


def _joined(parts: Iterator[Step | int]) -> Iterator[Step]:
    """Combines adjacent fields of fixed size into one step."""
    size = 0
    for part in parts:
        if isinstance(part, int):
            size += part
            continue
        if size:
            yield _as_step(size)
            size = 0
        yield part
    if size:
        yield _as_step(size)


def _as_step(part: Step | int) -> Step:
    if not isinstance(part, int):
        return part
    size = part

    def over_fixed(walk: Walk, at: int) -> int:
        return walk.step(at, size)

    return over_fixed


def _field(field: Field[Any], *, flexible: bool) -> Step | int:
    """A step, or the size of a field of fixed size."""
    kind, nullable = _without_none(field.type)
    kafka_type: str | None = field.metadata.get("kafka_type")
    if get_origin(kind) is tuple:
        element, element_nullable = _without_none(get_args(kind)[0])
        return _array(_value(element, kafka_type, flexible, element_nullable), flexible=flexible, nullable=nullable)
    return _value(kind, kafka_type, flexible, nullable)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if not isinstance(annotation, UnionType):
        return annotation, False
    return next(part for part in get_args(annotation) if part is not NoneType), True


def _value(kind: Any, kafka_type: str | None, flexible: bool, nullable: bool) -> Step | int:
    if kafka_type is None:
        return _nullable_message(kind) if nullable else _message(kind)
    if kafka_type in _FIXED_BYTES:
        return _FIXED_BYTES[kafka_type]
    bytes_max = STRING_BYTES_MAX if kafka_type == "string" else 2**31 - 1
    return _sized(None if flexible else _LENGTHS[kafka_type], bytes_max, nullable=nullable)


def _nullable_message(kind: Any) -> Step:
    """A nullable struct: the first byte is negative for null."""
    over_message = _message(kind)

    def over_nullable(walk: Walk, at: int) -> int:
        start, at = at, walk.step(at, 1)
        return at if walk.body[start] >= 0x80 else over_message(walk, at)

    return over_nullable


def _sized(length: Struct | None, bytes_max: int, *, nullable: bool) -> Step:
    """Skips a string or bytes with their length before them; in flexible versions the length is a varint, plus one."""

    def over_sized(walk: Walk, at: int) -> int:
        if length is None:
            size, at = walk.varint(at)
            size -= 1
        else:
            start, at = at, walk.step(at, length.size)
            (size,) = length.unpack_from(walk.body, start)
        if size < 0:
            if size < -1 or not nullable:
                raise ShapeError("a non-nullable field is null" if size == -1 else "a length is negative")
            return at
        if size > bytes_max:
            raise ShapeError(f"a string has {size} bytes, {bytes_max} at most")
        return walk.step(at, size)

    return over_sized


def _array(element: Step | int, *, flexible: bool, nullable: bool) -> Step:
    def over_array(walk: Walk, at: int) -> int:
        if flexible:
            count, at = walk.varint(at)
            count -= 1
        else:
            start, at = at, walk.step(at, _COUNT.size)
            (count,) = _COUNT.unpack_from(walk.body, start)
        if count < 0:
            if count < -1 or not nullable:
                raise ShapeError("a non-nullable array is null" if count == -1 else "a count is negative")
            return at
        if count > walk.end - at:
            raise ShapeError("an array has more elements than bytes remain")
        walk.count(count)
        if isinstance(element, int):
            return walk.step(at, count * element)
        for _ in range(count):
            at = element(walk, at)
        return at

    return over_array


def _tags(known: dict[int, Step]) -> Step:
    """Skips the tagged fields at the end of a message; unknown ones are removed from what kio sees."""

    def over_tags(walk: Walk, at: int) -> int:
        # Nearly always there are none.
        if at < walk.end and walk.body[at] == 0:
            return at + 1
        start = at
        count, at = walk.varint(at)
        walk.count(count)
        kept = []
        is_changed = False
        for _ in range(count):
            field_start = at
            tag, at = walk.varint(at)
            size, at = walk.varint(at)
            content_start, at = at, walk.step(at, size)
            if tag not in known:
                is_changed = True
                continue
            inner = Walk(walk.body[content_start:at], walk.left)
            if known[tag](inner, 0) != size:
                raise ShapeError(f"the tagged field {tag} has extra bytes")
            walk.left = inner.left
            if inner.kept:
                is_changed = True
                content = inner.result()
                kept.append(_varint(tag) + _varint(len(content)) + content)
            else:
                kept.append(walk.body[field_start:at])
        if is_changed:
            walk.replace(start, at, b"".join((_varint(len(kept)), *kept)))
        return at

    return over_tags


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*written, value))
