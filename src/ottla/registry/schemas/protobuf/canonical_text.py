"""The texts of a schema: canonical, normalized, and without extensions.

The layout is that of Confluent's registry, line by line, because schemas are found by the text. Where its text would be
another schema than the one registered, ours differs: weak imports and editions are written, defaults of bytes are
quoted, bytes that are not UTF-8 are escaped, and normalized numbers keep all their digits.
"""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final

from ottla.registry.schemas.protobuf.parsing import integer_of
from ottla.registry.schemas.protobuf.symbols import MAIN, Symbol, SymbolTable, joined
from ottla.registry.schemas.protobuf.syntax_tree import (
    ENUM_NUMBER_MAX,
    FIELD_NUMBER_MAX,
    NUMBER,
    SCALAR_TYPES,
    STRING,
    Enum,
    EnumValue,
    Extend,
    ExtensionRanges,
    Field,
    File,
    ListLiteral,
    Message,
    MessageLiteral,
    Method,
    OneOf,
    Option,
    OptionName,
    Range,
    Reserved,
    Service,
    Value,
)

_ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    "'": "\\'",
    '"': '\\"',
}
_SPECIAL: Final = re.compile("[\a\b\f\n\r\t\v\\\\'\"\udc80-\udcff]")
_INTEGER: Final = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|[0-9]+)\Z")
_FLOAT_EXPONENT_MAX: Final = 400
"""Numbers beyond any double keep their spelling: written out they could be as long as anyone likes."""

_Lines = list[str]


def canonical_text(file: File) -> str:
    """The text that the registry stores."""
    return _Printer(file, None, normalize=False, ignore_extensions=False).text()


def text_without_extensions(file: File) -> str:
    """The canonical text without extension ranges, `extend`, and the options that are extensions."""
    return _Printer(file, None, normalize=False, ignore_extensions=True).text()


def normalized_text(table: SymbolTable) -> str:
    """The text with names resolved, and sorted where the order does not matter. The order of types does matter."""
    return _Printer(table.files[MAIN], table, normalize=True, ignore_extensions=False).text()


def _indented(lines: Iterable[str]) -> _Lines:
    return ["  " + line for line in lines]


def _block(head: str, sections: Iterable[_Lines]) -> _Lines:
    """A body in braces: its sections are separated by an empty line."""
    lines = [head + " {"]
    for section in sections:
        if section:
            if len(lines) > 1:
                lines.append("")
            lines += _indented(section)
    if len(lines) == 1:
        return [head + " {}"]
    lines.append("}")
    return lines


