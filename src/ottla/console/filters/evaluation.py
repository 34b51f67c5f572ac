"""A filter as a predicate of one record: the tree compiled to closures, without names, calls or attributes of Python.

Nothing raises for a record: what does not exist is null, and values of different types are unequal and without order.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from ottla.console.filters.syntax import (
    Anywhere,
    Both,
    Call,
    Compare,
    Comparison,
    Either,
    Function,
    Literal,
    Node,
    Not,
    Operand,
    Path,
    Root,
    Truth,
)


class FilteredRecord(Protocol):
    """What a filter can ask of a record. Decoding is up to the record, and happens only if it is asked."""

    @property
    def offset(self) -> int: ...
    @property
    def partition(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    def data(self, part: Root) -> bytes | None:
        """The bytes of the key or value."""

    def text(self, part: Root) -> str | None:
        """The key or value as text."""

    def tree(self, part: Root) -> Any:
        """The key or value as JSON has it; None if it cannot be decoded."""

    def header(self, name: str) -> bytes | None:
        """The last header of this name."""


Predicate = Callable[[FilteredRecord], bool]
_Get = Callable[[FilteredRecord], Any]


def predicate(node: Node) -> Predicate:
    """Whether a record passes the filter."""
    match node:
        case Both(terms):
            every = [predicate(each) for each in terms]
            return lambda record: all(term(record) for term in every)
        case Either(terms):
            some = [predicate(each) for each in terms]
            return lambda record: any(term(record) for term in some)
        case Not(term):
            inner = predicate(term)
            return lambda record: not inner(record)
        case Anywhere(text):
            return lambda record: text in (record.text(Root.KEY) or "") or text in (record.text(Root.VALUE) or "")
        case Truth(operand):
            get = _getter(operand)
            return lambda record: get(record) is True
        case Compare(comparison, left, right):
            return _compared(comparison, left, right)


def _compared(comparison: Comparison, left: Operand, right: Operand) -> Predicate:
    get = _getter(left)
    compare = _COMPARE[comparison]
    if isinstance(right, Literal):
        constant = right.value
        return lambda record: compare(get(record), constant)
    other = _getter(right)
    return lambda record: compare(get(record), other(record))


def _getter(operand: Operand) -> _Get:
    match operand:
        case Literal(value):
            return lambda _: value
        case Call(Function.SIZE, Path(root, ())) if root in (Root.KEY, Root.VALUE):
            return lambda record: None if (data := record.data(root)) is None else len(data)
        case Call(Function.SIZE, inner):
            get_sized = _getter(inner)
            return lambda record: len(found) if isinstance(found := get_sized(record), _SIZED) else None
        case Call(Function.LOWER, inner):
            get_text = _getter(inner)
            return lambda record: found.lower() if isinstance(found := get_text(record), str) else None
        case Path(root, steps):
            return _path_getter(root, steps)
    raise AssertionError(operand)  # pragma: no cover


def _path_getter(root: Root, steps: tuple[str | int, ...]) -> _Get:
    if root is Root.OFFSET:
        return lambda record: record.offset
    if root is Root.PARTITION:
        return lambda record: record.partition
    if root is Root.TIMESTAMP:
        return lambda record: record.timestamp
    if root is Root.HEADERS:
        name = str(steps[0])
        return lambda record: None if (data := record.header(name)) is None else data.decode("utf-8", "replace")
    if not steps:
        return lambda record: record.text(root)
    return lambda record: _walk(record.tree(root), steps)


def _walk(found: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        if isinstance(found, Mapping):
            found = found.get(str(step))
        elif isinstance(found, list) and isinstance(step, int) and -len(found) <= step < len(found):
            found = found[step]
        else:
            return None
    return found


_SIZED: Final = (str, bytes, list, tuple, dict)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal(left: Any, right: Any) -> bool:
    """As in JSON: numbers by value, and true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if _is_number(left) and _is_number(right):
        return bool(left == right)
    return type(left) is type(right) and bool(left == right)


def _ordered(left: Any, right: Any) -> bool:
    return (_is_number(left) and _is_number(right)) or (isinstance(left, str) and isinstance(right, str))


_COMPARE: Final[dict[Comparison, Callable[[Any, Any], bool]]] = {
    Comparison.EQUAL: _equal,
    Comparison.UNEQUAL: lambda left, right: not _equal(left, right),
    Comparison.LESS: lambda left, right: _ordered(left, right) and left < right,
    Comparison.AT_MOST: lambda left, right: _ordered(left, right) and left <= right,
    Comparison.GREATER: lambda left, right: _ordered(left, right) and left > right,
    Comparison.AT_LEAST: lambda left, right: _ordered(left, right) and left >= right,
    Comparison.CONTAINS: lambda left, right: (
        right in left if isinstance(left, str) else isinstance(left, list) and any(_equal(each, right) for each in left)
    ),
    Comparison.STARTS_WITH: lambda left, right: isinstance(left, str) and left.startswith(right),
    Comparison.ENDS_WITH: lambda left, right: isinstance(left, str) and left.endswith(right),
    Comparison.MATCHES: lambda left, right: isinstance(left, str) and right.matches_inside(left),
    Comparison.IN: lambda left, right: any(_equal(left, each) for each in right),
}
