"""Protobuf keys and values with schemas of a registry.

    registry = RegistryClient("http://127.0.0.1:8081")
    Producer(value_serializer=ProtobufSerializer(registry))                     # objects of generated classes
    Producer(value_serializer=ProtobufSerializer(registry, text))               # dicts, dataclasses, structs, models
    Consumer("orders", value_deserializer=ProtobufDeserializer(registry, Order))

Files that a generated class imports are registered as references, each under its path; known files are not. The first
record of a topic or schema asks the registry; after that nothing is asked. Serializers and deserializers may be shared
by threads, producers and consumers.
"""

import base64
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

from google.protobuf.message import DecodeError, EncodeError, Message
from msgspec.structs import replace

from ottla.client.serializers import DeserializedColumn, NotPreparedError
from ottla.client.values import Header
from ottla.registry.schemas.parsed_schema import InvalidSchemaError
from ottla.registry.schemas.protobuf.known_files import KNOWN_PATHS
from ottla.registry.schemas.protobuf.protobuf_schema import ProtobufSchema, parse
from ottla.registry.schemas.schema import PROTOBUF, Reference, Schema
from ottla.registry.serde.errors import ValueNotReadableError, ValueNotSerializableError
from ottla.registry.serde.framing import SchemaId, guid_header, id_prefix, read_frame
from ottla.registry.serde.message_indexes import (
    encoded_indexes,
    first_message_name,
    indexes_of,
    message_name,
    read_indexes,
)
from ottla.registry.serde.plain_values import converter_into, plain_value
from ottla.registry.serde.protobuf_values import MessageClasses, as_dict, fill
from ottla.registry.serde.registry_client import RegistryClient
from ottla.registry.serde.schema_ids import (
    WriteOptions,
    WriteRules,
    age_of,
    check_rules,
    keep,
    parsed,
    schema_to_read_with,
    schema_to_write_with,
)
from ottla.registry.serde.subject_names import SubjectContexts, SubjectName, topic_subject

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.registry.serde.arrow.column_decoders import WrittenMessage
    from ottla.registry.serde.arrow.column_readers import ColumnReaders
    from ottla.registry.serde.arrow.column_writers import ColumnWriter
    from ottla.registry.serde.arrow.framed_columns import Written

_NEVER: Final = float("inf")
_ReaderKey = tuple[SchemaId, str | None, tuple[int, ...], str, bool]
"""The id, its context, the indexes of the message, and topic and is_key if the reader depends on them."""

ReferenceSubjectName = Callable[[str], str]
"""The subject of an imported file, by its path."""


def path_subject(path: str) -> str:
    """The path itself."""
    return path


