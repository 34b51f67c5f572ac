"""The FileDescriptorProto of a valid schema: what protoc makes of it, for the format `serialized` and for serializers.

Two things differ from protoc's. Messages that maps and groups stand for come after the nested messages that are written
out, because the indexes of messages in a record's frame count only those. And `json_name` is set only where the schema
sets it, so that the text made from the descriptor is the same again.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from ottla.registry.schemas.protobuf.features import with_options
from ottla.registry.schemas.protobuf.option_values import INTEGER_RANGES, OptionEncoder, scalar_value
from ottla.registry.schemas.protobuf.symbols import SymbolTable, joined, map_entry_name
from ottla.registry.schemas.protobuf.syntax_tree import (
    ENUM_NUMBER_MAX,
    FIELD_NUMBER_MAX,
    Enum,
    Extend,
    Field,
    File,
    Message,
    Option,
    Scalar,
    Service,
)

_FieldProto: Final = descriptor_pb2.FieldDescriptorProto
_LABELS: Final = {
    None: _FieldProto.LABEL_OPTIONAL,
    "optional": _FieldProto.LABEL_OPTIONAL,
    "required": _FieldProto.LABEL_REQUIRED,
    "repeated": _FieldProto.LABEL_REPEATED,
}


def file_descriptor(table: SymbolTable, path: str, name: str) -> descriptor_pb2.FileDescriptorProto:
    """The FileDescriptorProto of the file of a table that has a path, with a name of its own."""
    return _Builder(table, path).file(name)


@cache
def _file_class() -> Any:
    """FileDescriptorProto of a pool without extensions: options are kept as they were encoded, whatever is imported."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))


