"""The tree of a serialized FileDescriptorProto: clients may register that, in base64, instead of a text.

Types are written with their full names; a map is a repeated field of a message with the option `map_entry`. Options of
extensions other than Confluent's own are unknown fields here, and are left out, as in Confluent's registry.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from ottla.registry.schemas.parsed_schema import InvalidSchemaError
from ottla.registry.schemas.protobuf.syntax_tree import (
    IDENTIFIER,
    NUMBER,
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
from ottla.registry.schemas.protobuf.tokens import unquoted

_FieldProto: Final = descriptor_pb2.FieldDescriptorProto
_META_NUMBER: Final = 1088
_META_NAMES: Final = {
    "FileOptions": "file_meta",
    "MessageOptions": "message_meta",
    "FieldOptions": "field_meta",
    "EnumOptions": "enum_meta",
    "EnumValueOptions": "enum_value_meta",
}


@cache
def _file_class() -> Any:
    """FileDescriptorProto of a pool of its own, in which Confluent's options are known whatever else is imported.

    The parameters of these options are a list of pairs there, not a map, because their order is kept in the text.
    """
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    meta = descriptor_pb2.FileDescriptorProto(
        name="confluent/meta.proto", package="confluent", syntax="proto3", dependency=[descriptor_pb2.DESCRIPTOR.name]
    )
    messages = {
        "Meta": (("doc", ""), ("params", "Param"), ("tags", "[]"), ("rules", "Rule")),
        "Param": (("key", ""), ("value", "")),
        "Rule": (("name", ""), ("doc", ""), ("expr", ""), ("sql", "")),
    }
    for name, fields in messages.items():
        message = meta.message_type.add(name=name)
        for number, (field_name, kind) in enumerate(fields, 1):
            is_message = kind in messages
            message.field.add(
                name=field_name,
                number=number,
                type=_FieldProto.TYPE_MESSAGE if is_message else _FieldProto.TYPE_STRING,
                type_name=f".confluent.{kind}" if is_message else None,
                label=_FieldProto.LABEL_REPEATED if kind else _FieldProto.LABEL_OPTIONAL,
            )
    for options, name in _META_NAMES.items():
        meta.extension.add(
            name=name,
            number=_META_NUMBER,
            type=_FieldProto.TYPE_MESSAGE,
            type_name=".confluent.Meta",
            label=_FieldProto.LABEL_OPTIONAL,
            extendee=f".google.protobuf.{options}",
        )
    pool.Add(meta)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))


def tree_of(serialized: bytes) -> File:
    """The tree of a serialized FileDescriptorProto. Raises `InvalidSchemaError`."""
    try:
        file = _file_class().FromString(serialized)
    except DecodeError as error:
        raise InvalidSchemaError("the bytes are not a FileDescriptorProto") from error
    try:
        return _Reader(file).file()
    except (KeyError, IndexError) as error:
        raise InvalidSchemaError(f"the FileDescriptorProto is not consistent: {error}") from error


class _Reader:
    def __init__(self, file: Any) -> None:
        self._file = file
        if file.syntax == "editions":
            edition = descriptor_pb2.Edition.Name(file.edition)
            self._syntax = edition.removeprefix("EDITION_")
        else:
            self._syntax = file.syntax or "proto2"

    def file(self) -> File:
        file = self._file
        kinds = dict.fromkeys(file.weak_dependency, "weak") | dict.fromkeys(file.public_dependency, "public")
        top_groups: dict[str, Message] = {}
        extends = self._extends(file.extension, file.package, {m.name: m for m in file.message_type}, top_groups)
        return File(
            syntax=self._syntax,
            syntax_is_written=bool(file.syntax),
            package=file.package,
            imports=(
                *(Import(path, kinds.get(index, "")) for index, path in enumerate(file.dependency)),
                *(Import(path, "option") for path in getattr(file, "option_dependency", ())),
            ),
            types=(
                *(self._message(m, file.package) for m in file.message_type if m.name not in top_groups),
                *(self._enum(e) for e in file.enum_type),
            ),
            extends=extends,
            services=tuple(self._service(service) for service in file.service),
            options=_options(file.options),
        )

    def _message(self, message: Any, scope: str) -> Message:
        full_name = f"{scope}.{message.name}" if scope else message.name
        nested = {m.name: m for m in message.nested_type}
        groups: dict[str, Message] = {}
        real = {f.oneof_index for f in message.field if f.HasField("oneof_index") and not f.proto3_optional}
        index_of = {index: position for position, index in enumerate(sorted(real))}
        fields = tuple(self._field(f, full_name, nested, groups, index_of) for f in message.field)
        extends = self._extends(message.extension, full_name, nested, groups)
        return Message(
            name=message.name,
            fields=fields,
            oneofs=tuple(
                OneOf(message.oneof_decl[index].name, _options(message.oneof_decl[index].options)) for index in index_of
            ),
            types=(
                *(self._message(m, full_name) for m in message.nested_type if m.name not in groups),
                *(self._enum(e) for e in message.enum_type),
            ),
            extends=extends,
            extension_ranges=tuple(
                ExtensionRanges((_range(r.start, r.end - 1),), _options(r.options)) for r in message.extension_range
            ),
            reserved=(
                *(Reserved(ranges=(_range(r.start, r.end - 1),)) for r in message.reserved_range),
                *(Reserved(names=(name,)) for name in message.reserved_name),
            ),
            options=_options(message.options),
        )

    def _extends(
        self, extensions: Iterable[Any], scope: str, messages: dict[str, Any], groups: dict[str, Message]
    ) -> tuple[Extend, ...]:
        by_extendee: dict[str, list[Field]] = {}
        for extension in extensions:
            field = self._field(extension, scope, messages, groups, {})
            by_extendee.setdefault(extension.extendee, []).append(field)
        return tuple(Extend(extendee, tuple(fields)) for extendee, fields in by_extendee.items())

    def _field(
        self, field: Any, scope: str, messages: dict[str, Any], groups: dict[str, Message], oneofs: dict[int, int]
    ) -> Field:
        options = list(_options(field.options))
        if field.HasField("default_value") and self._syntax != "proto3":
            options.append(Option((OptionName("default"),), _default(field)))
        if field.HasField("json_name"):
            options.append(Option((OptionName("json_name"),), Scalar(STRING, field.json_name)))
        oneof = oneofs[field.oneof_index] if field.HasField("oneof_index") and not field.proto3_optional else None
        group = None
        if field.type_name:
            type_ = field.type_name
            if field.type == _FieldProto.TYPE_GROUP and self._syntax == "proto2":
                type_ = type_.rpartition(".")[2]
                group = groups[type_] = self._message(messages[type_], scope)
        else:
            type_ = _FieldProto.Type.Name(field.type).removeprefix("TYPE_").lower()
        return Field(
            name=field.name,
            number=field.number,
            type=type_,
            label=None if oneof is not None else self._label(field),
            group=group,
            oneof=oneof,
            options=tuple(options),
        )

    def _label(self, field: Any) -> str | None:
        if field.label == _FieldProto.LABEL_REPEATED:
            return "repeated"
        if self._syntax == "proto2" and field.label == _FieldProto.LABEL_REQUIRED:
            return "required"
        return "optional" if self._syntax == "proto2" or field.proto3_optional else None

    def _enum(self, enum: Any) -> Enum:
        return Enum(
            name=enum.name,
            values=tuple(EnumValue(v.name, v.number, _options(v.options)) for v in enum.value),
            reserved=(
                *(Reserved(ranges=(_range(r.start, r.end),)) for r in enum.reserved_range),
                *(Reserved(names=(name,)) for name in enum.reserved_name),
            ),
            options=_options(enum.options),
        )

    def _service(self, service: Any) -> Service:
        return Service(
            name=service.name,
            methods=tuple(
                Method(m.name, m.input_type, m.output_type, m.client_streaming, m.server_streaming, _options(m.options))
                for m in service.method
            ),
            options=_options(service.options),
        )


def _range(start: int, last: int) -> Range:
    return Range(start, last, single=start == last)


def _default(field: Any) -> Scalar:
    text = field.default_value
    if field.type == _FieldProto.TYPE_STRING:
        return Scalar(STRING, text)
    if field.type == _FieldProto.TYPE_BYTES:
        return Scalar(STRING, unquoted("", f'"{text}"', 0))
    is_number = text[:1] == "-" or text[:1].isdigit()
    return Scalar(NUMBER if is_number else IDENTIFIER, text)


def _options(options: Any) -> tuple[Option, ...]:
    """The options that are set, in the order in which descriptor.proto declares them, then Confluent's."""
    result: list[Option] = []
    for field in options.DESCRIPTOR.fields:
        if field.name == "uninterpreted_option":
            continue
        path = (OptionName(field.name),)
        if _is_repeated(field):
            result.extend(Option(path, _value(field, value)) for value in getattr(options, field.name))
        elif options.HasField(field.name):
            result.append(Option(path, _value(field, getattr(options, field.name))))
    for field, value in options.ListFields():
        if field.is_extension and field.number == _META_NUMBER:
            literal = _meta_literal(value)
            if literal.entries:
                result.append(Option((OptionName(field.full_name, is_extension=True),), literal))
    return tuple(result)


