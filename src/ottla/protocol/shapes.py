"""What kio does not look after in a message from a stranger: how many elements it has, nulls, and fields nobody knows.

kio's readers believe a count as long as there are bytes, take a null where none may be, and stop at a tagged field that
their schema lacks, although newer clients may send those to anybody. So a body is first walked along the shape of its
class: nothing is decoded, and fields of fixed size are stepped over together. What is left to say, such as whether text
is UTF-8, kio says when it reads (`messages.py`).
"""

from collections.abc import Callable, Iterator
from dataclasses import Field, fields
from functools import cache
from struct import Struct
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin

ELEMENTS_MAX: Final = 50_000
"""Of all arrays of one request: each becomes an object, and costs microseconds. Ten thousand partitions with three
replicas each, which a tool may move with one request, are 40,000."""

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
    """A body that does not have the shape of its class, or is larger than anybody needs."""


class Walk:
    """One body being walked: what may still come, and what was found that kio must not see."""

    __slots__ = ("body", "end", "kept", "kept_to", "left")

    def __init__(self, body: bytes, elements_max: int) -> None:
        self.body = body
        self.end = len(body)
        self.left = elements_max
        self.kept: list[bytes] = []
        """Parts of the body, if something between them was left out."""
        self.kept_to = 0

    def step(self, at: int, size: int) -> int:
        """Beyond so many bytes, which must be there."""
        at += size
        if at > self.end:
            raise ShapeError(f"a field reaches {at - self.end} bytes beyond the end")
        return at

    def count(self, count: int) -> int:
        """So many elements come now."""
        self.left -= count
        if self.left < 0:
            raise ShapeError("its arrays have more elements than are accepted in one request")
        return count

    def varint(self, at: int) -> tuple[int, int]:
        """(the number that begins here, where it ends)."""
        value = shift = 0
        body, end = self.body, self.end
        while at < end and shift <= 28:
            byte = body[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
        raise ShapeError("a number does not end")

    def replace(self, start: int, end: int, content: bytes) -> None:
        """What lies there is something else for kio."""
        self.kept += (self.body[self.kept_to : start], content)
        self.kept_to = end

    def result(self) -> bytes:
        """The body as kio may see it."""
        return b"".join((*self.kept, self.body[self.kept_to :])) if self.kept else self.body


Step = Callable[[Walk, int], int]
"""Goes over a field that begins there, and answers where it ends."""


def checked(message_class: Any, body: bytes, *, elements_max: int = ELEMENTS_MAX) -> bytes:
    """The body without the tagged fields that its class does not know; raises ShapeError if it is no such message.

    Bytes behind the message stay as they are.
    """
    walk = Walk(body, elements_max)
    _message(message_class)(walk, 0)
    return walk.result()


@cache
def _message(message_class: Any) -> Step:
    """Over all fields of a class, its tagged ones too."""
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
    """Neighbours of fixed size as one step."""
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
    """A step, or the size of a field that always has the same."""
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
    """A byte says whether there is one; below 0 there is none."""
    over_message = _message(kind)

    def over_nullable(walk: Walk, at: int) -> int:
        start, at = at, walk.step(at, 1)
        return at if walk.body[start] >= 0x80 else over_message(walk, at)

    return over_nullable


def _sized(length: Struct | None, bytes_max: int, *, nullable: bool) -> Step:
    """Over text or bytes with their length before them, which is a varint, one more, in flexible versions."""

    def over_sized(walk: Walk, at: int) -> int:
        if length is None:
            size, at = walk.varint(at)
            size -= 1
        else:
            start, at = at, walk.step(at, length.size)
            (size,) = length.unpack_from(walk.body, start)
        if size < 0:
            if size < -1 or not nullable:
                raise ShapeError("a field is null that must not be" if size == -1 else "a length is negative")
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
                raise ShapeError("an array is null that must not be" if count == -1 else "a count is negative")
            return at
        if count > walk.end - at:
            raise ShapeError("an array counts more elements than bytes are left")
        walk.count(count)
        if isinstance(element, int):
            return walk.step(at, count * element)
        for _ in range(count):
            at = element(walk, at)
        return at

    return over_array


def _tags(known: dict[int, Step]) -> Step:
    """Over the tagged fields at a message's end; those that are not known are left out of what kio sees."""

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
                raise ShapeError(f"the tagged field {tag} has bytes behind its end")
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