class ProtobufSerializer:
    """Writes objects of generated classes; and, with a schema, dicts, dataclasses, msgspec structs, Pydantic models."""

    def __init__(
        self,
        registry: RegistryClient,
        schema: str | Schema | type[Message] | None = None,
        *,
        message: str | None = None,
        reference_subject_name: ReferenceSubjectName = path_subject,
        **options: Unpack[WriteOptions],
    ) -> None:
        """`message` is the full name of the message that dicts are; without it, the first one of the schema.
        `WriteRules` has the options.
        """
        self.rules: Final = WriteRules(**options)
        self._registry = registry
        self._class = schema if isinstance(schema, type) else None
        self._schema = None if schema is None or isinstance(schema, type) else _as_schema(schema)
        self._message = message
        self._reference_subject_name = reference_subject_name
        self._writers: dict[tuple[str, bool, type[Message] | None], _Writer] = {}
        self._column_writers: dict[tuple[str, bool], ColumnWriter] = {}

    def serialize(self, topic: str, value: Any, *, is_key: bool = False) -> bytes | None:
        """The bytes of a value, for use without a producer. Blocks to ask the registry; the id is in the prefix."""
        if self.rules.id_place == "header":
            raise ValueNotSerializableError("the id is in a header, which needs serialize_record")
        while True:
            try:
                return self.serialize_record(topic, value, is_key)[0]
            except NotPreparedError as missing:
                missing.prepare()

    def serialize_record(self, topic: str, value: Any, is_key: bool) -> tuple[bytes | None, Sequence[Header]]:
        """The bytes of a key or value and headers to add. Raises `NotPreparedError`, `ValueNotSerializableError`."""
        if value is None:
            return None, ()
        kind = self._class
        if kind is None and self._schema is None and isinstance(value, Message):
            kind = type(value)
        writer = self._writers.get((topic, is_key, kind))
        if writer is None or writer.deadline <= time.monotonic():
            raise NotPreparedError(partial(self._prepare, topic, is_key, kind))
        return writer.write(value), writer.headers

    def serialize_column(self, topic: str, values: "pa.Array", is_key: bool) -> "tuple[pa.Array, Sequence[Header]]":
        """The bytes of a column of structs and headers to add. Raises `NotPreparedError`, `RowError`."""
        writer = self._column_writers.get((topic, is_key))
        if writer is None or writer.deadline <= time.monotonic():
            raise NotPreparedError(partial(self._prepare_column, topic, is_key))
        return writer.write(values)

    def _prepare_column(self, topic: str, is_key: bool) -> None:
        from ottla.registry.serde.arrow.column_writers import ColumnWriter, protobuf_encoder

        found = self._chosen(topic, is_key, self._class)
        prepared = ColumnWriter(
            encode=protobuf_encoder(found.message_class.DESCRIPTOR),
            prefix=found.prefix,
            headers=found.headers,
            deadline=found.deadline,
        )
        keep(self._column_writers, (topic, is_key), prepared, self._registry)

    def _prepare(self, topic: str, is_key: bool, kind: type[Message] | None) -> None:
        keep(self._writers, (topic, is_key, kind), self._chosen(topic, is_key, kind), self._registry)

    def _chosen(self, topic: str, is_key: bool, kind: type[Message] | None) -> "_Writer":
        registry, rules = self._registry, self.rules
        own: ProtobufSchema | None = None
        schema = self._schema
        if kind is not None:
            own = _schema_of_file(kind.DESCRIPTOR.file)
            name: str | None = kind.DESCRIPTOR.full_name
        elif schema is not None:
            own = _protobuf(registry, schema, SubjectContexts(rules.subject_name).find(topic, is_key))
            name = self._message or first_message_name(own)
        else:
            name = self._message
            if rules.needs_schema:
                raise ValueNotSerializableError(
                    "the serializer has no schema, and the value is not an object of a generated class; give the"
                    " serializer a schema"
                )
        if rules.needs_schema and kind is not None:
            schema = Schema(
                text=_base64(kind.DESCRIPTOR.file), type=PROTOBUF, references=self._references(kind.DESCRIPTOR.file)
            )
        found = schema_to_write_with(registry, rules, topic, is_key, schema if rules.needs_schema else None, name)
        is_own = rules.needs_schema and own is not None
        written = own if is_own and own is not None else _protobuf(registry, found.schema, found.subject)
        if own is not None and not is_own and rules.latest_compatibility_strict:
            _check_latest(written, own, found.version, found.subject)
        name = name or first_message_name(written)
        if name is None:
            raise ValueNotSerializableError("the schema has no message")
        stored, is_normalized = written, is_own and rules.normalize
        if is_own and schema is not None and found.schema.text != schema.text:
            # What counts is the schema as it is stored: the registry may have normalized it without being asked.
            stored = _protobuf(registry, replace(found.schema, references=schema.references), found.subject)
            is_normalized = False
        indexes = encoded_indexes(indexes_of(stored, name, normalized=is_normalized))
        headers: Sequence[Header] = ()
        prefix = b""
        if rules.id_place == "header" and found.guid is not None:
            headers = (guid_header(found.guid, is_key=is_key, suffix=indexes),)
        else:
            prefix = id_prefix(found.id) + indexes
        deadline = time.monotonic() + registry.config.latest_cache_seconds if rules.use_latest else _NEVER
        message_class = kind if kind is not None else MessageClasses(written).find(name)
        return _Writer(message_class, name, prefix, headers, deadline)

    def _references(self, file: Any) -> tuple[Reference, ...]:
        """The files that a file imports, registered or looked up, each after those that it imports itself."""
        references = []
        for imported in file.dependencies:
            if imported.name in KNOWN_PATHS:
                continue
            subject = self._reference_subject_name(imported.name)
            schema = Schema(text=_base64(imported), type=PROTOBUF, references=self._references(imported))
            if self.rules.auto_register:
                self._registry.register(subject, schema, normalize=self.rules.normalize)
            version = self._registry.look_up(subject, schema, normalize=self.rules.normalize).version
            if version is None:
                raise ValueNotSerializableError(f"the registry did not return the version of {subject}")
            references.append(Reference(imported.name, subject, version))
        return tuple(references)