def _is_repeated(field: Any) -> bool:
    # `label` is deprecated in favour of `is_repeated`, which versions before 6 do not have.
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def _value(field: Any, value: Any) -> Value:
    if field.message_type is not None:
        return MessageLiteral(
            tuple(
                (
                    f"[{inner.full_name}]" if inner.is_extension else inner.name,
                    ListLiteral(tuple(_value(inner, item) for item in contents))
                    if _is_repeated(inner)
                    else _value(inner, contents),
                )
                for inner, contents in value.ListFields()
            )
        )
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return Scalar(IDENTIFIER, known.name) if known is not None else Scalar(NUMBER, str(value))
    if isinstance(value, bool):
        return Scalar(IDENTIFIER, "true" if value else "false")
    if isinstance(value, str):
        return Scalar(STRING, value)
    return Scalar(NUMBER, str(value))


def _meta_literal(meta: Any) -> MessageLiteral:
    """Confluent's options, in the layout of their registry."""
    entries: list[tuple[str, Value]] = []
    if meta.doc:
        entries.append(("doc", Scalar(STRING, meta.doc)))
    if meta.params:
        entries.append(("params", ListLiteral(tuple(_param_literal(param) for param in meta.params))))
    if meta.tags:
        entries.append(("tags", ListLiteral(tuple(Scalar(STRING, tag) for tag in meta.tags))))
    rules = []
    for rule in meta.rules:
        parts = [(name, getattr(rule, name)) for name in ("name", "doc", "expr", "sql")]
        if any(text for _, text in parts):
            rules.append(MessageLiteral(tuple((name, Scalar(STRING, text)) for name, text in parts if text)))
    if rules:
        entries.append(("rules", ListLiteral(tuple(rules))))
    return MessageLiteral(tuple(entries))


def _param_literal(param: Any) -> MessageLiteral:
    pair = [("key", Scalar(STRING, param.key)), ("value", Scalar(STRING, param.value))]
    if param.key in ("precision", "scale"):
        pair.reverse()
    return MessageLiteral(tuple(pair))
