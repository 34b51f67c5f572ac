"""The tree of a `.proto` text: recursive descent over its tokens, one method for each statement.

Checks only what the grammar says, which differs a little between proto2, proto3 and editions. `validation.py` checks
names, numbers and options.
"""

from collections.abc import Callable
from typing import Final, NoReturn

from ottla.registry.schemas.parsed_schema import InvalidSchemaError
from ottla.registry.schemas.protobuf import tokens
from ottla.registry.schemas.protobuf.syntax_tree import (
    ENUM_NUMBER_MAX,
    FIELD_NUMBER_MAX,
    IDENTIFIER,
    NAME_LENGTH_MAX,
    NUMBER,
    SCALAR_TYPES,
    STRING,
    Enum,
    EnumValue,
    Extend,
    ExtensionRanges,
    Field,
    File,
    Import,
    ListLiteral,
    Message,
    MessageLiteral,
    Method,
    OneOf,
    Option,
    OptionName,
    Range,
    Reserved,
    Scalar,
    Service,
    Value,
)
from ottla.registry.schemas.time_limit import check_time

EDITIONS: Final = ("2023", "2024")
_NESTING_MAX: Final = 31
"""The depth of messages in messages, as in protoc."""
_LITERAL_NESTING_MAX: Final = 64
_LABELS: Final = frozenset(("optional", "required", "repeated"))
_MESSAGE_STATEMENTS: Final = frozenset(("message", "enum", "extend", "extensions", "reserved", "option", "oneof"))
_INTEGER_DIGITS_MAX: Final = 64


def parse_file(text: str) -> File:
    """The tree of a `.proto` text. Raises `InvalidSchemaError` with line and column."""
    return _Parser(text).file()


