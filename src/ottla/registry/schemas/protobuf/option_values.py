"""The values of options and defaults: what a literal means for a type, and its encoding.

Options are encoded here, field by field, and never pass through message classes: those of custom options exist only in
the schema. An option that is an extension is then an unknown field of the options message, as protoc leaves it.
"""

import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Final

from ottla.registry.schemas.protobuf.known_files import known_file
from ottla.registry.schemas.protobuf.parsing import integer_of
from ottla.registry.schemas.protobuf.symbols import MAIN, FileView, Symbol, SymbolTable
from ottla.registry.schemas.protobuf.syntax_tree import (
    IDENTIFIER,
    NUMBER,
    STRING,
    Enum,
    Field,
    ListLiteral,
    Message,
    MessageLiteral,
    Option,
    Scalar,
    Value,
)

INTEGER_RANGES: Final = {
    "int32": (-(1 << 31), (1 << 31) - 1),
    "sint32": (-(1 << 31), (1 << 31) - 1),
    "sfixed32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "fixed32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "sint64": (-(1 << 63), (1 << 63) - 1),
    "sfixed64": (-(1 << 63), (1 << 63) - 1),
    "uint64": (0, (1 << 64) - 1),
    "fixed64": (0, (1 << 64) - 1),
}
_FIXED: Final = {"fixed32": "<I", "sfixed32": "<i", "fixed64": "<Q", "sfixed64": "<q"}
_VARINT, _FIXED64, _BYTES, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_DIGITS_MAX: Final = 400
_DESCRIPTOR_PATH: Final = "google/protobuf/descriptor.proto"


_TARGETS: Final = {
    "FileOptions": "TARGET_TYPE_FILE",
    "ExtensionRangeOptions": "TARGET_TYPE_EXTENSION_RANGE",
    "MessageOptions": "TARGET_TYPE_MESSAGE",
    "FieldOptions": "TARGET_TYPE_FIELD",
    "OneofOptions": "TARGET_TYPE_ONEOF",
    "EnumOptions": "TARGET_TYPE_ENUM",
    "EnumValueOptions": "TARGET_TYPE_ENUM_ENTRY",
    "ServiceOptions": "TARGET_TYPE_SERVICE",
    "MethodOptions": "TARGET_TYPE_METHOD",
}


class OptionError(ValueError):
    """A literal is not a value of the type that it is for."""


def scalar_value(type_: str, literal: Value, *, in_literal: bool = False) -> int | float | bool | bytes:
    """The value that a literal stands for in a field of a scalar type. Text format is laxer about booleans."""
    if not isinstance(literal, Scalar):
        raise OptionError(f"expected a value of type {type_}, not a message or list")
    kind, text = literal.kind, literal.text
    if type_ in ("string", "bytes"):
        if kind != STRING:
            raise OptionError(f"expected a string in quotes for type {type_}, not {text}")
        return literal.data
    if type_ == "bool":
        if kind == IDENTIFIER and text in ("true", "false"):
            return text == "true"
        if in_literal and (kind, text) in _LAX_BOOLEANS:
            return text in ("t", "True", "1")
        raise OptionError(f"expected true or false, not {text}")
    if type_ in INTEGER_RANGES:
        return _integer(type_, literal)
    return _float(type_, literal, in_literal)


_LAX_BOOLEANS: Final = {(IDENTIFIER, "t"), (IDENTIFIER, "f"), (IDENTIFIER, "True"), (IDENTIFIER, "False")} | {
    (NUMBER, "0"),
    (NUMBER, "1"),
}


def _integer(type_: str, literal: Scalar) -> int:
    digits = literal.text.removeprefix("-")
    is_hexadecimal = digits[:2] in ("0x", "0X")
    if literal.kind != NUMBER or not (is_hexadecimal or digits.isdigit()):
        raise OptionError(f"expected an integer for type {type_}, not {literal.text}")
    number = integer_of(digits) if len(digits) <= _DIGITS_MAX else 1 << 64
    if literal.text.startswith("-"):
        number = -number
    low, high = INTEGER_RANGES[type_]
    if not low <= number <= high:
        raise OptionError(f"{literal.text} is out of range for type {type_}")
    return number


