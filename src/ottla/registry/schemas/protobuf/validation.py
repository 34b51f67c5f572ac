"""Refuses what protoc refuses: names that mean nothing, numbers that clash, options and defaults of a wrong type.

There are two exceptions, both accepted by Confluent's registry too. The option `map_entry` may be written, because that
is how maps look in a text that was made from a FileDescriptorProto. And an import may be missing if no type is needed
from it; then options that are extensions are not checked. Not checked: the naming style of edition 2024, and
declarations of extensions.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Final, NoReturn

from ottla.registry.schemas.parsed_schema import InvalidSchemaError
from ottla.registry.schemas.protobuf import features as features_module
from ottla.registry.schemas.protobuf.features import Features, with_options
from ottla.registry.schemas.protobuf.option_values import OptionEncoder, OptionError, scalar_value
from ottla.registry.schemas.protobuf.symbols import MAIN, Symbol, SymbolTable, joined, map_entry_name
from ottla.registry.schemas.protobuf.syntax_tree import (
    ENUM_NUMBER_MAX,
    FIELD_NUMBER_MAX,
    IDENTIFIER,
    SCALAR_TYPES,
    STRING,
    Enum,
    Extend,
    Field,
    Message,
    Option,
    Range,
    Reserved,
    Scalar,
    Service,
)
from ottla.registry.schemas.protobuf.tokens import place_of
from ottla.registry.schemas.time_limit import check_time

_RESERVED_FIRST: Final = 19_000
_RESERVED_LAST: Final = 19_999
_MAP_KEYS: Final = SCALAR_TYPES - {"double", "float", "bytes"}
_PACKABLE: Final = SCALAR_TYPES - {"string", "bytes"}
_LONG_INTEGERS: Final = frozenset(("int64", "uint64", "sint64", "fixed64", "sfixed64"))
_OPTION_MESSAGES: Final = frozenset(
    f"google.protobuf.{kind}Options"
    for kind in (
        "File",
        "Message",
        "Field",
        "Oneof",
        "ExtensionRange",
        "Enum",
        "EnumValue",
        "Service",
        "Method",
        "Stream",
    )
)


def validate(table: SymbolTable, text: str) -> None:
    """Checks the main file of a table. The text serves the places in the messages of `InvalidSchemaError`."""
    _Validator(table, text).file()


def check_types(table: SymbolTable, text: str) -> None:
    """Checks only that the types of the main file can be found, which everything else relies on."""
    _Validator(table, text).types()


class _Validator:
    def __init__(self, table: SymbolTable, text: str) -> None:
        self._table = table
        self._text = text
        self._file = table.files[MAIN]
        self._view = table.view(MAIN)
        self._encoder = OptionEncoder(table)
        self._extension_numbers: dict[tuple[str, int], str] = {}
        self._extension_ranges: dict[str, tuple[list[int], list[int]]] = {}
        """By message: where its extension ranges start, in order, and the highest end up to each of them."""

    def _fail(self, offset: int, message: str) -> NoReturn:
        place = f"{place_of(self._text, offset)}: " if offset else ""
        raise InvalidSchemaError(place + message)

    def file(self) -> None:
        file = self._file
        seen: set[str] = set()
        for import_ in file.imports:
            if import_.path in seen:
                self._fail(import_.offset, f"{import_.path} is imported twice")
            seen.add(import_.path)
        self._other_extension_numbers()
        features = with_options(features_module.DEFAULTS[file.syntax], file.options)
        self._options(file.options, "FileOptions", file.package)
        if features["field_presence"] == "LEGACY_REQUIRED":
            raise InvalidSchemaError("the file cannot make all fields required: set it for each field")
        for type_ in file.types:
            self._type(type_, file.package, features)
        for extend in file.extends:
            self._extend(extend, file.package, features)
        for service in file.services:
            self._service(service)

    def types(self) -> None:
        """Finds all types that the file names."""
        file = self._file
        pending = [(type_, file.package) for type_ in file.types if isinstance(type_, Message)]
        extends = [(extend, file.package) for extend in file.extends]
        while pending:
            message, scope = pending.pop()
            scope = joined(scope, message.name)
            for field in message.fields:
                self._field_type(field, scope)
                if field.group is not None:
                    pending.append((field.group, scope))
            pending += [(nested, scope) for nested in message.types if isinstance(nested, Message)]
            extends += [(extend, scope) for extend in message.extends]
        for extend, scope in extends:
            self._extended(extend, scope)
            for field in extend.fields:
                self._field_type(field, scope)
        for service in file.services:
            self._method_types(service)

    def _other_extension_numbers(self) -> None:
        """The extensions that imports define: no number of a message can be given twice."""
        for symbol in self._table.symbols.values():
            if symbol.extendee is not None and symbol.path != MAIN and isinstance(symbol.node, Field):
                extended = self._table.view(symbol.path).message(symbol.extendee, symbol.scope)
                if extended is not None:
                    key = (extended.full_name, symbol.node.number)
                    self._extension_numbers.setdefault(key, symbol.full_name)

    # Options

    def _options(self, options: Sequence[Option], kind: str, scope: str) -> None:
        if not options:
            return
        if not self._file.is_edition:
            for option in options:
                if option.path[0].name == "features" and not option.path[0].is_extension:
                    self._fail(option.offset, "features are only valid in editions")
        # Together, because a clash can be between any two; one by one only to find out which is wrong.
        try:
            self._encoder.encoded(options, kind, scope)
        except OptionError as error:
            for count in range(1, len(options) + 1):
                try:
                    self._encoder.encoded(options[:count], kind, scope)
                except OptionError:
                    self._fail(options[count - 1].offset, str(error))
            raise

    # Types

    def _type(self, type_: Message | Enum, scope: str, features: Features) -> None:
        if isinstance(type_, Message):
            self._message(type_, scope, features)
        else:
            self._enum(type_, scope, features)

    def _message(self, message: Message, scope: str, features: Features) -> None:
        full_name = joined(scope, message.name)
        features = with_options(features, message.options)
        self._options(message.options, "MessageOptions", full_name)
        for oneof in message.oneofs:
            self._options(oneof.options, "OneofOptions", full_name)
        for field in message.fields:
            self._field(field, full_name, features)
        self._numbers(message, full_name)
        self._map_entries(message, full_name)
        self._json_names(message, full_name, features)
        for statement in message.extension_ranges:
            self._options(statement.options, "ExtensionRangeOptions", full_name)
        for nested in message.types:
            self._type(nested, full_name, features)
        for extend in message.extends:
            self._extend(extend, full_name, features)

    def _numbers(self, message: Message, full_name: str) -> None:
        """Field numbers, reserved numbers and extension ranges are all apart from each other."""
        is_set = message.has_set_encoding
        if is_set and message.fields:
            self._fail(message.fields[0].offset, f"message {full_name} is a MessageSet, which cannot have fields")
        if is_set and self._file.syntax == "proto3":
            self._fail(message.offset, "MessageSets are not allowed in proto3")
        if message.extension_ranges and self._file.syntax == "proto3":
            self._fail(message.extension_ranges[0].offset, "extension ranges are not allowed in proto3")
        ranges = [
            *((r, s.offset, "reserved range") for s in message.reserved for r in s.ranges),
            *((r, s.offset, "extension range") for s in message.extension_ranges for r in s.ranges),
        ]
        for range_, offset, what in ranges:
            if range_.start < 1:
                self._fail(offset, f"the {what} {_shown(range_)} of {full_name} does not start at 1 or above")
            # Reserved numbers, and the types of a MessageSet, may be larger than the numbers of fields.
            maximum = FIELD_NUMBER_MAX if what == "extension range" and not is_set else ENUM_NUMBER_MAX - 1
            if range_.last > maximum:
                self._fail(offset, f"the {what} {_shown(range_)} of {full_name} ends above {maximum}")
        self._apart(ranges, full_name)
        self._reserved_names(message.reserved, full_name)
        by_number: dict[int, Field] = {}
        names = {name for statement in message.reserved for name in statement.names}
        ordered = sorted(ranges, key=lambda item: item[0].start)
        position = 0
        for field in sorted(message.fields, key=lambda field: field.number):
            other = by_number.setdefault(field.number, field)
            if other is not field:
                self._fail(
                    field.offset, f"number {field.number} of field {field.name} is already used by field {other.name}"
                )
            if field.name in names:
                self._fail(field.offset, f"the name of field {field.name} is reserved")
            while position < len(ordered) and ordered[position][0].last < field.number:
                position += 1
            if position < len(ordered) and ordered[position][0].start <= field.number:
                what = ordered[position][2]
                self._fail(field.offset, f"number {field.number} of field {field.name} is in a {what}")

    def _apart(self, ranges: list[tuple[Range, int, str]], full_name: str) -> None:
        for range_, offset, what in ranges:
            if range_.last < range_.start:
                self._fail(offset, f"the {what} {_shown(range_)} of {full_name} ends before it starts")
        ordered = sorted(ranges, key=lambda item: item[0].start)
        for (earlier, _, what), (later, offset, other) in pairwise(ordered):
            if later.start <= earlier.last:
                self._fail(
                    offset,
                    f"the {other} {_shown(later)} overlaps with the {what} {_shown(earlier)} of {full_name}",
                )

    def _reserved_names(self, statements: Iterable[Reserved], full_name: str) -> None:
        seen: set[str] = set()
        for statement in statements:
            for name in statement.names:
                if name in seen:
                    self._fail(statement.offset, f"the name {name} is reserved twice in {full_name}")
                seen.add(name)

    def _map_entries(self, message: Message, full_name: str) -> None:
        """The message that a map stands for must not have the name of something else."""
        taken = {type_.name for type_ in message.types}
        taken |= {field.name for field in message.fields} | {oneof.name for oneof in message.oneofs}
        taken |= {field.type for field in message.fields if field.group is not None}
        taken |= {value.name for type_ in message.types if isinstance(type_, Enum) for value in type_.values}
        for field in message.fields:
            if field.key_type is not None:
                entry = map_entry_name(field.name)
                if entry in taken:
                    self._fail(field.offset, f"map {field.name} needs the name {entry}, which {full_name} already has")
                taken.add(entry)

    def _json_names(self, message: Message, full_name: str, features: Features) -> None:
        if _flag(message.options, "deprecated_legacy_json_field_conflicts") is True:
            return
        for use_custom in (False, True):
            seen: dict[str, tuple[Field, bool]] = {}
            for field in message.fields:
                default = json_name_of(field.name)
                custom = _json_name(field) if use_custom else None
                is_custom = custom is not None and custom != default
                name = custom if custom is not None and is_custom else default
                if is_custom and name.startswith("[") and name.endswith("]"):
                    self._fail(field.offset, f"the json_name of field {field.name} must not be in brackets")
                other, other_is_custom = seen.setdefault(name, (field, is_custom))
                if other is field or (use_custom and not is_custom and not other_is_custom):
                    continue
                involves_default = not (is_custom and other_is_custom)
                if features["json_format"] == "ALLOW" or not involves_default:
                    self._fail(
                        field.offset,
                        f"fields {other.name} and {field.name} of {full_name} have the same JSON name {name}",
                    )

    # Fields

    def _field(self, field: Field, scope: str, features: Features, *, is_extension: bool = False) -> None:
        check_time()
        full_name = joined(scope, field.name)
        if not 1 <= field.number <= FIELD_NUMBER_MAX:
            self._fail(
                field.offset, f"number {field.number} of field {field.name} is not within 1 to {FIELD_NUMBER_MAX}"
            )
        if _RESERVED_FIRST <= field.number <= _RESERVED_LAST:
            self._fail(
                field.offset,
                f"number {field.number} of field {field.name} is in the range {_RESERVED_FIRST} to {_RESERVED_LAST}, "
                "which Protobuf reserves for itself",
            )
        if field.key_type is not None and field.key_type not in _MAP_KEYS:
            self._fail(field.offset, f"the key of map {field.name} cannot be of type {field.key_type}")
        symbol = self._field_type(field, scope)
        if field.key_type is not None and symbol is not None and isinstance(symbol.node, Enum):
            self._map_of_enum(field, symbol.node)
        real = [option for option in field.options if option.name not in ("default", "json_name")]
        self._options(real, "FieldOptions", full_name)
        inner = with_options(features, field.options)
        self._default(field, symbol, inner)
        self._json_name_option(field, is_extension)
        self._field_options(field, symbol)
        self._presence(field, symbol, inner, is_extension)
        if self._file.is_edition:
            self._own_features(field, symbol)
        if field.group is not None:
            self._message(field.group, scope, features)

    def _map_of_enum(self, field: Field, enum: Enum) -> None:
        if enum.values and enum.values[0].number != 0:
            self._fail(field.offset, f"enum {enum.name} is the value of map {field.name}, so its first value must be 0")

    def _field_type(self, field: Field, scope: str) -> Symbol | None:
        if field.type in SCALAR_TYPES:
            return None
        symbol = self._view.type(field.type, scope)
        if symbol is None:
            self._fail_unknown(field.offset, f"type {field.type} of field {field.name}", field.type, scope)
        return symbol

    def _fail_unknown(self, offset: int, what: str, name: str, scope: str) -> NoReturn:
        other = self._view.lookup(name, scope)
        if other is not None and other.node is not None:
            self._fail(offset, f"{what} is not a type")
        hint = self._view.hint(name) or self._view.hint(joined(scope.rpartition(".")[0], name))
        missing = [i.path for i in self._file.imports if i.path not in self._table.files]
        if missing and not hint:
            hint = f"; there is no reference for the import {', '.join(missing)}"
        self._fail(offset, f"{what} is not defined{hint}")

    def _default(self, field: Field, symbol: Symbol | None, features: Features) -> None:
        defaults = [option for option in field.options if option.name == "default"]
        if not defaults:
            return
        option = defaults[0]
        what = f"the default of field {field.name}"
        if len(defaults) > 1:
            self._fail(defaults[1].offset, f"{what} is set twice")
        if self._file.syntax == "proto3":
            self._fail(option.offset, f"{what}: proto3 has no explicit defaults")
        if field.label == "repeated" or field.key_type is not None:
            self._fail(option.offset, f"{what}: repeated fields cannot have a default")
        if features["field_presence"] == "IMPLICIT":
            self._fail(option.offset, f"{what}: fields with implicit presence cannot have a default")
        if symbol is None:
            self._scalar_default(field, option, what)
        elif isinstance(symbol.node, Enum):
            value = option.value
            names = {candidate.name for candidate in symbol.node.values}
            if not isinstance(value, Scalar) or value.kind != IDENTIFIER or value.text not in names:
                self._fail(option.offset, f"{what} is not a value of enum {symbol.full_name}")
        else:
            self._fail(option.offset, f"{what}: messages cannot have a default")

    def _scalar_default(self, field: Field, option: Option, what: str) -> None:
        value = option.value
        if field.type == "bytes" and isinstance(value, Scalar) and value.kind == IDENTIFIER:
            return  # As Confluent's registry writes it, without quotes.
        try:
            scalar_value(field.type, value)
        except OptionError as error:
            self._fail(option.offset, f"{what}: {error}")

    def _json_name_option(self, field: Field, is_extension: bool) -> None:
        names = [option for option in field.options if option.name == "json_name"]
        if not names:
            return
        option = names[0]
        if len(names) > 1:
            self._fail(names[1].offset, f"json_name of field {field.name} is set twice")
        if is_extension and _json_name(field) != json_name_of(field.name):  # protoc itself sets the default name
            self._fail(option.offset, f"extension {field.name} cannot have a json_name")
        if not isinstance(option.value, Scalar) or option.value.kind != STRING:
            self._fail(option.offset, f"json_name of field {field.name} must be a string")
        if "\0" in option.value.text:
            self._fail(option.offset, f"json_name of field {field.name} has a NUL character")

    def _field_options(self, field: Field, symbol: Symbol | None) -> None:
        is_message = symbol is not None and isinstance(symbol.node, Message)
        is_repeated = field.label == "repeated"
        packed = _flag(field.options, "packed")
        if packed is not None and self._file.is_edition:
            self._fail(field.offset, "the option packed is not allowed in editions; use repeated_field_encoding")
        if packed and (not is_repeated or is_message or (symbol is None and field.type not in _PACKABLE)):
            self._fail(field.offset, f"field {field.name} cannot be packed: only repeated numbers and enums can")
        if not is_message and (_flag(field.options, "lazy") or _flag(field.options, "unverified_lazy")):
            self._fail(field.offset, f"field {field.name} cannot be lazy: only messages can")
        jstype = _word(field.options, "jstype")
        if jstype in ("JS_STRING", "JS_NUMBER") and (field.type not in _LONG_INTEGERS or field.key_type is not None):
            self._fail(field.offset, f"field {field.name} cannot have the option jstype: only 64-bit integers can")

    def _presence(self, field: Field, symbol: Symbol | None, features: Features, is_extension: bool) -> None:
        if symbol is None or not isinstance(symbol.node, Enum) or is_extension:
            return
        is_implicit = (
            features["field_presence"] == "IMPLICIT" and field.label is None and field.oneof is None
        ) or self._file.syntax == "proto3"
        if is_implicit and self._table.is_closed(symbol):
            self._fail(
                field.offset,
                f"field {field.name} has implicit presence, so its enum {symbol.full_name} must be open, not of proto2",
            )

    def _own_features(self, field: Field, symbol: Symbol | None) -> None:
        """The features that a field sets itself must mean something for its type."""
        own = with_options({}, field.options)
        presence = own.get("field_presence")
        is_repeated = field.label == "repeated" or field.key_type is not None
        is_message = field.key_type is None and symbol is not None and isinstance(symbol.node, Message)
        is_packable = not is_message and (symbol is not None or field.type in _PACKABLE) and field.key_type is None
        complaint = None
        if presence is not None and is_repeated:
            complaint = "a repeated field cannot set field_presence"
        elif presence is not None and field.oneof is not None:
            complaint = "a field of a oneof cannot set field_presence"
        elif presence == "IMPLICIT" and is_message:
            complaint = "a message field cannot have implicit presence"
        elif "message_encoding" in own and not is_message:
            complaint = "only message fields can set message_encoding"
        elif "utf8_validation" in own and field.type != "string" and field.key_type != "string":
            complaint = "only string fields can set utf8_validation"
        elif "repeated_field_encoding" in own and not is_repeated:
            complaint = "only repeated fields can set repeated_field_encoding"
        elif own.get("repeated_field_encoding") == "PACKED" and not is_packable:
            complaint = "only repeated numbers and enums can be packed"
        if complaint is not None:
            self._fail(field.offset, f"field {field.name}: {complaint}")

    def _extended(self, extend: Extend, scope: str) -> Symbol:
        symbol = self._view.message(extend.extendee, scope)
        if symbol is None:
            self._fail_unknown(extend.offset, f"the extended message {extend.extendee}", extend.extendee, scope)
        return symbol

    def _extend(self, extend: Extend, scope: str, features: Features) -> None:
        symbol = self._extended(extend, scope)
        if self._file.syntax == "proto3" and symbol.full_name not in _OPTION_MESSAGES:
            self._fail(extend.offset, "extensions in proto3 are only allowed for defining options")
        assert isinstance(symbol.node, Message)
        for field in extend.fields:
            if field.label == "required":
                self._fail(field.offset, f"extension {field.name} cannot be required")
            self._field(field, scope, features, is_extension=True)
            if not self._is_extension_number(symbol, field.number):
                self._fail(field.offset, f"{symbol.full_name} does not declare {field.number} as an extension number")
            full_name = joined(scope, field.name)
            other = self._extension_numbers.setdefault((symbol.full_name, field.number), full_name)
            if other != full_name:
                self._fail(
                    field.offset,
                    f"extension number {field.number} of {symbol.full_name} is already used by {other}",
                )

    def _is_extension_number(self, symbol: Symbol, number: int) -> bool:
        if symbol.full_name not in self._extension_ranges:
            assert isinstance(symbol.node, Message)
            ranges = (range_ for statement in symbol.node.extension_ranges for range_ in statement.ranges)
            ordered = sorted(ranges, key=lambda range_: range_.start)
            self._extension_ranges[symbol.full_name] = (
                [range_.start for range_ in ordered],
                list(accumulate((range_.last for range_ in ordered), max)),
            )
        starts, ends = self._extension_ranges[symbol.full_name]
        position = bisect_right(starts, number) - 1
        return position >= 0 and number <= ends[position]

    # Enums and services

    def _enum(self, enum: Enum, scope: str, features: Features) -> None:
        full_name = joined(scope, enum.name)
        features = with_options(features, enum.options)
        self._options(enum.options, "EnumOptions", full_name)
        if not enum.values:
            self._fail(enum.offset, f"enum {full_name} has no values")
        if features["enum_type"] == "OPEN" and enum.values[0].number != 0:
            self._fail(
                enum.values[0].offset, f"the first value of enum {full_name} must be 0, because the enum is open"
            )
        allow_alias = _flag(enum.options, "allow_alias")
        by_number: dict[int, str] = {}
        has_alias = False
        ranges = [(r, s.offset, "reserved range") for s in enum.reserved for r in s.ranges]
        self._apart(ranges, full_name)
        self._reserved_names(enum.reserved, full_name)
        names = {name for statement in enum.reserved for name in statement.names}
        for value in enum.values:
            self._options(value.options, "EnumValueOptions", full_name)
            if not -ENUM_NUMBER_MAX - 1 <= value.number <= ENUM_NUMBER_MAX:
                self._fail(value.offset, f"number {value.number} of enum value {value.name} is out of range")
            other = by_number.setdefault(value.number, value.name)
            if other != value.name:
                has_alias = True
                if not allow_alias:
                    self._fail(
                        value.offset,
                        f"enum value {value.name} has the number of {other}; if that is meant, set allow_alias = true",
                    )
            if value.name in names:
                self._fail(value.offset, f"the name of enum value {value.name} is reserved")
        if allow_alias is False and not has_alias:
            self._fail(enum.offset, f"enum {full_name}: remove allow_alias = false, it has no effect")
        if allow_alias and not has_alias:
            self._fail(enum.offset, f"enum {full_name} sets allow_alias, but no two values have the same number")
        self._reserved_enum_numbers(enum, [range_ for range_, _, _ in ranges])
        self._enum_json_names(enum, full_name)

    def _reserved_enum_numbers(self, enum: Enum, ranges: list[Range]) -> None:
        ordered = sorted(ranges, key=lambda range_: range_.start)
        position = 0
        for value in sorted(enum.values, key=lambda value: value.number):
            while position < len(ordered) and ordered[position].last < value.number:
                position += 1
            if position < len(ordered) and ordered[position].start <= value.number:
                self._fail(value.offset, f"number {value.number} of enum value {value.name} is reserved")

    def _enum_json_names(self, enum: Enum, full_name: str) -> None:
        """In JSON libraries, values may lose the prefix of the enum's name: they must still be apart then."""
        if _flag(enum.options, "deprecated_legacy_json_field_conflicts"):
            return
        seen: dict[str, tuple[str, int]] = {}
        for value in enum.values:
            short = _pascal_case(_without_prefix(enum.name, value.name))
            other, number = seen.setdefault(short, (value.name, value.number))
            if other != value.name and number != value.number:
                self._fail(
                    value.offset,
                    f"enum values {other} and {value.name} of {full_name} are the same without prefix and case",
                )

    def _service(self, service: Service) -> None:
        full_name = joined(self._file.package, service.name)
        self._options(service.options, "ServiceOptions", full_name)
        for method in service.methods:
            self._options(method.options, "MethodOptions", full_name)
        self._method_types(service)

    def _method_types(self, service: Service) -> None:
        full_name = joined(self._file.package, service.name)
        for method in service.methods:
            for type_ in (method.request, method.response):
                symbol = self._view.type(type_, full_name)
                if symbol is None:
                    self._fail_unknown(method.offset, f"type {type_} of method {method.name}", type_, full_name)
                if not isinstance(symbol.node, Message):
                    self._fail(method.offset, f"type {type_} of method {method.name} is not a message")