class _Printer:
    def __init__(self, file: File, table: SymbolTable | None, *, normalize: bool, ignore_extensions: bool) -> None:
        self._file = file
        self._table = table
        self._normalize = normalize
        self._ignore_extensions = ignore_extensions

    def text(self) -> str:
        file = self._file
        lines: _Lines = []
        if file.is_edition:
            lines.append(f'edition = "{file.syntax}";')
        elif file.syntax_is_written and not (self._normalize and file.syntax == "proto2"):
            lines.append(f'syntax = "{file.syntax}";')
        if file.package:
            lines.append(f"package {file.package};")
        for section in (
            self._imports(),
            self._option_statements(file.options, file.package),
            self._types(file.types, file.package),
            self._extends(file.extends, file.package),
            [line for service in file.services for line in self._service(service)],
        ):
            if section:
                lines.append("")
                lines += section
        return "".join(line + "\n" for line in lines)

    def _imports(self) -> _Lines:
        lines: _Lines = []
        for kind in ("", "public", "weak", "option"):
            paths: Iterable[str] = [import_.path for import_ in self._file.imports if import_.kind == kind]
            if self._normalize:
                paths = sorted(set(paths))
            lines += [f'import {kind} "{path}";' if kind else f'import "{path}";' for path in paths]
        return lines

    # Types

    def _types(self, types: Sequence[Message | Enum], scope: str) -> _Lines:
        """Messages first, then enums; map entries that are written out become maps again when normalized."""
        lines: _Lines = []
        for type_ in types:
            if isinstance(type_, Message) and not (self._normalize and type_.is_map_entry):
                lines += self._message(type_, scope)
        for type_ in types:
            if isinstance(type_, Enum):
                lines += self._enum(type_, scope)
        return lines

    def _message(self, message: Message, scope: str) -> _Lines:
        scope = joined(scope, message.name)
        head = f"{message.visibility} message" if message.visibility else "message"
        return _block(f"{head} {message.name}", self._message_sections(message, scope))

    def _message_sections(self, message: Message, scope: str) -> list[_Lines]:
        plain = [field for field in message.fields if field.oneof is None]
        sections = [
            self._reserved(message.reserved, FIELD_NUMBER_MAX),
            self._option_statements(message.options, scope),
            self._fields([field for field in plain if field.group is None], scope),
            self._oneofs(message, scope),
            self._fields([field for field in plain if field.group is not None], scope),
        ]
        if not self._ignore_extensions:
            sections.append(self._extension_ranges(message.extension_ranges, scope))
            sections.append(self._extends(message.extends, scope))
        sections.append(self._types(message.types, scope))
        return sections

    def _fields(self, fields: Iterable[Field], scope: str) -> _Lines:
        if self._normalize:
            fields = sorted(fields, key=lambda field: field.number)
        return [line for field in fields for line in self._field(field, scope)]

    def _oneofs(self, message: Message, scope: str) -> _Lines:
        if not message.oneofs:
            return []
        members: list[list[Field]] = [[] for _ in message.oneofs]
        for field in message.fields:
            if field.oneof is not None:
                members[field.oneof].append(field)
        pairs: Iterable[tuple[OneOf, list[Field]]] = zip(message.oneofs, members, strict=True)
        if self._normalize:
            pairs = sorted(pairs, key=lambda pair: min(field.number for field in pair[1]))
        lines: _Lines = []
        for oneof, fields in pairs:
            sections = (
                self._option_statements(oneof.options, scope),
                self._fields([field for field in fields if field.group is None], scope),
                self._fields([field for field in fields if field.group is not None], scope),
            )
            lines += _block(f"oneof {oneof.name}", sections)
        return lines

    def _field(self, field: Field, scope: str) -> _Lines:
        label = f"{field.label} " if field.label else ""
        if field.group is not None:
            head = f"{label}group {field.group.name} = {field.number}"
            options = self._bracketed(self._field_options(field, scope))
            return _block(head + options, self._message_sections(field.group, joined(scope, field.group.name)))
        type_ = field.type_text
        if self._normalize:
            type_, is_map = self._full_type(field, scope)
            if is_map:
                label = ""
        options = self._bracketed(self._field_options(field, scope))
        return f"{label}{type_} {field.name} = {field.number}{options};".split("\n")

    def _full_type(self, field: Field, scope: str) -> tuple[str, bool]:
        """The type with full names, and whether it is a map."""
        if field.key_type is not None:
            return f"map<{field.key_type}, {self._full_name(field.type, scope)}>", True
        if field.type in SCALAR_TYPES:
            return field.type, False
        assert self._table is not None
        symbol = self._table.view(MAIN).type(field.type, scope)
        assert symbol is not None
        if isinstance(symbol.node, Message) and symbol.node.is_map_entry:
            entry = {member.name: member for member in symbol.node.fields}
            return f"map<{entry['key'].type}, {self._full_name(entry['value'].type, symbol.full_name)}>", True
        return "." + symbol.full_name, False

    def _full_name(self, type_: str, scope: str) -> str:
        if not self._normalize or type_ in SCALAR_TYPES:
            return type_
        assert self._table is not None
        symbol = self._table.view(MAIN).type(type_, scope)
        assert symbol is not None
        return "." + symbol.full_name

    def _field_options(self, field: Field, scope: str) -> list[str]:
        """`default` and `json_name`, which descriptor.proto does not declare, come last."""
        options = [option for option in field.options if option.name not in ("default", "json_name")]
        for name in ("default", "json_name"):
            options += [option for option in field.options if option.name == name]
        return self._options(options, scope)

    def _reserved(self, statements: Sequence[Reserved], maximum: int) -> _Lines:
        if not self._normalize:
            return [
                "reserved "
                + ", ".join([self._range(r, maximum) for r in statement.ranges] + [f'"{n}"' for n in statement.names])
                + ";"
                if not self._file.is_edition or statement.ranges
                else f"reserved {', '.join(statement.names)};"
                for statement in statements
            ]
        ranges = [range_ for statement in statements for range_ in statement.ranges]
        ranges.sort(key=lambda r: (r.start, str(r.start) if r.single else f"{r.start}..{r.last}"))
        names = sorted(name for statement in statements for name in statement.names)
        return [f"reserved {self._range(r, maximum)};" for r in ranges] + [
            f"reserved {name};" if self._file.is_edition else f'reserved "{name}";' for name in names
        ]

    def _range(self, range_: Range, maximum: int) -> str:
        if range_.single or (self._normalize and range_.start == range_.last):
            return str(range_.start)
        return f"{range_.start} to {range_.last if range_.last < maximum else 'max'}"

    def _extension_ranges(self, statements: Iterable[ExtensionRanges], scope: str) -> _Lines:
        if self._normalize:
            single = [ExtensionRanges((r,), statement.options) for statement in statements for r in statement.ranges]
            statements = sorted(single, key=lambda statement: statement.ranges[0].start)
        lines: _Lines = []
        for statement in statements:
            ranges = ", ".join(self._range(range_, FIELD_NUMBER_MAX) for range_ in statement.ranges)
            options = self._bracketed(self._options(statement.options, scope))
            lines += f"extensions {ranges}{options};".split("\n")
        return lines

    def _extends(self, extends: Sequence[Extend], scope: str) -> _Lines:
        if self._ignore_extensions:
            return []
        if self._normalize:
            by_extendee: dict[str, list[Field]] = {}
            for extend in extends:
                by_extendee.setdefault(self._full_name(extend.extendee, scope), []).extend(extend.fields)
            extends = [Extend(extendee, tuple(fields)) for extendee, fields in by_extendee.items()]
        lines: _Lines = []
        for extend in extends:
            lines += _block(f"extend {extend.extendee}", [self._fields(extend.fields, scope)])
        return lines

    def _enum(self, enum: Enum, scope: str) -> _Lines:
        inner = joined(scope, enum.name)
        values: Iterable[EnumValue] = enum.values
        if self._normalize:
            values = sorted(values, key=lambda value: (value.number, value.name))
        body = self._reserved(enum.reserved, ENUM_NUMBER_MAX) + self._option_statements(enum.options, inner)
        for value in values:
            options = self._bracketed(self._options(value.options, inner))
            body += f"{value.name} = {value.number}{options};".split("\n")
        head = f"{enum.visibility} enum" if enum.visibility else "enum"
        return _block(f"{head} {enum.name}", [body])

    def _service(self, service: Service) -> _Lines:
        scope = joined(self._file.package, service.name)
        methods = [line for method in service.methods for line in self._method(method, scope)]
        return _block(f"service {service.name}", [self._option_statements(service.options, scope), methods])

    def _method(self, method: Method, scope: str) -> _Lines:
        request = "stream " * method.request_streaming + self._full_name(method.request, scope)
        response = "stream " * method.response_streaming + self._full_name(method.response, scope)
        head = f"rpc {method.name} ({request}) returns ({response})"
        options = self._option_statements(method.options, scope)
        if not options:
            return [head + ";"]
        return [head + " {", *_indented(options), "};"]

    # Options

    def _option_statements(self, options: Sequence[Option], scope: str) -> _Lines:
        return [line for text in self._options(options, scope) for line in f"option {text};".split("\n")]

    def _bracketed(self, texts: list[str]) -> str:
        if not texts:
            return ""
        if len(texts) == 1:
            return f" [{texts[0]}]"
        return " [\n" + _comma_lines(texts) + "]"

    def _options(self, options: Iterable[Option], scope: str) -> list[str]:
        """Each option as `name = value`, a text of one or more lines."""
        if self._ignore_extensions:
            options = [o for o in options if not o.path[0].is_extension or o.path[0].name.startswith("confluent.")]
        if self._normalize:
            options = self._normalized_options(options, scope)
        return [f"{option.name} = {self._value(option.value, scope)}" for option in options]

    def _normalized_options(self, options: Iterable[Option], scope: str) -> list[Option]:
        """Options sorted by name; those that set parts of one extension become one message literal."""
        assert self._table is not None
        view = self._table.view(MAIN)
        by_name: dict[str, list[tuple[Option, Symbol | None]]] = {}
        for option in options:
            first = option.path[0]
            extension = view.extension(first.name, scope) if first.is_extension else None
            if extension is not None:
                value = option.value
                for part in reversed(option.path[1:]):
                    value = MessageLiteral(((f"[{part.name}]" if part.is_extension else part.name, value),))
                option = Option((OptionName(extension.full_name, is_extension=True),), value, option.offset)
            # Names are compared without parentheses, as in the registry that set the order.
            key = option.name.replace("(", "", 1).replace(")", "", 1) if first.is_extension else option.name
            by_name.setdefault(key, []).append((option, extension))
        result: list[Option] = []
        for name in sorted(by_name):
            group = by_name[name]
            extension = group[0][1]
            if extension is None or not isinstance(extension.node, Field) or extension.node.label == "repeated":
                result += [option for option, _ in group]
                continue
            merged = group[0][0].value
            for option, _ in group[1:]:
                if isinstance(merged, MessageLiteral) and isinstance(option.value, MessageLiteral):
                    merged = self._merged(extension, merged, option.value)
                else:
                    merged = option.value
            result.append(Option(group[0][0].path, merged))
        return result

    def _merged(self, field: Symbol | None, first: MessageLiteral, second: MessageLiteral) -> MessageLiteral:
        """Two literals of one message field as one, which has the fields of both."""
        message = self._message_type(field)
        entries = _entries(first)
        for key, value in _entries(second).items():
            if key not in entries:
                entries[key] = value
                continue
            earlier = entries[key]
            member = self._member(message, key)
            if member is None or not isinstance(member.node, Field) or _is_repeated(member.node):
                entries[key] = ListLiteral(tuple(dict.fromkeys((*_items(earlier), *_items(value)))))
            elif (
                isinstance(earlier, MessageLiteral)
                and isinstance(value, MessageLiteral)
                and self._message_type(member) is not None
            ):
                entries[key] = self._merged(member, earlier, value)
            else:
                entries[key] = value
        return MessageLiteral(tuple(entries.items()))

    def _message_type(self, field: Symbol | None) -> Symbol | None:
        if field is None or not isinstance(field.node, Field):
            return None
        assert self._table is not None
        return self._table.view(field.path).message(field.node.type, field.scope)

    def _member(self, message: Symbol | None, key: str) -> Symbol | None:
        if message is None or not isinstance(message.node, Message):
            return None
        for field in message.node.fields:
            if field.name == key:
                return Symbol(joined(message.full_name, key), message.path, field, None, message.full_name)
        return None

    def _value(self, value: Value, scope: str) -> str:
        if isinstance(value, MessageLiteral):
            return self._literal(value, scope)
        if isinstance(value, ListLiteral):
            if self._normalize and len(value.values) == 1:
                return self._value(value.values[0], scope)
            return "[\n" + _comma_lines([self._value(item, scope) for item in value.values]) + "]"
        if value.kind == STRING:
            return f'"{escaped(value.text)}"'
        if value.kind == NUMBER and self._normalize:
            return _normalized_number(value.text)
        return value.text

    def _literal(self, literal: MessageLiteral, scope: str) -> str:
        entries = _entries(literal)
        if self._normalize:
            entries = self._normalized_entries(entries, scope)
        return "{\n" + _comma_lines([f"{key}: {self._value(value, scope)}" for key, value in entries.items()]) + "}"

    def _normalized_entries(self, entries: dict[str, Value], scope: str) -> dict[str, Value]:
        assert self._table is not None
        result: dict[str, Value] = {}
        for key, value in entries.items():
            if isinstance(value, ListLiteral) and not value.values:
                continue
            if key.startswith("["):
                extension = self._table.view(MAIN).extension(key[1:-1], scope)
                if extension is not None:
                    key = f"[{extension.full_name}]"
            result.setdefault(key, value)
        return dict(sorted(result.items()))