class _Writer:
    """Writes values as one message of one schema."""

    def __init__(
        self, message_class: type[Message], name: str, prefix: bytes, headers: Sequence[Header], deadline: float
    ) -> None:
        self.headers: Final = headers
        self.deadline: Final = deadline
        self.message_class: Final = message_class
        self.prefix: Final = prefix
        self._name = name

    def write(self, value: Any) -> bytes:
        """Prefix and value. Raises `ValueNotSerializableError`."""
        if isinstance(value, Message):
            if value.DESCRIPTOR.full_name != self._name:
                raise ValueNotSerializableError(
                    f"the value is a {value.DESCRIPTOR.full_name}, but the serializer writes {self._name}"
                )
            message = value
        else:
            plain = plain_value(value)
            if not isinstance(plain, dict):
                raise ValueNotSerializableError(f"{type(value).__name__} cannot be written as message {self._name}")
            message = self.message_class()
            fill(message, plain)
        try:
            return self.prefix + bytes(message.SerializeToString())
        except EncodeError as error:
            raise ValueNotSerializableError(str(error)) from error


class ProtobufDeserializer:
    """Reads keys and values as messages, dicts, or objects of a class. Ids in headers and prefixes are understood."""

    def __init__(
        self,
        registry: RegistryClient,
        message_class: type[Message] | None = None,
        *,
        into: type[Any] | None = None,
        use_latest: bool = False,
        subject_name: SubjectName = topic_subject,
        ignore_rules: bool = False,
    ) -> None:
        """Values are objects of the generated `message_class`; else of a class made of the writer's schema, or with
        `use_latest` of the latest version of the subject. `into` makes dicts of them (`dict`), or objects of a
        dataclass, struct or model.
        """
        if message_class is not None and use_latest:
            raise ValueError("message_class and use_latest cannot both be set")
        self._registry = registry
        self._class = message_class
        self._into = into
        self._convert = None if into is None or into is dict else converter_into(into)
        self._use_latest = use_latest
        self._subject_name = subject_name
        self._contexts = SubjectContexts(subject_name)
        self._ignore_rules = ignore_rules
        self._readers: dict[_ReaderKey, _Reader] = {}
        self._columns: ColumnReaders[WrittenMessage] | None = None

    def deserialize(self, topic: str, data: bytes, *, headers: Sequence[Header] = (), is_key: bool = False) -> Any:
        """The value in the bytes, for use without a consumer. Blocks to ask the registry."""
        while True:
            try:
                return self.deserialize_record(topic, headers, data, is_key)
            except NotPreparedError as missing:
                missing.prepare()

    def deserialize_record(self, topic: str, headers: Sequence[Header], data: bytes, is_key: bool) -> Any:
        """The key or value in the bytes. Raises `NotPreparedError`, `ValueNotReadableError`."""
        frame = read_frame(headers, data, is_key=is_key)
        if frame.start:
            indexes, start = read_indexes(data, frame.start)
        else:
            indexes, start = read_indexes(frame.suffix, 0)[0], 0
        context = self._contexts.find(topic, is_key)
        key = (frame.schema_id, context, indexes, topic if self._use_latest else "", is_key and self._use_latest)
        reader = self._readers.get(key)
        if reader is None or reader.deadline <= time.monotonic():
            raise NotPreparedError(partial(self._prepare, key))
        message = reader.read(data, start)
        if self._into is None:
            return message
        value = as_dict(message)
        return value if self._convert is None else self._convert(value)

    def deserialize_column(
        self, topic: str, values: "pa.Array", headers: "pa.Array", is_key: bool
    ) -> DeserializedColumn:
        """The typed column of keys or values. Raises `NotPreparedError`."""
        if self._columns is None:
            from ottla.registry.serde.arrow.column_decoders import protobuf_decoder
            from ottla.registry.serde.arrow.column_readers import ColumnReaders

            self._columns = ColumnReaders(
                has_indexes=True,
                find_schema=self._written,
                find_age=self._age_of,
                find_reader=self._reader_for,
                make_decoder=protobuf_decoder,
            )
        return self._columns.deserialize_column(topic, values, headers, is_key)

    def _age_of(self, topic: str, is_key: bool, written: "Written", message: "WrittenMessage") -> tuple[int, int]:
        subject = self._subject_name(topic, is_key, message.descriptor.full_name)
        found = schema_to_read_with(self._registry, written.schema_id, self._contexts.find(topic, is_key))
        return age_of(self._registry, subject, written.schema_id, found.schema)

    def _written(self, topic: str, is_key: bool, written: "Written") -> "WrittenMessage":
        from ottla.registry.serde.arrow.column_decoders import WrittenMessage

        registry = self._registry
        found = schema_to_read_with(registry, written.schema_id, self._contexts.find(topic, is_key))
        check_rules(found.schema, is_write=False, ignore_rules=self._ignore_rules)
        schema = _protobuf(registry, found.schema, found.subject)
        message_class = MessageClasses(schema).find(message_name(schema, written.indexes))
        return WrittenMessage(schema, message_class.DESCRIPTOR)

    def _reader_for(self, topic: str, is_key: bool, writer: "WrittenMessage") -> "tuple[WrittenMessage, float] | None":
        from ottla.registry.serde.arrow.column_decoders import WrittenMessage

        if self._class is not None:
            return WrittenMessage(None, self._class.DESCRIPTOR), _NEVER
        if not self._use_latest:
            return None
        name = writer.descriptor.full_name
        latest = self._registry.version(self._subject_name(topic, is_key, name))
        schema = _protobuf(self._registry, latest.schema, latest.subject)
        deadline = time.monotonic() + self._registry.config.latest_cache_seconds
        return WrittenMessage(schema, MessageClasses(schema).find(name).DESCRIPTOR), deadline

    def _prepare(self, key: _ReaderKey) -> None:
        schema_id, context, indexes, topic, is_key = key
        registry = self._registry
        written = schema_to_read_with(registry, schema_id, context)
        check_rules(written.schema, is_write=False, ignore_rules=self._ignore_rules)
        writer = _protobuf(registry, written.schema, written.subject)
        name = message_name(writer, indexes)
        deadline = _NEVER
        if self._class is not None:
            wanted = self._class.DESCRIPTOR.name
            if name.rpartition(".")[2] != wanted:
                raise ValueNotReadableError(f"the value is a {name}, not a {self._class.DESCRIPTOR.full_name}")
            message_class = self._class
        elif self._use_latest:
            latest = registry.version(self._subject_name(topic, is_key, name))
            reader = _protobuf(registry, latest.schema, latest.subject)
            reasons = reader.incompatibilities(writer)
            if reasons:
                raise ValueNotReadableError(
                    f"the latest schema cannot read what was written with schema {schema_id}:"
                    f" {reasons[0].path}: {reasons[0].message}"
                )
            message_class = MessageClasses(reader).find(name)
            deadline = time.monotonic() + registry.config.latest_cache_seconds
        else:
            message_class = MessageClasses(writer).find(name)
        keep(self._readers, key, _Reader(schema_id, message_class, deadline), registry)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads values that were written as one message of one schema."""

    schema_id: SchemaId
    message_class: type[Message]
    deadline: float

    def read(self, data: bytes, start: int) -> Message:
        """The value after the prefix. Raises `ValueNotReadableError`."""
        message = self.message_class()
        try:
            message.ParseFromString(data[start:] if start else data)
        except DecodeError as error:
            raise ValueNotReadableError(f"the bytes are not a value of schema {self.schema_id}: {error}") from error
        return message


def _as_schema(schema: str | Schema) -> Schema:
    if isinstance(schema, str):
        return Schema(text=schema, type=PROTOBUF)
    if schema.type != PROTOBUF:
        raise ValueError(f"a Protobuf serializer needs a schema of type {PROTOBUF}, not {schema.type}")
    return schema


def _protobuf(registry: RegistryClient, schema: Schema, subject: str | None) -> ProtobufSchema:
    if schema.type != PROTOBUF:
        raise ValueNotReadableError(f"the schema has type {schema.type}, not {PROTOBUF}")
    found = parsed(registry, schema, subject)
    assert isinstance(found, ProtobufSchema)
    return found


def _base64(file: Any) -> str:
    return base64.b64encode(file.serialized_pb).decode()


def _schema_of_file(file: Any) -> ProtobufSchema:
    """The schema of a generated file, with its imports."""
    references: dict[str, str] = {}
    pending = list(file.dependencies)
    while pending:
        imported = pending.pop()
        if imported.name not in references and imported.name not in KNOWN_PATHS:
            references[imported.name] = _base64(imported)
            pending.extend(imported.dependencies)
    try:
        return parse(_base64(file), references)
    except InvalidSchemaError as error:
        raise ValueNotSerializableError(f"the file {file.name} of the class cannot be used: {error}") from error


def _check_latest(latest: ProtobufSchema, own: ProtobufSchema, version: int | None, subject: str | None) -> None:
    reasons = latest.incompatibilities(own)
    if reasons:
        raise ValueNotSerializableError(
            f"version {version} of subject {subject}, the latest, cannot read what the serializer's own schema"
            f" writes: {reasons[0].path}: {reasons[0].message}"
        )
