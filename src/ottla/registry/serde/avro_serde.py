"""Avro keys and values with schemas of a registry.

    registry = RegistryClient("http://127.0.0.1:8081")
    Producer(value_serializer=AvroSerializer(registry, Order))
    Consumer("orders", value_deserializer=AvroDeserializer(registry, into=Order))

A schema is a text, a `Schema` with references, or a class: see `class_schemas.py`. A serializer without one uses the
class of each value. The first record of a topic or schema asks the registry; after that nothing is asked. Serializers
and deserializers may be shared by threads, producers and consumers.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, Unpack

import fastavro

from ottla.client.serializers import DeserializedColumn, NotPreparedError
from ottla.client.values import Header
from ottla.model.invariants import violated
from ottla.registry.schemas.avro.avro_schema import AvroSchema
from ottla.registry.schemas.schema import AVRO, Schema
from ottla.registry.serde.avro_codec import codec_of
from ottla.registry.serde.avro_limits import read_check, write_check
from ottla.registry.serde.avro_values import UnusualValueError, ValueCodec
from ottla.registry.serde.class_schemas import schema_of
from ottla.registry.serde.errors import ValueNotReadableError, ValueNotSerializableError
from ottla.registry.serde.framing import SchemaId, guid_header, id_prefix, read_frame
from ottla.registry.serde.plain_values import converter_into, is_class_of_records, plain_value
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

    from ottla.registry.serde.arrow.column_readers import ColumnReaders
    from ottla.registry.serde.arrow.column_writers import ColumnWriter
    from ottla.registry.serde.arrow.framed_columns import Written

_NEVER: Final = float("inf")
_ReaderKey = tuple[SchemaId, str | None, str, bool]
"""The id, its context, and topic and is_key if the reader depends on them."""


class AvroSerializer:
    """Writes dicts, dataclasses, msgspec structs and Pydantic models, and values of schemas that are not records."""

    def __init__(
        self, registry: RegistryClient, schema: str | Schema | type[Any] | None = None, **options: Unpack[WriteOptions]
    ) -> None:
        """`WriteRules` has the options."""
        self.rules: Final = WriteRules(**options)
        self._registry = registry
        self._schema = None if schema is None else _as_schema(schema)
        self._writers: dict[tuple[str, bool, type[Any] | None], _Writer] = {}
        self._column_writers: dict[tuple[str, bool, pa.DataType | None], ColumnWriter] = {}

    def serialize(self, topic: str, value: Any, *, is_key: bool = False) -> bytes | None:
        """The bytes of a value, for use without a producer. Blocks to ask the registry. Not with ids in headers."""
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
        kind = type(value) if self._schema is None and self.rules.needs_schema else None
        writer = self._writers.get((topic, is_key, kind))
        if writer is None or writer.deadline <= time.monotonic():
            raise NotPreparedError(partial(self._prepare, topic, is_key, kind))
        return writer.write(value), writer.headers

    def _prepare(self, topic: str, is_key: bool, kind: type[Any] | None) -> None:
        schema = self._schema
        if kind is not None:
            if not is_class_of_records(kind):
                raise ValueNotSerializableError(
                    f"the serializer has no schema, and {kind.__name__} is not a class that has one; give the"
                    " serializer a schema"
                )
            schema = _as_schema(kind)
        keep(self._writers, (topic, is_key, kind), _Writer(*self._chosen(topic, is_key, schema)), self._registry)

    def serialize_column(self, topic: str, values: "pa.Array", is_key: bool) -> "tuple[pa.Array, Sequence[Header]]":
        """The bytes of a column and headers to add; the schema of a table, if the serializer has none, is derived.

        Raises `NotPreparedError`, `RowError`.
        """
        kind = values.type if self._schema is None and self.rules.needs_schema else None
        writer = self._column_writers.get((topic, is_key, kind))
        if writer is None or writer.deadline <= time.monotonic():
            raise NotPreparedError(partial(self._prepare_column, topic, is_key, kind))
        return writer.write(values)

    def _prepare_column(self, topic: str, is_key: bool, kind: "pa.DataType | None") -> None:
        from ottla.registry.serde.arrow.column_writers import ColumnWriter, avro_encoder, derived_avro_text

        schema = self._schema
        if kind is not None:
            schema = Schema(text=derived_avro_text(kind, f"{topic}_{'key' if is_key else 'value'}"))
        avro, prefix, headers, deadline = self._chosen(topic, is_key, schema)
        prepared = ColumnWriter(encode=avro_encoder(avro), prefix=prefix, headers=headers, deadline=deadline)
        keep(self._column_writers, (topic, is_key, kind), prepared, self._registry)

    def _chosen(
        self, topic: str, is_key: bool, schema: Schema | None
    ) -> tuple[AvroSchema, bytes, Sequence[Header], float]:
        """The schema to write with, its id as prefix or headers, and until when it holds."""
        registry, rules = self._registry, self.rules
        context = SubjectContexts(rules.subject_name).find(topic, is_key)
        name = None if schema is None else _avro(registry, schema, context).name
        found = schema_to_write_with(registry, rules, topic, is_key, schema, name)
        # The id belongs to the normalized text, but the value has the fields of the schema as it was given.
        avro = _avro(registry, found.schema if schema is None or not rules.needs_schema else schema, found.subject)
        deadline = time.monotonic() + registry.config.latest_cache_seconds if rules.use_latest else _NEVER
        if rules.id_place == "header" and found.guid is not None:
            return avro, b"", (guid_header(found.guid, is_key=is_key),), deadline
        return avro, id_prefix(found.id), (), deadline


class _Writer:
    """Writes values with one schema and id."""

    def __init__(self, avro: AvroSchema, prefix: bytes, headers: Sequence[Header], deadline: float) -> None:
        self.headers: Final = headers
        self.deadline: Final = deadline
        self._prefix = prefix
        self._schema = _fastavro_schema(avro)
        # As in Java, bytes that are not part of a record are written without their length.
        self._is_bytes = avro.root.kind == "bytes"
        self._check = write_check(avro.root)
        self._codec = codec_of(avro.root)

    def write(self, value: Any) -> bytes:
        """Prefix and value. Raises `ValueNotSerializableError`."""
        if type(value) is not dict:
            value = plain_value(value)
        if self._is_bytes:
            if not isinstance(value, bytes | bytearray | memoryview):
                raise ValueNotSerializableError(f"the schema is bytes, but the value is {type(value).__name__}")
            return self._prefix + bytes(value)
        try:
            if self._codec is not None:
                try:
                    return self._codec.encode(value, self._prefix)
                except UnusualValueError:
                    pass  # fastavro knows what to do
            if self._check is not None:
                self._check(value)
            out = BytesIO()
            out.write(self._prefix)
            fastavro.schemaless_writer(out, self._schema, value)
            return out.getvalue()
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, IndexError) as error:
            raise ValueNotSerializableError(f"the value does not fit the schema: {error}") from error


class AvroDeserializer:
    """Reads keys and values as dicts, or as objects of a class. Ids in headers and prefixes are understood."""

    def __init__(
        self,
        registry: RegistryClient,
        reader: str | Schema | type[Any] | None = None,
        *,
        into: type[Any] | None = None,
        use_latest: bool = False,
        subject_name: SubjectName = topic_subject,
        ignore_rules: bool = False,
    ) -> None:
        """Values are resolved to the `reader` schema, or with `use_latest` to the latest version of the subject; else
        they are as the writer wrote them. `into` is the class of the objects; a class as `reader` is both.
        """
        if reader is not None and use_latest:
            raise ValueError("reader and use_latest cannot both be set")
        if into is None and isinstance(reader, type):
            into = reader
        self._registry = registry
        self._reader = None if reader is None else _as_schema(reader)
        self._use_latest = use_latest
        self._subject_name = subject_name
        self._contexts = SubjectContexts(subject_name)
        self._ignore_rules = ignore_rules
        self._convert = None if into is None else converter_into(into)
        self._readers: dict[_ReaderKey, _Reader] = {}
        self._columns: ColumnReaders[AvroSchema] | None = None

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
        # The reader's schema depends on the topic only if it is the latest of the topic's subject.
        context = self._contexts.find(topic, is_key)
        key = (frame.schema_id, context, topic, is_key) if self._use_latest else (frame.schema_id, context, "", False)
        reader = self._readers.get(key)
        if reader is None or reader.deadline <= time.monotonic():
            raise NotPreparedError(partial(self._prepare, key))
        return reader.read(data, frame.start)

    def deserialize_column(
        self, topic: str, values: "pa.Array", headers: "pa.Array", is_key: bool
    ) -> DeserializedColumn:
        """The typed column of keys or values. Raises `NotPreparedError`."""
        if self._columns is None:
            from ottla.registry.serde.arrow.column_decoders import avro_decoder
            from ottla.registry.serde.arrow.column_readers import ColumnReaders

            self._columns = ColumnReaders(
                has_indexes=False,
                find_schema=self._written_column,
                find_age=self._age_of,
                find_reader=self._reader_column,
                make_decoder=avro_decoder,
            )
        return self._columns.deserialize_column(topic, values, headers, is_key)

    def _age_of(self, topic: str, is_key: bool, written: "Written", schema: AvroSchema) -> tuple[int, int]:
        subject = self._subject_name(topic, is_key, schema.name)
        found = schema_to_read_with(self._registry, written.schema_id, self._contexts.find(topic, is_key))
        return age_of(self._registry, subject, written.schema_id, found.schema)

    def _written_column(self, topic: str, is_key: bool, written: "Written") -> AvroSchema:
        return self._written(written.schema_id, self._contexts.find(topic, is_key))

    def _written(self, schema_id: SchemaId, context: str | None) -> AvroSchema:
        """The writer's schema."""
        written = schema_to_read_with(self._registry, schema_id, context)
        check_rules(written.schema, is_write=False, ignore_rules=self._ignore_rules)
        return _avro(self._registry, written.schema, written.subject)

    def _reader_column(self, topic: str, is_key: bool, writer: AvroSchema) -> tuple[AvroSchema, float] | None:
        return self._reader_for(self._contexts.find(topic, is_key), topic, is_key, writer)

    def _reader_for(
        self, context: str | None, topic: str, is_key: bool, writer: AvroSchema
    ) -> tuple[AvroSchema, float] | None:
        """The reader's schema, and until when it holds; None if values are read as they were written."""
        if self._reader is not None:
            return _avro(self._registry, self._reader, context), _NEVER
        if not self._use_latest:
            return None
        latest = self._registry.version(self._subject_name(topic, is_key, writer.name))
        deadline = time.monotonic() + self._registry.config.latest_cache_seconds
        return _avro(self._registry, latest.schema, latest.subject), deadline

    def _prepare(self, key: _ReaderKey) -> None:
        schema_id, context, topic, is_key = key
        writer = self._written(schema_id, context)
        reader, deadline = self._reader_for(context, topic, is_key, writer) or (None, _NEVER)
        if reader is not None:
            reasons = reader.incompatibilities(writer)
            if reasons:
                raise ValueNotReadableError(
                    f"the reader's schema cannot read what was written with schema {schema_id}:"
                    f" {reasons[0].path}: {reasons[0].message}"
                )
        prepared = _Reader(
            schema_id=schema_id,
            writer=_fastavro_schema(writer),
            reader=None if reader is None else _fastavro_schema(reader),
            is_bytes=writer.root.kind == "bytes",
            check=read_check(writer.root),
            codec=codec_of(writer.root) if reader is None else None,
            convert=self._convert,
            deadline=deadline,
        )
        keep(self._readers, key, prepared, self._registry)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Reads values that were written with one schema."""

    schema_id: SchemaId
    writer: Any
    reader: Any
    is_bytes: bool
    check: Callable[[bytes, int], None] | None
    codec: ValueCodec | None
    """None if values are resolved to another schema."""
    convert: Callable[[Any], Any] | None
    deadline: float

    def read(self, data: bytes, start: int) -> Any:
        """The value after the prefix. Raises `ValueNotReadableError`."""
        if self.is_bytes:
            return data[start:]
        try:
            value = self._resolved(data, start) if self.codec is None else self.codec.decode(data, start)
        except Exception as error:  # what fastavro raises for bytes that are not of the schema is not documented
            raise ValueNotReadableError(
                f"the bytes are not a value of schema {self.schema_id}: {type(error).__name__}: {error}"
            ) from error
        return value if self.convert is None else self.convert(value)

    def _resolved(self, data: bytes, start: int) -> Any:
        if self.check is not None:
            self.check(data, start)
        source = BytesIO(data)
        source.seek(start)
        return fastavro.schemaless_reader(source, self.writer, self.reader)


def _as_schema(schema: str | Schema | type[Any]) -> Schema:
    if isinstance(schema, Schema):
        if schema.type != AVRO:
            raise ValueError(f"an Avro serializer needs a schema of type {AVRO}, not {schema.type}")
        return schema
    return Schema(text=schema if isinstance(schema, str) else json.dumps(schema_of(schema)))


def _avro(registry: RegistryClient, schema: Schema, subject: str | None) -> AvroSchema:
    if schema.type != AVRO:
        raise ValueNotReadableError(f"the schema has type {schema.type}, not {AVRO}")
    found = parsed(registry, schema, subject)
    if not isinstance(found, AvroSchema):
        violated("the parser of Avro schemas returned a schema of another language")
    return found


def _fastavro_schema(avro: AvroSchema) -> Any:
    try:
        return fastavro.parse_schema(json.loads(avro.resolved_text))
    except Exception as error:  # of several classes without a common one
        raise ValueNotReadableError(f"fastavro cannot use the schema: {type(error).__name__}: {error}") from error