def _float(type_: str, literal: Scalar, in_literal: bool) -> float:
    text = literal.text.lower() if in_literal else literal.text
    if literal.kind == STRING:
        raise OptionError(f"expected a number for type {type_}, not a string")
    name = text.removeprefix("-")
    if name in ("inf", "nan") or (in_literal and name == "infinity"):
        return float(text)
    if literal.kind != NUMBER:
        raise OptionError(f"expected a number for type {type_}, not {text}")
    if name[:2] == "0x" or (name.isdigit() and len(name) <= _DIGITS_MAX):
        value = float(min(integer_of(name), 1 << 1023))
        return -value if text.startswith("-") else value
    return float(text)


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _delimited(number: int, data: bytes) -> bytes:
    return _tag(number, _BYTES) + _varint(len(data)) + data


def encoded_scalar(number: int, type_: str, value: int | float | bool | bytes) -> bytes:
    """A field of a scalar type with its value, on the wire."""
    if isinstance(value, bytes):
        return _delimited(number, value)
    if type_ == "double":
        return _tag(number, _FIXED64) + struct.pack("<d", value)
    if type_ == "float":
        try:
            return _tag(number, _FIXED32) + struct.pack("<f", value)
        except OverflowError:
            return _tag(number, _FIXED32) + struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    if type_ in _FIXED:
        wire_type = _FIXED32 if type_.endswith("32") else _FIXED64
        return _tag(number, wire_type) + struct.pack(_FIXED[type_], value)
    value = int(value)
    if type_ in ("sint32", "sint64"):
        value = value << 1 if value >= 0 else (-value << 1) - 1
    return _tag(number, _VARINT) + _varint(value)


@cache
def _descriptor_table() -> SymbolTable:
    return SymbolTable({MAIN: known_file(_DESCRIPTOR_PATH)})


class _MessageType:
    """A message type and the view of its file, in which the types of its fields are found."""

    def __init__(self, symbol: Symbol, view: FileView) -> None:
        assert isinstance(symbol.node, Message)
        self.full_name = symbol.full_name
        self.view = view
        self.fields = {field.name: field for field in symbol.node.fields}
        self.required = [field.name for field in symbol.node.fields if field.label == "required"]
        # The field of a group has the group's name in lower case, but text format writes the group's name.
        self.groups = {field.type: field for field in symbol.node.fields if field.group is not None}


class _FieldType:
    """A field as a place for values: with the scope and view in which its type is found."""

    __slots__ = ("field", "scope", "view")

    def __init__(self, field: Field, scope: str, view: FileView) -> None:
        self.field = field
        self.scope = scope
        self.view = view

    @property
    def is_repeated(self) -> bool:
        return self.field.label == "repeated" or self.field.key_type is not None


