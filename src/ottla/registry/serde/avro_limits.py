"""What fastavro does not check: values that would crash it or keep it busy forever, and numbers that do not fit.

Only schemas that make such values possible are checked. A few thousand bytes can nest a recursive type so deep that
fastavro overflows the stack and ends the process; an array whose items take no bytes can claim any number of items. An
int beyond 32 bits is written by fastavro, but read by no other implementation.
"""

import enum
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from ottla.registry.schemas.avro.avro_types import (
    Array,
    AvroType,
    Enumeration,
    Fixed,
    Map,
    Record,
    Union,
)
from ottla.registry.serde.errors import ValueNotReadableError, ValueNotSerializableError

VALUE_NESTING_MAX: Final = 500
"""How deep values of recursive types may be nested."""
FREE_ITEMS_MAX: Final = 100_000
"""How many items that take no bytes all arrays of a value may have."""

_INT_MIN: Final = -(2**31)
_INT_MAX: Final = 2**31 - 1
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def read_check(root: AvroType) -> Callable[[bytes, int], None] | None:
    """A function that raises `ValueNotReadableError` for bytes that are dangerous to read; None if none can be."""
    if not _is_recursive(root) and not _has_free_items(root):
        return None
    return lambda data, start: _walk(root, data, start)


def write_check(root: AvroType) -> Callable[[Any], None] | None:
    """A function that raises `ValueNotSerializableError` for a value with an int beyond 32 bits; None without ints.

    The branches of unions are not its concern: fastavro checks their values to find the branch that fits.
    """
    return _int_check(root, "the value", {})


def _walk(root: AvroType, data: bytes, start: int) -> None:
    """Walks over a value without making objects of it, with a stack of what is still to come."""
    position = start
    items_left = len(data) + FREE_ITEMS_MAX
    stack: list[tuple[_Step, AvroType, int, int]] = [(_Step.VALUE, root, 1, 1)]
    while stack:
        step, part, depth, count = stack.pop()
        if depth > VALUE_NESTING_MAX:
            raise ValueNotReadableError(f"the value is nested more than {VALUE_NESTING_MAX} levels deep")
        if step is _Step.BLOCKS:
            count, position = _read_long(data, position)
            if count < 0:
                _, position = _read_long(data, position)
            if abs(count) > items_left:
                raise ValueNotReadableError(f"arrays claim more than {FREE_ITEMS_MAX} items that take no bytes")
            if count != 0:
                stack += (_Step.BLOCKS, part, depth, 0), (_Step.ITEMS, part, depth, abs(count))
        elif step is _Step.ITEMS:
            items_left -= 1
            if items_left < 0:
                raise ValueNotReadableError(f"arrays claim more than {FREE_ITEMS_MAX} items that take no bytes")
            if count > 1:
                stack.append((_Step.ITEMS, part, depth, count - 1))
            if isinstance(part, Map):
                position = _skip_bytes(data, position)
            inner = part.values if isinstance(part, Map) else part.items if isinstance(part, Array) else part
            stack.append((_Step.VALUE, inner, depth + 1, 1))
        else:
            match part:
                case Record():
                    stack.extend((_Step.VALUE, each.type, depth + 1, 1) for each in reversed(part.fields))
                case Union():
                    branch, position = _read_long(data, position)
                    if not 0 <= branch < len(part.branches):
                        raise ValueNotReadableError(f"a union has no branch {branch}")
                    stack.append((_Step.VALUE, part.branches[branch], depth + 1, 1))
                case Array() | Map():
                    stack.append((_Step.BLOCKS, part, depth, 0))
                case _:
                    position = _skip_scalar(part, data, position)


class _Step(enum.Enum):
    VALUE = 1
    BLOCKS = 2
    """The next block of an array or map begins with the number of its items."""
    ITEMS = 3
    """Items of the block are left; the last number on the stack says how many."""


def _skip_scalar(part: AvroType, data: bytes, position: int) -> int:
    if part.kind in ("int", "long") or isinstance(part, Enumeration):
        return _read_long(data, position)[1]
    if part.kind in ("bytes", "string"):
        return _skip_bytes(data, position)
    return _skip(data, position, part.size if isinstance(part, Fixed) else _SIZES[part.kind])


