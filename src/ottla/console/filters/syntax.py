"""The parts of a filter, as the parser found them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Root(StrEnum):
    """Where a path begins."""

    KEY = "key"
    VALUE = "value"
    HEADERS = "headers"
    OFFSET = "offset"
    PARTITION = "partition"
    TIMESTAMP = "timestamp"


PARTS = (Root.KEY, Root.VALUE)
NUMBERS = (Root.OFFSET, Root.PARTITION, Root.TIMESTAMP)


class Comparison(StrEnum):
    """How two operands are compared."""

    EQUAL = "=="
    UNEQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="
    CONTAINS = "contains"
    STARTS_WITH = "startsWith"
    ENDS_WITH = "endsWith"
    MATCHES = "matches"
    IN = "in"


class Function(StrEnum):
    """What can be computed of an operand."""

    SIZE = "size"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, number, true, false, null, or a tuple of these. A pattern is compiled already."""

    value: Any


@dataclass(frozen=True, slots=True)
class Path:
    """A field of a record: `value.user[0]` has the steps "user" and 0."""

    root: Root
    steps: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """A function of an operand."""

    function: Function
    operand: "Operand"


Operand = Literal | Path | Call


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison of two operands."""

    comparison: Comparison
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class Truth:
    """An operand that must be true itself, such as `value.active`."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Anywhere:
    """A text that the key or the value contains."""

    text: str


@dataclass(frozen=True, slots=True)
class Both:
    """All of these hold."""

    terms: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of these holds."""

    terms: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """This does not hold."""

    term: "Node"


Node = Compare | Truth | Anywhere | Both | Either | Not