def _shown(range_: Range) -> str:
    return str(range_.start) if range_.single else f"{range_.start} to {range_.last}"


def _word(options: Iterable[Option], name: str) -> str | None:
    for option in options:
        if option.name == name and isinstance(option.value, Scalar):
            return option.value.text
    return None


def _flag(options: Iterable[Option], name: str) -> bool | None:
    word = _word(options, name)
    return None if word is None else word == "true"


def _json_name(field: Field) -> str | None:
    return _word(field.options, "json_name")


def json_name_of(name: str) -> str:
    """The name of a field in JSON, if none is set: in camel case, as protoc makes it."""
    parts = []
    upper = False
    for character in name:
        if character == "_":
            upper = True
        else:
            parts.append(character.upper() if upper and character.isascii() else character)
            upper = False
    return "".join(parts)


def _without_prefix(enum: str, value: str) -> str:
    """A value's name without the enum's name before it, which may have other cases and underscores."""
    prefix = enum.replace("_", "").lower()
    position = 0
    for index, character in enumerate(value):
        if character == "_":
            continue
        if position == len(prefix):
            return value[index:]
        if character.lower() != prefix[position]:
            return value
        position += 1
    return value


def _pascal_case(name: str) -> str:
    return "".join(part[:1].upper() + part[1:].lower() for part in name.split("_"))