def _skip_bytes(data: bytes, position: int) -> int:
    size, position = _read_long(data, position)
    return _skip(data, position, size)


def _skip(data: bytes, position: int, size: int) -> int:
    if not 0 <= size <= len(data) - position:
        raise ValueNotReadableError("the value ends too early")
    return position + size


def _read_long(data: bytes, position: int) -> tuple[int, int]:
    found = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), position
        shift += 7
    raise ValueNotReadableError("the value ends too early, or a number in it is too long")


def _int_check(
    part: AvroType, place: str, known: dict[int, Callable[[Any], None] | None]
) -> Callable[[Any], None] | None:
    """The check of one type, made of the checks of its parts once, because it is called for each value."""
    if id(part) in known:
        return known[id(part)]
    match part:
        case Record():
            return _record_check(part, known)
        case Array():
            inner = _int_check(part.items, place, known)
            return None if inner is None else partial(_check_items, inner)
        case Map():
            inner = _int_check(part.values, place, known)
            return None if inner is None else partial(_check_values, inner)
    return (lambda value: _check_int(value, place)) if part.kind == "int" else None


def _record_check(record: Record, known: dict[int, Callable[[Any], None] | None]) -> Callable[[Any], None] | None:
    ints = tuple(each.name for each in record.fields if each.type.kind == "int")
    nested: list[tuple[str, Callable[[Any], None]]] = []

    def check(value: Any) -> None:
        # What is not a dict is refused when it is written.
        if type(value) is dict:
            for name in ints:
                found = value.get(name)
                if type(found) is int and not _INT_MIN <= found <= _INT_MAX:
                    _check_int(found, name)
            for name, inner in nested:
                found = value.get(name)
                if found is not None:
                    inner(found)

    # Before its fields, which may be of this type again.
    known[id(record)] = check
    for each in record.fields:
        inner = _int_check(each.type, each.name, known) if each.type.kind != "int" else None
        if inner is not None:
            nested.append((each.name, inner))
    if not ints and not nested:
        known[id(record)] = None
    return known[id(record)]


def _check_items(check: Callable[[Any], None], items: Any) -> None:
    if isinstance(items, list | tuple):
        for each in items:
            check(each)


def _check_values(check: Callable[[Any], None], values: Any) -> None:
    if isinstance(values, dict):
        for each in values.values():
            check(each)


def _check_int(value: Any, place: str) -> None:
    if type(value) is int and not _INT_MIN <= value <= _INT_MAX:
        raise ValueNotSerializableError(f"the value does not fit the schema: {value} is too large for the int {place}")


def _all(root: AvroType) -> Iterator[AvroType]:
    """All types of a schema, each once."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        part = stack.pop()
        if id(part) not in seen:
            seen.add(id(part))
            yield part
            stack.extend(_inner(part))


def _inner(part: AvroType) -> list[AvroType]:
    match part:
        case Record():
            return [each.type for each in part.fields]
        case Union():
            return part.branches
        case Array():
            return [part.items]
        case Map():
            return [part.values]
    return []


def _is_recursive(root: AvroType) -> bool:
    """Whether a type contains itself: a walk in depth meets a type that it is still in."""
    done: set[int] = set()
    inside: set[int] = set()
    stack: list[tuple[AvroType, bool]] = [(root, False)]
    while stack:
        part, is_left = stack.pop()
        if is_left:
            inside.discard(id(part))
            done.add(id(part))
        elif id(part) in inside:
            return True
        elif id(part) not in done:
            inside.add(id(part))
            stack.append((part, True))
            stack.extend((each, False) for each in _inner(part))
    return False


def _has_free_items(root: AvroType) -> bool:
    """Whether an array has items that may take no bytes. Only for schemas that are not recursive."""
    return any(isinstance(each, Array) and _is_free(each.items) for each in _all(root))


def _is_free(part: AvroType) -> bool:
    if isinstance(part, Record):
        return all(_is_free(each.type) for each in part.fields)
    return part.kind == "null" or (isinstance(part, Fixed) and part.size == 0)
