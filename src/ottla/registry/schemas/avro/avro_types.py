"""The types in a parsed Avro schema. A named type is one object, shared by all places that use it.

The parser fills them; after that they do not change.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Final

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
KINDS: Final = PRIMITIVES | {"record", "enum", "array", "map", "union", "fixed"}
NESTING_MAX: Final = 150
"""How many types may be nested in each other, written out as one text."""

_STRICT_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a type or an alias."""

    simple: str
    space: str | None
    """None in the null namespace."""

    @property
    def full(self) -> str:
        """The name with its namespace."""
        return self.simple if self.space is None else f"{self.space}.{self.simple}"

    def written_in(self, space: str | None) -> str:
        """The shortest text that means this name inside a namespace."""
        if self.space is not None and self.space == space and self.simple not in KINDS:
            return self.simple
        return self.full


def qualified(text: str, space: str | None) -> Name:
    """The name that a text means inside a namespace."""
    own_space, dot, simple = text.rpartition(".")
    return Name(simple, (own_space if dot else space) or None)


def is_strict_name(text: str) -> bool:
    """Whether Avro's specification allows the name."""
    return _STRICT_NAME.fullmatch(text) is not None


def is_lenient_name(text: str) -> bool:
    """Whether Avro's Java library allows the name by default: letters and digits of any script."""
    return all(
        (letter.isalpha() or letter == "_" or (letter.isdecimal() and position > 0)) and letter <= "\uffff"
        for position, letter in enumerate(text)
    ) and bool(text)


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class AvroType:
    """A type in a schema."""

    kind: str
    """One of `KINDS`."""
    properties: dict[str, Any] = field(default_factory=dict)
    """What the schema says beyond Avro's own attributes, logical types included; in the order of the text."""

    @property
    def union_name(self) -> str:
        """What must be different for the branches of a union."""
        return self.kind


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class Primitive(AvroType):
    """A type without parts."""


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class Array(AvroType):
    """A list of values."""

    items: AvroType


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class Map(AvroType):
    """Values by strings."""

    values: AvroType


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class Union(AvroType):
    """One of several types."""

    branches: list[AvroType]


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class Named(AvroType):
    """A type with a name."""

    name: Name
    doc: str | None = None
    aliases: list[Name] = field(default_factory=list)

    @property
    def union_name(self) -> str:
        """What must be different for the branches of a union."""
        return self.name.full

    @property
    def alias_texts(self) -> list[str]:
        """The full names of the aliases; one in the null namespace, of a type that is not, begins with a dot."""
        return [
            f".{each.simple}" if each.space is None and self.name.space is not None else each.full
            for each in self.aliases
        ]


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class Field:
    """A field of a record."""

    name: str
    type: AvroType
    doc: str | None = None
    has_default: bool = False
    default: Any = None
    order: str = "ascending"
    aliases: list[str] = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class Record(Named):
    """A record, or an error, which differs in the text only."""

    is_error: bool = False
    fields: list[Field] = field(default_factory=list)
    by_name: dict[str, Field] = field(default_factory=dict)


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class Enumeration(Named):
    """One of several symbols."""

    symbols: list[str]
    default: str | None = None


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class Fixed(Named):
    """A fixed number of bytes."""

    size: int


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class Unresolved(AvroType):
    """A name that was used before its type was defined; replaced at the end of the text."""

    full_name: str

    @property
    def union_name(self) -> str:
        """Never equal to another name: duplicates are found when the name is resolved."""
        return f"\x00{id(self)}"