class OptionEncoder:
    """Encodes the options of one file. Raises `OptionError`, or leaves out what is wrong in a lenient table."""

    def __init__(self, table: SymbolTable, path: str = MAIN) -> None:
        self._table = table
        self._view = table.view(path)
        self._types: dict[str, _MessageType] = {}
        self._target = ""

    def encoded(self, options: Sequence[Option], options_type: str, scope: str) -> bytes:
        """The options as a message of a type of descriptor.proto, such as FieldOptions."""
        if not options:
            return b""
        message = self._message_type(f"google.protobuf.{options_type}")
        self._target = _TARGETS[options_type]
        seen: set[tuple[int, ...]] = set()
        if not self._table.is_lenient:
            return b"".join(self._option(option, message, scope, seen) for option in options)
        encoded = b""
        for option in options:
            with suppress(OptionError):
                encoded += self._option(option, message, scope, seen)
        return encoded

    def _message_type(self, full_name: str) -> _MessageType:
        known = self._types.get(full_name)
        if known is None:
            symbol = self._table.symbols.get(full_name)
            table = self._table
            if symbol is None:
                table = _descriptor_table()
                symbol = table.symbols[full_name]
            known = self._types[full_name] = _MessageType(symbol, table.view(symbol.path))
        return known

    def _option(self, option: Option, message: _MessageType, scope: str, seen: set[tuple[int, ...]]) -> bytes:
        path: list[_FieldType] = []
        numbers: tuple[int, ...] = ()
        for position, part in enumerate(option.path):
            written = ".".join(f"({p.name})" if p.is_extension else p.name for p in option.path[: position + 1])
            if part.is_extension:
                found = self._extension(part.name, message, scope)
                if found is None and self._table.missing_imports:
                    return b""  # It may be defined in the import that is missing.
            else:
                field = message.fields.get(part.name)
                found = None if field is None else _FieldType(field, message.full_name, message.view)
            if found is None or part.name == "uninterpreted_option":
                raise OptionError(f"option {written} is not known")
            self._check_target(found.field)
            numbers += (found.field.number,)
            path.append(found)
            is_last = position == len(option.path) - 1
            if not is_last:
                nested = found.view.message(found.field.type, found.scope)
                if nested is None:
                    raise OptionError(f"option {written} is not a message")
                if found.is_repeated:
                    raise OptionError(f"option {written} is a repeated message; use a message literal")
                message = self._message_type_of(nested, found.view)
        if numbers in seen and not path[-1].is_repeated:
            raise OptionError(f"option {option.name} is already set")
        for length in range(1, len(numbers) + 1):
            seen.add(numbers[:length])
        data = self._field_value(path[-1], option.value, scope, numbers, seen, in_literal=False)
        for outer in reversed(path[:-1]):
            data = self._wrapped(outer.field, data)
        return data

    def _check_target(self, field: Field) -> None:
        """A field of options can say which kinds of elements it is for."""
        targets = [o.value.text for o in field.options if o.name == "targets" and isinstance(o.value, Scalar)]
        if targets and self._target not in targets:
            element = self._target.removeprefix("TARGET_TYPE_").lower().replace("_", " ")
            raise OptionError(f"option {field.name} cannot be set for an element of type {element}")

    def _message_type_of(self, symbol: Symbol, view: FileView) -> _MessageType:
        known = self._types.get(symbol.full_name)
        if known is None:
            known = self._types[symbol.full_name] = _MessageType(symbol, view.table.view(symbol.path))
        return known

    def _wrapped(self, field: Field, data: bytes) -> bytes:
        if field.group is not None:
            return _tag(field.number, _START_GROUP) + data + _tag(field.number, _END_GROUP)
        return _delimited(field.number, data)

    def _extension(self, name: str, message: _MessageType, scope: str) -> _FieldType | None:
        symbol = self._view.extension(name, scope)
        if symbol is None or not isinstance(symbol.node, Field) or symbol.extendee is None:
            return None
        view = self._table.view(symbol.path)
        extended = view.message(symbol.extendee, symbol.scope)
        if extended is None or extended.full_name != message.full_name:
            return None
        return _FieldType(symbol.node, symbol.scope, view)

    def _field_value(
        self,
        target: _FieldType,
        value: Value,
        scope: str,
        path: tuple[int, ...],
        seen: set[tuple[int, ...]],
        *,
        in_literal: bool,
    ) -> bytes:
        if isinstance(value, ListLiteral):
            if not target.is_repeated:
                raise OptionError(f"field {target.field.name} is not repeated, so its value cannot be a list")
            items: Iterable[Value] = value.values
        else:
            items = (value,)
        return b"".join(self._single(target, item, scope, path, seen, in_literal) for item in items)

    def _single(
        self,
        target: _FieldType,
        value: Value,
        scope: str,
        path: tuple[int, ...],
        seen: set[tuple[int, ...]],
        in_literal: bool,
    ) -> bytes:
        field = target.field
        if field.key_type is not None:
            return self._map_entry(target, value, scope)
        symbol = target.view.type(field.type, target.scope)
        if symbol is None:
            scalar = scalar_value(field.type, value, in_literal=in_literal)
            return encoded_scalar(field.number, field.type, scalar)
        if isinstance(symbol.node, Enum):
            is_open = not target.view.table.is_closed(symbol)
            return encoded_scalar(field.number, "int32", _enum_number(symbol.node, value, in_literal, is_open))
        if not isinstance(value, MessageLiteral):
            raise OptionError(f"field {field.name} is a message: write {{ ... }}")
        message = self._message_type_of(symbol, target.view)
        seen_inside = set() if target.is_repeated else seen
        return self._wrapped(field, self._literal(message, value, scope, path, seen_inside))

    def _map_entry(self, target: _FieldType, value: Value, scope: str) -> bytes:
        field = target.field
        if not isinstance(value, MessageLiteral):
            raise OptionError(f"field {field.name} is a map: write {{ key: ... value: ... }}")
        assert field.key_type is not None
        members = {
            "key": _FieldType(Field("key", 1, field.key_type), target.scope, target.view),
            "value": _FieldType(Field("value", 2, field.type), target.scope, target.view),
        }
        data = b""
        for key, item in value.entries:
            if key not in members:
                raise OptionError(f"the entry of map {field.name} has no field {key}")
            data += self._field_value(members[key], item, scope, (), set(), in_literal=True)
        return _delimited(field.number, data)

    def _literal(
        self,
        message: _MessageType,
        literal: MessageLiteral,
        scope: str,
        path: tuple[int, ...],
        seen: set[tuple[int, ...]],
    ) -> bytes:
        if message.full_name == "google.protobuf.Any" and len(literal.entries) == 1 and "/" in literal.entries[0][0]:
            return self._any(literal, scope)
        data = b""
        present: set[str] = set()
        oneofs: dict[int, str] = {}
        for key, value in literal.entries:
            target = self._literal_target(message, key, scope)
            if target is None:
                raise OptionError(f"message {message.full_name} has no field {key}")
            self._check_target(target.field)
            name = target.field.name
            if key in present and not target.is_repeated:
                raise OptionError(f"field {key} of message {message.full_name} is set more than once")
            present.add(key)
            oneof = target.field.oneof
            if oneof is not None and not key.startswith("["):
                if oneof in oneofs:
                    raise OptionError(f"field {key} of message {message.full_name} excludes field {oneofs[oneof]}")
                oneofs[oneof] = key
            inner = (*path, target.field.number)
            seen.add(inner)
            data += self._field_value(target, value, scope, inner, seen, in_literal=True)
            present.add(name)
        for required in message.required:
            if required not in present:
                raise OptionError(f"the required field {required} of message {message.full_name} is missing")
        return data

    def _literal_target(self, message: _MessageType, key: str, scope: str) -> _FieldType | None:
        if key.startswith("["):
            return self._extension(key[1:-1], message, scope)
        field = message.groups.get(key) or message.fields.get(key)
        if field is None or (field.group is not None and key != field.type and key != field.name):
            return None
        return _FieldType(field, message.full_name, message.view)

    def _any(self, literal: MessageLiteral, scope: str) -> bytes:
        key, value = literal.entries[0]
        url = key[1:-1]
        symbol = self._view.message("." + url.rpartition("/")[2], scope)
        if symbol is None or not isinstance(value, MessageLiteral):
            raise OptionError(f"the type {url} of an Any is not known")
        packed = self._literal(self._message_type_of(symbol, self._view), value, scope, (), set())
        return _delimited(1, url.encode()) + (_delimited(2, packed) if packed else b"")


def _enum_number(enum: Enum, value: Value, in_literal: bool, is_open: bool) -> int:
    if isinstance(value, Scalar):
        if value.kind == IDENTIFIER:
            for candidate in enum.values:
                if candidate.name == value.text:
                    return candidate.number
        elif in_literal and value.kind == NUMBER:
            number = _integer("int32", value)
            if is_open or any(candidate.number == number for candidate in enum.values):
                return number
    text = value.text if isinstance(value, Scalar) else "a message or list"
    raise OptionError(f"enum {enum.name} has no value {text}")