class _Builder:
    def __init__(self, table: SymbolTable, path: str) -> None:
        self._table = table
        self._file: File = table.files[path]
        self._view = table.view(path)
        self._encoder = OptionEncoder(table, path)

    def file(self, name: str) -> descriptor_pb2.FileDescriptorProto:
        file = self._file
        proto = _file_class()(name=name)
        if file.package:
            proto.package = file.package
        if file.is_edition:
            proto.syntax = "editions"
            proto.edition = descriptor_pb2.Edition.Value(f"EDITION_{file.syntax}")
        elif file.syntax == "proto3":
            proto.syntax = file.syntax
        for import_ in file.imports:
            if import_.path not in self._table.files:
                continue
            if import_.kind == "option":
                if hasattr(proto, "option_dependency"):  # Runtimes that know edition 2024 have it.
                    proto.option_dependency.append(import_.path)
                continue
            if import_.kind == "public":
                proto.public_dependency.append(len(proto.dependency))
            elif import_.kind == "weak":
                proto.weak_dependency.append(len(proto.dependency))
            proto.dependency.append(import_.path)
        for type_ in file.types:
            if isinstance(type_, Message):
                self._message(proto.message_type.add(), type_, file.package)
            else:
                self._enum(proto.enum_type.add(), type_, file.package)
        self._extends(proto.extension, proto.message_type, file.extends, file.package)
        for service in file.services:
            self._service(proto.service.add(), service)
        self._options(proto, file.options, "FileOptions", file.package)
        return proto

    def _options(self, proto: Any, options: Sequence[Option], kind: str, scope: str) -> None:
        if options:
            data = self._encoder.encoded(options, kind, scope)
            if data:
                proto.options.MergeFromString(data)

    def _message(self, proto: Any, message: Message, scope: str) -> None:
        proto.name = message.name
        full_name = joined(scope, message.name)
        for nested in message.types:
            if isinstance(nested, Message):
                self._message(proto.nested_type.add(), nested, full_name)
            else:
                self._enum(proto.enum_type.add(), nested, full_name)
        for oneof in message.oneofs:
            oneof_proto = proto.oneof_decl.add(name=oneof.name)
            self._options(oneof_proto, oneof.options, "OneofOptions", full_name)
        for field in message.fields:
            self._field(proto.field.add(), field, full_name)
            if field.key_type is not None:
                self._map_entry(proto.nested_type.add(), field, full_name)
            if field.group is not None:
                self._message(proto.nested_type.add(), field.group, full_name)
        self._synthetic_oneofs(proto, message)
        self._extends(proto.extension, proto.nested_type, message.extends, full_name)
        for statement in message.extension_ranges:
            for range_ in statement.ranges:
                is_max = range_.last == FIELD_NUMBER_MAX and message.has_set_encoding
                end = ENUM_NUMBER_MAX if is_max else range_.last + 1
                range_proto = proto.extension_range.add(start=range_.start, end=end)
                self._options(range_proto, statement.options, "ExtensionRangeOptions", full_name)
        for reserved in message.reserved:
            for range_ in reserved.ranges:
                proto.reserved_range.add(start=range_.start, end=range_.last + 1)
            proto.reserved_name.extend(reserved.names)
        self._options(proto, message.options, "MessageOptions", full_name)

    def _synthetic_oneofs(self, proto: Any, message: Message) -> None:
        """In proto3, each optional field is the one member of a oneof that is not written."""
        if self._file.syntax != "proto3":
            return
        names = {field.name for field in message.fields} | {oneof.name for oneof in message.oneofs}
        for field, field_proto in zip(message.fields, proto.field, strict=True):
            if field.label == "optional":
                name = field.name if field.name.startswith("_") else "_" + field.name
                while name in names:
                    name = "X" + name
                names.add(name)
                field_proto.proto3_optional = True
                field_proto.oneof_index = len(proto.oneof_decl)
                proto.oneof_decl.add(name=name)

    def _map_entry(self, proto: Any, field: Field, scope: str) -> None:
        proto.name = map_entry_name(field.name)
        proto.options.map_entry = True
        assert field.key_type is not None
        for number, (name, type_) in enumerate((("key", field.key_type), ("value", field.type)), 1):
            member = proto.field.add(name=name, number=number, label=_FieldProto.LABEL_OPTIONAL)
            self._set_type(member, type_, scope)
            validation = with_options({}, field.options).get("utf8_validation")
            if type_ == "string" and validation is not None:
                member.options.features.utf8_validation = validation

    def _set_type(self, proto: Any, type_: str, scope: str) -> None:
        symbol = self._view.type(type_, scope)
        if symbol is None:
            proto.type = _FieldProto.Type.Value(f"TYPE_{type_.upper()}")
        else:
            is_enum = isinstance(symbol.node, Enum)
            proto.type = _FieldProto.TYPE_ENUM if is_enum else _FieldProto.TYPE_MESSAGE
            proto.type_name = "." + symbol.full_name

    def _field(self, proto: Any, field: Field, scope: str) -> None:
        proto.name = field.name
        proto.number = field.number
        proto.label = _LABELS[field.label]
        if field.key_type is not None:
            proto.label = _FieldProto.LABEL_REPEATED
            proto.type = _FieldProto.TYPE_MESSAGE
            proto.type_name = f".{joined(scope, map_entry_name(field.name))}"
        elif field.group is not None:
            proto.type = _FieldProto.TYPE_GROUP
            proto.type_name = f".{joined(scope, field.group.name)}"
        else:
            self._set_type(proto, field.type, scope)
        if field.oneof is not None:
            proto.oneof_index = field.oneof
        real = []
        for option in field.options:
            if option.name == "default" and isinstance(option.value, Scalar):
                proto.default_value = _default_text(field.type, option.value)
            elif option.name == "json_name" and isinstance(option.value, Scalar):
                proto.json_name = option.value.text
            else:
                real.append(option)
        self._options(proto, real, "FieldOptions", joined(scope, field.name))

    def _extends(self, extensions: Any, messages: Any, extends: Sequence[Extend], scope: str) -> None:
        for extend in extends:
            extended = self._view.message(extend.extendee, scope)
            assert extended is not None
            for field in extend.fields:
                proto = extensions.add(extendee="." + extended.full_name)
                self._field(proto, field, scope)
                if self._file.syntax == "proto3" and field.label == "optional":
                    proto.proto3_optional = True
                if field.group is not None:
                    self._message(messages.add(), field.group, scope)

    def _enum(self, proto: Any, enum: Enum, scope: str) -> None:
        proto.name = enum.name
        full_name = joined(scope, enum.name)
        for value in enum.values:
            value_proto = proto.value.add(name=value.name, number=value.number)
            self._options(value_proto, value.options, "EnumValueOptions", full_name)
        for reserved in enum.reserved:
            for range_ in reserved.ranges:
                proto.reserved_range.add(start=range_.start, end=range_.last)
            proto.reserved_name.extend(reserved.names)
        self._options(proto, enum.options, "EnumOptions", full_name)

    def _service(self, proto: Any, service: Service) -> None:
        proto.name = service.name
        full_name = joined(self._file.package, service.name)
        for method in service.methods:
            method_proto = proto.method.add(name=method.name)
            for attribute, type_ in (("input_type", method.request), ("output_type", method.response)):
                symbol = self._view.message(type_, full_name)
                assert symbol is not None
                setattr(method_proto, attribute, "." + symbol.full_name)
            if method.request_streaming:
                method_proto.client_streaming = True
            if method.response_streaming:
                method_proto.server_streaming = True
            self._options(method_proto, method.options, "MethodOptions", full_name)
        self._options(proto, service.options, "ServiceOptions", full_name)


def _default_text(type_: str, literal: Scalar) -> str:
    """A default as a FileDescriptorProto has it: bytes in C's escapes, numbers in decimal, enum values by name."""
    if type_ == "bytes":
        return _c_escaped(literal.data)
    if type_ in ("double", "float"):
        return _float_text(type_, float(scalar_value(type_, literal)))
    if type_ == "string":
        return literal.data.decode("utf-8", "replace")
    if type_ == "bool" or type_ not in INTEGER_RANGES:
        return literal.text
    return str(int(scalar_value(type_, literal)))


def _float_text(type_: str, value: float) -> str:
    """The shortest text that is read as the same number, as C's %g writes it."""
    is_float = type_ == "float"
    if is_float:
        value = _as_float(value)
    for digits in (6, 7, 8, 9) if is_float else (15, 16, 17):
        text = f"{value:.{digits}g}"
        if value == (_as_float(float(text)) if is_float else float(text)):
            break
    return text


def _as_float(value: float) -> float:
    """The nearest number of 32 bits; infinity, if there is none."""
    return float(ctypes.c_float(value).value)


_C_ESCAPES: Final = {10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}


def _c_escaped(data: bytes) -> str:
    return "".join(_C_ESCAPES.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in data)
