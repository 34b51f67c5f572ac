"""The tree of a `.proto` file, as it is written: names are not resolved, options not interpreted.

Lists are in the order of the source. `offset` is the place in the text, for error messages; it is 0 in trees that come
from a FileDescriptorProto.
"""

from typing import Final, TypeAlias

from msgspec import Struct

FIELD_NUMBER_MAX: Final = 536_870_911
ENUM_NUMBER_MAX: Final = 2_147_483_647
NAME_LENGTH_MAX: Final = 1_000
"""The length of a full name. Every definition has one, so without a bound they would fill the memory."""

STRING: Final = "string"
NUMBER: Final = "number"
IDENTIFIER: Final = "identifier"

_INTEGER_TYPES: Final = ("int32", "int64", "uint32", "uint64", "sint32", "sint64")
_FIXED_TYPES: Final = ("fixed32", "fixed64", "sfixed32", "sfixed64")
SCALAR_TYPES: Final = frozenset((*_INTEGER_TYPES, *_FIXED_TYPES, "double", "float", "bool", "string", "bytes"))


class Scalar(Struct, frozen=True):
    """A string, number or identifier. Bytes of a string that are not UTF-8 are surrogates (`surrogateescape`)."""

    kind: str
    text: str

    @property
    def data(self) -> bytes:
        return self.text.encode("utf-8", "surrogateescape")


class MessageLiteral(Struct, frozen=True):
    """A message in text format: `{ name: value ... }`. The key of an extension is in brackets."""

    entries: tuple[tuple[str, "Value"], ...]


class ListLiteral(Struct, frozen=True):
    """Values of a repeated field in text format: `[a, b]`."""

    values: tuple["Value", ...]


Value: TypeAlias = Scalar | MessageLiteral | ListLiteral


class OptionName(Struct, frozen=True):
    """One part of an option's name: `features`, or `(my.option)`, which is an extension."""

    name: str
    is_extension: bool = False


class Option(Struct, frozen=True, eq=False):
    """An option of any element: `(my.option).part = value`."""

    path: tuple[OptionName, ...]
    value: Value
    offset: int = 0

    @property
    def name(self) -> str:
        """The name as it is written, such as `(my.option).part`."""
        return ".".join(f"({part.name})" if part.is_extension else part.name for part in self.path)


class Field(Struct, frozen=True, eq=False):
    """A field of a message or an extension. Of a map, `type` is the value's type; of a group, the group's name."""

    name: str
    number: int
    type: str
    label: str | None = None
    key_type: str | None = None
    """The type of the keys, of a map."""
    group: "Message | None" = None
    oneof: int | None = None
    """The index of the oneof that the field is a member of."""
    options: tuple[Option, ...] = ()
    offset: int = 0

    @property
    def type_text(self) -> str:
        return self.type if self.key_type is None else f"map<{self.key_type}, {self.type}>"


class OneOf(Struct, frozen=True, eq=False):
    """A oneof. Its members are among the fields of the message."""

    name: str
    options: tuple[Option, ...] = ()
    offset: int = 0


class Range(Struct, frozen=True):
    """Numbers from `start` to `last`, both included. `single` is written as one number."""

    start: int
    last: int
    single: bool = False


class Reserved(Struct, frozen=True, eq=False):
    """A `reserved` statement: ranges or names, never both."""

    ranges: tuple[Range, ...] = ()
    names: tuple[str, ...] = ()
    offset: int = 0


class ExtensionRanges(Struct, frozen=True, eq=False):
    """An `extensions` statement."""

    ranges: tuple[Range, ...]
    options: tuple[Option, ...] = ()
    offset: int = 0


class Extend(Struct, frozen=True, eq=False):
    """An `extend` statement: fields that are added to another message."""

    extendee: str
    fields: tuple[Field, ...]
    offset: int = 0


class EnumValue(Struct, frozen=True, eq=False):
    """A value of an enum."""

    name: str
    number: int
    options: tuple[Option, ...] = ()
    offset: int = 0


class Enum(Struct, frozen=True, eq=False):
    """An enum."""

    name: str
    values: tuple[EnumValue, ...] = ()
    reserved: tuple[Reserved, ...] = ()
    options: tuple[Option, ...] = ()
    visibility: str | None = None
    offset: int = 0


class Message(Struct, frozen=True, eq=False):
    """A message, or the body of a group."""

    name: str
    fields: tuple[Field, ...] = ()
    """All fields, those of oneofs and the groups among them."""
    oneofs: tuple[OneOf, ...] = ()
    types: tuple["Message | Enum", ...] = ()
    """The nested messages and enums that are written as such: neither groups nor what maps stand for."""
    extends: tuple[Extend, ...] = ()
    extension_ranges: tuple[ExtensionRanges, ...] = ()
    reserved: tuple[Reserved, ...] = ()
    options: tuple[Option, ...] = ()
    visibility: str | None = None
    offset: int = 0

    @property
    def is_map_entry(self) -> bool:
        """Whether the message is what a map field stands for, written out, as in trees from a FileDescriptorProto."""
        return self._has_option("map_entry") and {"key", "value"} <= {field.name for field in self.fields}

    @property
    def has_set_encoding(self) -> bool:
        """Whether the message has the old encoding of extensions, in which their numbers can be larger."""
        return self._has_option("message_set_wire_format")

    def _has_option(self, name: str) -> bool:
        return any(
            option.name == name and isinstance(option.value, Scalar) and option.value.text == "true"
            for option in self.options
        )


class Method(Struct, frozen=True, eq=False):
    """A method of a service."""

    name: str
    request: str
    response: str
    request_streaming: bool = False
    response_streaming: bool = False
    options: tuple[Option, ...] = ()
    offset: int = 0


class Service(Struct, frozen=True, eq=False):
    """A service."""

    name: str
    methods: tuple[Method, ...] = ()
    options: tuple[Option, ...] = ()
    offset: int = 0


class Import(Struct, frozen=True):
    """An import of a file, by its path."""

    path: str
    kind: str = ""
    """"", "public", "weak", or "option" (for options only, from edition 2024 on)."""
    offset: int = 0


class File(Struct, frozen=True, eq=False):
    """A `.proto` file."""

    syntax: str = "proto2"
    """proto2, proto3, or the edition: 2023, 2024."""
    syntax_is_written: bool = False
    package: str = ""
    imports: tuple[Import, ...] = ()
    types: tuple[Message | Enum, ...] = ()
    extends: tuple[Extend, ...] = ()
    services: tuple[Service, ...] = ()
    options: tuple[Option, ...] = ()

    @property
    def is_edition(self) -> bool:
        return self.syntax not in ("proto2", "proto3")