def _is_repeated(field: Field) -> bool:
    return field.label == "repeated" or field.key_type is not None


def _comma_lines(texts: list[str]) -> str:
    if not texts:
        return ""
    return "".join(line + "\n" for line in _indented(",\n".join(texts).split("\n")))


def _items(value: Value) -> tuple[Value, ...]:
    return value.values if isinstance(value, ListLiteral) else (value,)


def _entries(literal: MessageLiteral) -> dict[str, Value]:
    """The entries of a literal by key. A key that occurs again gets a list of its values."""
    entries: dict[str, Value] = {}
    for key, value in literal.entries:
        earlier = entries.get(key)
        entries[key] = value if earlier is None else ListLiteral((*_items(earlier), *_items(value)))
    return entries


def escaped(text: str) -> str:
    """The contents of a string literal."""

    def escape(match: re.Match[str]) -> str:
        character = match.group()
        return _ESCAPES.get(character) or f"\\{ord(character) - 0xDC00:03o}"

    return _SPECIAL.sub(escape, text)


def _normalized_number(text: str) -> str:
    """A number without exponent, leading or trailing zeros, in decimal."""
    if _INTEGER.match(text):
        digits = text.removeprefix("-")
        number = integer_of(digits) if len(digits) <= _FLOAT_EXPONENT_MAX else None
        return text if number is None else f"{'-' * (text[0] == '-')}{number}"
    if text.lstrip("-")[:1] not in "0123456789.":
        return text
    value = Decimal(text)
    if not -_FLOAT_EXPONENT_MAX < value.adjusted() < _FLOAT_EXPONENT_MAX:
        return text
    plain = format(value, "f")
    return (plain.rstrip("0").rstrip(".") if "." in plain else plain) or "0"