class _Scope:
    """What is collected while the body of a message is read."""

    __slots__ = ("extends", "extension_ranges", "fields", "oneofs", "options", "reserved", "types")

    def __init__(self) -> None:
        self.fields: list[Field] = []
        self.oneofs: list[OneOf] = []
        self.types: list[Message | Enum] = []
        self.extends: list[Extend] = []
        self.extension_ranges: list[ExtensionRanges] = []
        self.reserved: list[Reserved] = []
        self.options: list[Option] = []


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._kinds, self._texts, self._offsets = tokens.tokens_of(text)
        self._at = 0
        self._syntax = "proto2"

    # Tokens

    def _fail(self, message: str, offset: int | None = None) -> NoReturn:
        place = tokens.place_of(self._text, self._offsets[self._at] if offset is None else offset)
        raise InvalidSchemaError(f"{place}: {message}")

    def _fail_expecting(self, expected: str) -> NoReturn:
        if self._kinds[self._at] == tokens.END:
            self._fail(f"expected {expected} but the text ends")
        self._fail(f"expected {expected} but found {self._texts[self._at]!r}")

    def _offset(self) -> int:
        return self._offsets[self._at]

    def _take(self, text: str) -> bool:
        if self._texts[self._at] == text and self._kinds[self._at] in (tokens.SYMBOL, tokens.IDENTIFIER):
            self._at += 1
            return True
        return False

    def _peek(self, text: str, ahead: int = 0) -> bool:
        at = min(self._at + ahead, len(self._texts) - 1)
        return self._texts[at] == text and self._kinds[at] in (tokens.SYMBOL, tokens.IDENTIFIER)

    def _expect(self, text: str) -> None:
        if not self._take(text):
            self._fail_expecting(f"'{text}'")

    def _identifier(self, what: str) -> str:
        if self._kinds[self._at] != tokens.IDENTIFIER:
            self._fail_expecting(what)
        self._at += 1
        return self._texts[self._at - 1]

    def _full_identifier(self, what: str) -> str:
        """A name with dots, without a leading one."""
        name = self._identifier(what)
        while self._take("."):
            name += "." + self._identifier(what)
            if len(name) > NAME_LENGTH_MAX:
                self._fail(f"a name is longer than {NAME_LENGTH_MAX} characters")
        return name

    def _type_name(self) -> str:
        if self._take("."):
            return "." + self._full_identifier("a type name")
        return self._full_identifier("a type name")

    def _string(self, what: str) -> str:
        if self._kinds[self._at] != tokens.STRING:
            self._fail_expecting(what)
        parts = []
        while self._kinds[self._at] == tokens.STRING:
            parts.append(tokens.unquoted(self._text, self._texts[self._at], self._offsets[self._at]))
            self._at += 1
        if len(parts) == 1:
            return parts[0]
        # Two parts can be one character of UTF-8 together.
        return b"".join(part.encode("utf-8", "surrogateescape") for part in parts).decode("utf-8", "surrogateescape")

    def _integer(self, what: str, maximum: int) -> int:
        if self._kinds[self._at] != tokens.INTEGER:
            self._fail_expecting(what)
        text = self._texts[self._at]
        number = integer_of(text) if len(text) <= _INTEGER_DIGITS_MAX else maximum + 1
        if number > maximum:
            self._fail(f"{what} is out of range")
        self._at += 1
        return number

    def _signed_integer(self, what: str) -> int:
        if self._take("-"):
            return -self._integer(what, ENUM_NUMBER_MAX + 1)
        return self._integer(what, ENUM_NUMBER_MAX)

    # The file

    def file(self) -> File:
        syntax_is_written = self._syntax_statement()
        package: str | None = None
        imports: list[Import] = []
        types: list[Message | Enum] = []
        extends: list[Extend] = []
        services: list[Service] = []
        options: list[Option] = []
        while self._kinds[self._at] != tokens.END:
            offset = self._offset()
            if self._take(";"):
                continue
            visibility = self._visibility()
            match self._identifier("a statement"):
                case "message":
                    types.append(self._message(offset, 1, visibility))
                case "enum":
                    types.append(self._enum(offset, visibility))
                case "service" if visibility is None:
                    services.append(self._service(offset))
                case "extend" if visibility is None:
                    extends.append(self._extend(offset, 1))
                case "import" if visibility is None:
                    imports.append(self._import(offset))
                case "option" if visibility is None:
                    options.append(self._option_statement(offset))
                case "package" if visibility is None:
                    if package is not None:
                        self._fail("the file has more than one package", offset)
                    package = self._full_identifier("a package name")
                    self._expect(";")
                case other:
                    self._fail(f"unexpected statement {other!r}", offset)
        return File(
            syntax=self._syntax,
            syntax_is_written=syntax_is_written,
            package=package or "",
            imports=tuple(imports),
            types=tuple(types),
            extends=tuple(extends),
            services=tuple(services),
            options=tuple(options),
        )

    def _syntax_statement(self) -> bool:
        offset = self._offset()
        if self._peek("syntax") and self._peek("=", 1):
            self._at += 2
            syntax = self._string("proto2 or proto3 in quotes")
            if syntax not in ("proto2", "proto3"):
                self._fail(f"unknown syntax {syntax!r}: this parser knows proto2 and proto3", offset)
        elif self._peek("edition") and self._peek("=", 1):
            self._at += 2
            syntax = self._string("an edition in quotes")
            if syntax not in EDITIONS:
                self._fail(f"unknown edition {syntax!r}: this parser knows {' and '.join(EDITIONS)}", offset)
        else:
            return False
        self._expect(";")
        self._syntax = syntax
        return True

    @property
    def _is_edition(self) -> bool:
        return self._syntax in EDITIONS

    def _visibility(self) -> str | None:
        """`export` or `local` before a message or enum, from edition 2024 on."""
        if self._syntax == "2024" and (self._peek("export") or self._peek("local")):
            follows = self._texts[min(self._at + 1, len(self._texts) - 1)]
            if follows in ("message", "enum"):
                self._at += 1
                return self._texts[self._at - 1]
        return None

    def _import(self, offset: int) -> Import:
        kind = ""
        for word in ("public", "weak", "option"):
            if self._take(word):
                kind = word
                break
        if kind == "option" and self._syntax != "2024":
            self._fail("'import option' needs edition 2024", offset)
        path = self._string("the path of a file in quotes")
        self._expect(";")
        return Import(path, kind, offset)

    # Messages

    def _message(self, offset: int, depth: int, visibility: str | None = None) -> Message:
        name = self._identifier("a message name")
        scope = _Scope()
        self._message_body(scope, depth)
        return _message_of(name, scope, offset, visibility)

    def _message_body(self, scope: _Scope, depth: int) -> None:
        if depth > _NESTING_MAX:
            self._fail(f"messages are nested more than {_NESTING_MAX} deep")
        self._expect("{")
        while not self._take("}"):
            offset = self._offset()
            if self._take(";"):
                continue
            self._message_statement(scope, offset, depth)

    def _message_statement(self, scope: _Scope, offset: int, depth: int) -> None:
        """One statement of a message's body. The first word decides: a type named as a keyword needs a leading dot."""
        visibility = self._visibility()
        word = self._texts[self._at] if self._kinds[self._at] == tokens.IDENTIFIER else ""
        if visibility is not None or word in _MESSAGE_STATEMENTS:
            self._at += 1
            match word:
                case "message":
                    scope.types.append(self._message(offset, depth + 1, visibility))
                case "enum":
                    scope.types.append(self._enum(offset, visibility))
                case "extend":
                    scope.extends.append(self._extend(offset, depth))
                case "extensions":
                    scope.extension_ranges.append(self._extension_ranges(offset))
                case "reserved":
                    scope.reserved.append(self._reserved(offset, self._field_range))
                case "option":
                    scope.options.append(self._option_statement(offset))
                case "oneof":
                    self._oneof(scope, offset, depth)
                case _:
                    self._fail(f"unexpected statement {word!r}", offset)
        else:
            scope.fields.append(self._field(offset, depth))

    def _field(self, offset: int, depth: int, *, in_extend: bool = False) -> Field:
        check_time()
        label = None
        if self._kinds[self._at] == tokens.IDENTIFIER and self._texts[self._at] in _LABELS:
            label = self._texts[self._at]
            if label == "required" and self._syntax == "proto3":
                self._fail("required fields are not allowed in proto3", offset)
            if label != "repeated" and self._is_edition:
                self._fail(f"the label '{label}' is not allowed in editions; use features.field_presence", offset)
            self._at += 1
        if self._peek("map") and self._peek("<", 1):
            return self._map_field(offset, label, in_extend)
        if label is None and self._syntax == "proto2":
            self._fail_expecting("'required', 'optional' or 'repeated'")
        return self._rest_of_field(offset, label, None, depth)

    def _map_field(self, offset: int, label: str | None, in_extend: bool) -> Field:
        if label is not None:
            self._fail(f"a map field cannot be {label}", offset)
        if in_extend:
            self._fail("an extension cannot be a map", offset)
        self._at += 2
        key_type = self._type_name()
        self._expect(",")
        value_type = self._type_name()
        self._expect(">")
        name, number, options = self._name_number_options()
        self._expect(";")
        return Field(name, number, value_type, key_type=key_type, options=options, offset=offset)

    def _rest_of_field(self, offset: int, label: str | None, oneof: int | None, depth: int) -> Field:
        if self._peek("group") and not self._peek(".", 1):
            return self._group(offset, label, oneof, depth)
        type_ = self._type_name()
        name, number, options = self._name_number_options()
        self._expect(";")
        return Field(name, number, type_, label, oneof=oneof, options=options, offset=offset)

    def _name_number_options(self) -> tuple[str, int, tuple[Option, ...]]:
        name = self._identifier("a field name")
        self._expect("=")
        # Larger numbers are refused with the name of the field by validation.
        number = self._integer("a field number", ENUM_NUMBER_MAX)
        return name, number, self._bracketed_options()

    def _group(self, offset: int, label: str | None, oneof: int | None, depth: int) -> Field:
        self._at += 1
        if self._syntax == "proto3":
            self._fail("groups are not allowed in proto3", offset)
        if self._is_edition:
            self._fail("groups are not allowed in editions; use features.message_encoding = DELIMITED", offset)
        name, number, options = self._name_number_options()
        if not "A" <= name[0] <= "Z":
            self._fail(f"the name of group {name} must start with a capital letter", offset)
        scope = _Scope()
        self._message_body(scope, depth + 1)
        group = _message_of(name, scope, offset, None)
        return Field(name.lower(), number, name, label, group=group, oneof=oneof, options=options, offset=offset)

    def _oneof(self, scope: _Scope, offset: int, depth: int) -> None:
        name = self._identifier("a oneof name")
        index = len(scope.oneofs)
        options: list[Option] = []
        count_before = len(scope.fields)
        self._expect("{")
        while not self._take("}"):
            member_offset = self._offset()
            if self._take("option"):
                options.append(self._option_statement(member_offset))
                continue
            word = self._texts[self._at]
            if word in _LABELS:
                self._fail(f"fields of a oneof must not have a label, but one is {word}", member_offset)
            if self._peek("map") and self._peek("<", 1):
                self._fail("a map field is not allowed in a oneof", member_offset)
            scope.fields.append(self._rest_of_field(member_offset, None, index, depth))
        if len(scope.fields) == count_before:
            self._fail(f"oneof {name} has no fields", offset)
        scope.oneofs.append(OneOf(name, tuple(options), offset))

    def _extend(self, offset: int, depth: int) -> Extend:
        extendee = self._type_name()
        fields: list[Field] = []
        self._expect("{")
        while not self._take("}"):
            fields.append(self._field(self._offset(), depth, in_extend=True))
        if not fields:
            self._fail(f"extend {extendee} has no fields", offset)
        return Extend(extendee, tuple(fields), offset)

    def _extension_ranges(self, offset: int) -> ExtensionRanges:
        ranges = [self._field_range()]
        while self._take(","):
            ranges.append(self._field_range())
        options = self._bracketed_options()
        self._expect(";")
        return ExtensionRanges(tuple(ranges), options, offset)

    def _field_range(self) -> Range:
        return self._range(lambda: self._integer("a field number", ENUM_NUMBER_MAX), FIELD_NUMBER_MAX)

    def _enum_range(self) -> Range:
        return self._range(lambda: self._signed_integer("an enum number"), ENUM_NUMBER_MAX)

    def _range(self, number: Callable[[], int], maximum: int) -> Range:
        start = number()
        if not self._take("to"):
            return Range(start, start, single=True)
        return Range(start, maximum if self._take("max") else number())

    def _reserved(self, offset: int, one_range: Callable[[], Range]) -> Reserved:
        ranges: list[Range] = []
        names: list[str] = []
        if self._kinds[self._at] == tokens.STRING:
            if self._is_edition:
                self._fail("reserved names must be identifiers, not strings, in editions")
            names.append(self._reserved_name())
            while self._take(","):
                names.append(self._reserved_name())
        elif self._kinds[self._at] == tokens.IDENTIFIER:
            if not self._is_edition:
                self._fail("reserved names must be strings: put them in quotes")
            names.append(self._identifier("a field name"))
            while self._take(","):
                names.append(self._identifier("a field name"))
        else:
            ranges.append(one_range())
            while self._take(","):
                ranges.append(one_range())
        self._expect(";")
        return Reserved(tuple(ranges), tuple(names), offset)

    def _reserved_name(self) -> str:
        return self._string("a name in quotes")

    # Enums and services

    def _enum(self, offset: int, visibility: str | None = None) -> Enum:
        name = self._identifier("an enum name")
        values: list[EnumValue] = []
        reserved: list[Reserved] = []
        options: list[Option] = []
        self._expect("{")
        while not self._take("}"):
            value_offset = self._offset()
            if self._take(";"):
                continue
            word = self._identifier("an enum value")
            if word == "option":
                options.append(self._option_statement(value_offset))
            elif word == "reserved":
                reserved.append(self._reserved(value_offset, self._enum_range))
            else:
                self._expect("=")
                number = self._signed_integer("an enum number")
                values.append(EnumValue(word, number, self._bracketed_options(), value_offset))
                self._expect(";")
        return Enum(name, tuple(values), tuple(reserved), tuple(options), visibility, offset)

    def _service(self, offset: int) -> Service:
        name = self._identifier("a service name")
        methods: list[Method] = []
        options: list[Option] = []
        self._expect("{")
        while not self._take("}"):
            statement_offset = self._offset()
            if self._take(";"):
                continue
            if self._take("option"):
                options.append(self._option_statement(statement_offset))
            else:
                self._expect("rpc")
                methods.append(self._method(statement_offset))
        return Service(name, tuple(methods), tuple(options), offset)

    def _method(self, offset: int) -> Method:
        name = self._identifier("a method name")
        request, request_streaming = self._method_type()
        self._expect("returns")
        response, response_streaming = self._method_type()
        options: list[Option] = []
        if self._take("{"):
            while not self._take("}"):
                option_offset = self._offset()
                if not self._take(";"):
                    self._expect("option")
                    options.append(self._option_statement(option_offset))
        else:
            self._expect(";")
        return Method(name, request, response, request_streaming, response_streaming, tuple(options), offset)

    def _method_type(self) -> tuple[str, bool]:
        self._expect("(")
        streaming = self._take("stream")
        type_ = self._type_name()
        if type_ in SCALAR_TYPES:
            self._fail(f"expected a message type but found {type_!r}")
        self._expect(")")
        return type_, streaming

    # Options

    def _option_statement(self, offset: int) -> Option:
        option = self._option(offset)
        self._expect(";")
        return option

    def _bracketed_options(self) -> tuple[Option, ...]:
        if not self._take("["):
            return ()
        options = [self._option(self._offset())]
        while self._take(","):
            options.append(self._option(self._offset()))
        self._expect("]")
        return tuple(options)

    def _option(self, offset: int) -> Option:
        path = [self._option_name()]
        while self._take("."):
            path.append(self._option_name())
        self._expect("=")
        if self._peek("{"):
            value: Value = self._message_literal(1)
        elif self._peek("["):
            self._fail("the value of an option cannot be a list; repeat the option, or use a message literal")
        else:
            value = self._scalar()
        return Option(tuple(path), value, offset)

    def _option_name(self) -> OptionName:
        if self._take("("):
            name = self._type_name()
            self._expect(")")
            return OptionName(name, is_extension=True)
        return OptionName(self._identifier("an option name"))

    def _scalar(self, *, in_literal: bool = False) -> Scalar:
        """A string, number or identifier. Text format knows `inf` and `nan` in any case."""
        if self._kinds[self._at] == tokens.STRING:
            return Scalar(STRING, self._string("a value"))
        sign = "-" if self._take("-") else ""
        kind, text = self._kinds[self._at], self._texts[self._at]
        if kind in (tokens.INTEGER, tokens.FLOAT):
            self._at += 1
            return Scalar(NUMBER, sign + text)
        if kind == tokens.IDENTIFIER:
            name = text.lower() if in_literal else text
            if sign and name not in ("inf", "nan", "infinity"):
                self._fail_expecting("a number")
            self._at += 1
            return Scalar(NUMBER if sign else IDENTIFIER, sign + text)
        self._fail_expecting("a value")

    def _message_literal(self, depth: int) -> MessageLiteral:
        """A message in text format, whose fields `,` or `;` may follow."""
        if depth > _LITERAL_NESTING_MAX:
            self._fail(f"message literals are nested more than {_LITERAL_NESTING_MAX} deep")
        closing = "}" if self._peek("{") else ">"
        self._at += 1
        entries: list[tuple[str, Value]] = []
        while not self._take(closing):
            if self._take("["):
                key = self._full_identifier("an extension name")
                if self._take("/"):
                    key += "/" + self._full_identifier("a type name")
                self._expect("]")
                key = f"[{key}]"
            else:
                key = self._identifier("a field name")
            if self._peek("{") or self._peek("<"):
                entries.append((key, self._message_literal(depth + 1)))
            else:
                colon = self._take(":")
                if not colon and not self._peek("["):
                    self._fail_expecting("':'")
                entries.append((key, self._literal_value(depth, only_messages=not colon)))
            if not self._take(","):
                self._take(";")
        return MessageLiteral(tuple(entries))

    def _literal_value(self, depth: int, *, only_messages: bool = False) -> Value:
        if self._peek("{") or self._peek("<"):
            return self._message_literal(depth + 1)
        if self._take("["):
            values: list[Value] = []
            if not self._take("]"):
                values.append(self._list_item(depth, only_messages))
                while self._take(","):
                    values.append(self._list_item(depth, only_messages))
                self._expect("]")
            return ListLiteral(tuple(values))
        return self._scalar(in_literal=True)

    def _list_item(self, depth: int, only_messages: bool) -> Value:
        if self._peek("{") or self._peek("<"):
            return self._message_literal(depth + 1)
        if only_messages:
            self._fail_expecting("'{'")
        return self._scalar(in_literal=True)


def _message_of(name: str, scope: _Scope, offset: int, visibility: str | None) -> Message:
    return Message(
        name=name,
        fields=tuple(scope.fields),
        oneofs=tuple(scope.oneofs),
        types=tuple(scope.types),
        extends=tuple(scope.extends),
        extension_ranges=tuple(scope.extension_ranges),
        reserved=tuple(scope.reserved),
        options=tuple(scope.options),
        visibility=visibility,
        offset=offset,
    )


def integer_of(text: str) -> int:
    """The value of an integer literal: decimal, hexadecimal, or octal after a leading 0."""
    if text[:2] in ("0x", "0X"):
        return int(text[2:], 16)
    if len(text) > 1 and text[0] == "0":
        return int(text, 8)
    return int(text)
