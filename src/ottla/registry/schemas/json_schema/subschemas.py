"""Schemas after loading: each class is a kind of schema that the comparison knows.

The kinds are those of the validator that Confluent's registry compares with, because its rules are written in them: an
object of keywords for several types, such as `{"minLength": 1, "minimum": 0}`, is an `allOf` of a string schema and a
number schema, and `"type": ["string", "null"]` is an `anyOf`. Loading fills them in; then they do not change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Final

ABSENT: Final = object()
"""The value of a keyword that is not there, where null is a value."""

Number = int | Decimal
ALL_OF: Final = "allOf"
ANY_OF: Final = "anyOf"
ONE_OF: Final = "oneOf"


@dataclass(slots=True, eq=False, kw_only=True)
class Subschema:
    """What every kind of schema has."""

    uri: str | None = None
    title: str | None = None
    description: str | None = None
    default: Any = ABSENT
    other: Mapping[str, Any] = field(default_factory=dict)
    """Keywords that have no field, by name, with their JSON values."""

    @property
    def has_default(self) -> bool:
        """Whether a reader can fill in the value."""
        return self.default is not ABSENT


@dataclass(slots=True, eq=False, kw_only=True)
class AnythingSchema(Subschema):
    """`{}` or `true`: every value is valid."""

    literal: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class NothingSchema(Subschema):
    """`false`: no value is valid."""


@dataclass(slots=True, eq=False, kw_only=True)
class BooleanSchema(Subschema):
    """A boolean."""


@dataclass(slots=True, eq=False, kw_only=True)
class NullSchema(Subschema):
    """Null."""


@dataclass(slots=True, eq=False, kw_only=True)
class StringSchema(Subschema):
    """A string; with `typed` false, any value that is not a string, too."""

    typed: bool = True
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    format: str | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class NumberSchema(Subschema):
    """A number; with `typed` false, any value that is not a number, too."""

    typed: bool = True
    integer: bool = False
    minimum: Number | None = None
    maximum: Number | None = None
    exclusive_minimum: Number | bool | None = None
    """A boolean in draft 4, where it says what `minimum` means."""
    exclusive_maximum: Number | bool | None = None
    multiple_of: Number | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class ArraySchema(Subschema):
    """An array; with `typed` false, any value that is not an array, too."""

    typed: bool = True
    min_items: int | None = None
    max_items: int | None = None
    unique_items: bool = False
    items: Subschema | None = None
    """What all items must match."""
    prefix_items: tuple[Subschema, ...] | None = None
    """What the first items must match, one by one."""
    additional_items: Subschema | bool = True
    contains: Subschema | None = None
    min_contains: Number | None = None
    max_contains: Number | None = None
    unevaluated_items: Subschema | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class ObjectSchema(Subschema):
    """An object; with `typed` false, any value that is not an object, too."""

    typed: bool = True
    properties: Mapping[str, Subschema] = field(default_factory=dict)
    pattern_properties: Mapping[str, Subschema] = field(default_factory=dict)
    additional_properties: Subschema | bool = True
    required: frozenset[str] = frozenset()
    min_properties: int | None = None
    max_properties: int | None = None
    required_by: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Properties that must be there if the property that is the key is there."""
    schemas_by: Mapping[str, Subschema] = field(default_factory=dict)
    """What the object must match if the property that is the key is there."""
    property_names: Subschema | None = None
    unevaluated_properties: Subschema | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class EnumSchema(Subschema):
    """One of some values."""

    values: tuple[Any, ...]


@dataclass(slots=True, eq=False, kw_only=True)
class ConstSchema(Subschema):
    """One value."""

    value: Any


@dataclass(slots=True, eq=False, kw_only=True)
class NotSchema(Subschema):
    """All values that another schema does not accept."""

    schema: Subschema


@dataclass(slots=True, eq=False, kw_only=True)
class ConditionalSchema(Subschema):
    """`if`, `then`, `else`."""

    condition: Subschema | None = None
    then: Subschema | None = None
    otherwise: Subschema | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class CombinedSchema(Subschema):
    """Several schemas and how many of them must match: `allOf`, `anyOf`, `oneOf`."""

    criterion: str
    members: tuple[Subschema, ...]
    implied: bool = False
    """Not written as `allOf` or `anyOf`, but by keywords for several types in one object."""


@dataclass(slots=True, eq=False, kw_only=True)
class ExternalSchema(Subschema):
    """A schema that is not at hand, such as the meta-schema of a draft: it equals itself, nothing else is known."""

    name: str


@dataclass(slots=True, eq=False, kw_only=True)
class ReferenceSchema(Subschema):
    """A `$ref`."""

    UNRESOLVED: ClassVar[Subschema] = AnythingSchema()
    reference: str
    target: Subschema = UNRESOLVED
    """The schema that is meant; never a reference itself. A circle of references alone says nothing: anything."""
