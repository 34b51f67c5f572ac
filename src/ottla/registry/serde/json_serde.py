"""JSON keys and values with schemas of a registry.

    registry = RegistryClient("http://127.0.0.1:8081")
    Producer(value_serializer=JsonSchemaSerializer(registry, Order))
    Consumer("orders", value_deserializer=JsonSchemaDeserializer(registry, into=Order))

A schema is a text, a `Schema` with references, or a class, of which a schema is derived: see `json_values.py`. A
serializer without one uses the class of each value. The name of the record, for subjects, is the schema's `title`.
The first record of a topic or schema asks the registry; after that nothing is asked. Serializers and deserializers may
be shared by threads, producers and consumers.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

import msgspec

from ottla.client.serializers import DeserializedColumn, NotPreparedError
from ottla.client.values import Header
from ottla.registry.schemas.parsed_schema import InvalidSchemaError
from ottla.registry.schemas.schema import JSON, Schema
from ottla.registry.serde.errors import ValueNotReadableError, ValueNotSerializableError
from ottla.registry.serde.framing import SchemaId, guid_header, id_prefix, read_frame
from ottla.registry.serde.json_values import InvalidValueError, JsonValidator, decoder_for, encode, schema_of
from ottla.registry.serde.plain_values import is_class_of_records
from ottla.registry.serde.registry_client import RegistryClient
from ottla.registry.serde.schema_ids import (
    WriteOptions,
    WriteRules,
    age_of,
    check_rules,
    keep,
    schema_to_read_with,
    schema_to_write_with,
)
from ottla.registry.serde.subject_names import SubjectContexts, SubjectName, topic_subject

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.registry.serde.arrow.column_readers import ColumnReaders
    from ottla.registry.serde.arrow.framed_columns import Decode, Written

_ReaderKey = tuple[SchemaId, str | None, str, bool]
"""The id, its context, and topic and is_key if the reader depends on them."""


class JsonSchemaSerializer:
    """Writes dicts, dataclasses, msgspec structs, Pydantic models and other values of JSON."""

    def __init__(
        self,
        registry: RegistryClient,
        schema: str | Schema | type[Any] | None = None,
        *,
        validate: bool = True,
        **options: Unpack[WriteOptions],
    ) -> None:
        """With `validate`, a value that does not match the schema is refused. `WriteRules` has the other options."""
        self.rules: Final = WriteRules(**options)
        self._registry = registry
        self._schema = None if schema is None else _as_schema(schema)
        self._validate = validate
        self._writers: dict[tuple[str, bool, type[Any] | None], _Writer] = {}

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
        if writer is None or (writer.deadline is not None and writer.deadline <= time.monotonic()):
            raise NotPreparedError(partial(self._prepare, topic, is_key, kind))
        return writer.write(value), writer.headers

    def serialize_column(self, topic: str, values: "pa.Array", is_key: bool) -> "tuple[pa.Array, Sequence[Header]]":
        """The bytes of a column and headers to add, value by value. Raises `NotPreparedError`.

        Raises `ValueNotSerializableError` for a value that does not match the schema.
        """
        from ottla.registry.serde.arrow.column_writers import ColumnWriter, json_encoder

        if self._schema is None and self.rules.needs_schema:
            raise ValueNotSerializableError("the serializer has no schema, which tables need; give it one")
        writer = self._writers.get((topic, is_key, None))
        if writer is None or (writer.deadline is not None and writer.deadline <= time.monotonic()):
            raise NotPreparedError(partial(self._prepare, topic, is_key, None))
        columns = ColumnWriter(
            encode=json_encoder(writer.write), prefix=writer.prefix, headers=writer.headers, deadline=0.0
        )
        return columns.write(values)

    def _prepare(self, topic: str, is_key: bool, kind: type[Any] | None) -> None:
        registry, rules, schema = self._registry, self.rules, self._schema
        if kind is not None:
            if not is_class_of_records(kind):
                raise ValueNotSerializableError(
                    f"the serializer has no schema, and {kind.__name__} is not a class that has one; give the"
                    " serializer a schema"
                )
            schema = _as_schema(kind)
        found = schema_to_write_with(
            registry, rules, topic, is_key, schema, None if schema is None else title_of(schema)
        )
        used = found.schema if schema is None or not rules.needs_schema else schema
        validator = _validator(registry, used, found.subject, ValueNotSerializableError) if self._validate else None
        in_header = rules.id_place == "header" and found.guid is not None
        prepared = _Writer(
            validator=validator,
            prefix=b"" if in_header else id_prefix(found.id),
            headers=(guid_header(found.guid, is_key=is_key),) if in_header and found.guid is not None else (),
            deadline=time.monotonic() + registry.config.latest_cache_seconds if rules.use_latest else None,
        )
        keep(self._writers, (topic, is_key, kind), prepared, registry)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writer:
    """Writes values with one schema and id."""

    validator: JsonValidator | None
    prefix: bytes
    headers: Sequence[Header]
    deadline: float | None

    def write(self, value: Any) -> bytes:
        """Prefix and value. Raises `ValueNotSerializableError`."""
        try:
            if self.validator is not None:
                self.validator.check(value)
            return self.prefix + encode(value)
        except InvalidValueError as error:
            raise ValueNotSerializableError(str(error)) from error


class JsonSchemaDeserializer:
    """Reads keys and values as values of JSON, or as objects of a class. Ids in headers and prefixes are understood."""

    def __init__(
        self,
        registry: RegistryClient,
        reader: str | Schema | type[Any] | None = None,
        *,
        into: type[Any] | None = None,
        validate: bool = True,
        use_latest: bool = False,
        subject_name: SubjectName = topic_subject,
        ignore_rules: bool = False,
    ) -> None:
        """With `validate`, values must match the `reader` schema, or with `use_latest` the latest version of the
        subject, else the schema they were written with. `into` is the class of the objects; a class as `reader` is
        both, and what it does not have is left out.
        """
        if reader is not None and use_latest:
            raise ValueError("reader and use_latest cannot both be set")
        if into is None and isinstance(reader, type):
            into = reader
        self._registry = registry
        # The schema of a class permits no other properties, but a class can be read from objects that have them.
        self._reader = None if reader is None or isinstance(reader, type) else _as_schema(reader)
        self._use_latest = use_latest
        self._validate = validate
        self._subject_name = subject_name
        self._contexts = SubjectContexts(subject_name)
        self._ignore_rules = ignore_rules
        self._decode = decoder_for(into)
        self._decode_plain = decoder_for() if into is not None else self._decode
        self._readers: dict[_ReaderKey, _Reader] = {}
        self._columns: ColumnReaders[_ColumnSchema] | None = None
        self._class = into

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
        if reader is None or (reader.deadline is not None and reader.deadline <= time.monotonic()):
            raise NotPreparedError(partial(self._prepare, key))
        return reader.read(memoryview(data)[frame.start :])

    def deserialize_column(
        self, topic: str, values: "pa.Array", headers: "pa.Array", is_key: bool
    ) -> DeserializedColumn:
        """The typed column of keys or values, which are read one by one. Raises `NotPreparedError`."""
        if self._columns is None:
            from ottla.registry.serde.arrow.column_readers import ColumnReaders

            self._columns = ColumnReaders(
                has_indexes=False,
                find_schema=self._written,
                find_age=self._age_of,
                find_reader=self._reader_for,
                make_decoder=self._column_decoder,
            )
        return self._columns.deserialize_column(topic, values, headers, is_key)

    def _age_of(self, topic: str, is_key: bool, written: "Written", found: "_ColumnSchema") -> tuple[int, int]:
        subject = self._subject_name(topic, is_key, title_of(found.schema))
        return age_of(self._registry, subject, written.schema_id, found.schema)

    def _written(self, topic: str, is_key: bool, written: "Written") -> "_ColumnSchema":
        found = schema_to_read_with(self._registry, written.schema_id, self._contexts.find(topic, is_key))
        check_rules(found.schema, is_write=False, ignore_rules=self._ignore_rules)
        if found.schema.type != JSON:
            raise ValueNotReadableError(f"it has type {found.schema.type}, not {JSON}")
        return _ColumnSchema(written.schema_id, found.schema, found.subject, True)

    def _reader_for(self, topic: str, is_key: bool, writer: "_ColumnSchema") -> "tuple[_ColumnSchema, float] | None":
        if self._reader is not None:
            return _ColumnSchema(0, self._reader, self._contexts.find(topic, is_key), True), float("inf")
        if self._class is not None:
            return _ColumnSchema(0, _as_schema(self._class), None, False), float("inf")
        if not self._use_latest:
            return None
        latest = self._registry.version(self._subject_name(topic, is_key, title_of(writer.schema)))
        deadline = time.monotonic() + self._registry.config.latest_cache_seconds
        return _ColumnSchema(0, latest.schema, latest.subject, True), deadline

    def _column_decoder(self, writer: "_ColumnSchema", reader: "_ColumnSchema") -> "tuple[Decode, pa.DataType]":
        from ottla.registry.serde.arrow.column_decoders import json_decoder

        is_newest = self._reader is None and not self._use_latest
        checked = writer if is_newest or not reader.is_checked else reader
        validator = None
        if self._validate:
            validator = _validator(self._registry, checked.schema, checked.subject, ValueNotReadableError)
        read = _Reader(
            schema_id=writer.schema_id,
            validator=validator,
            decode=self._decode_plain,
            decode_plain=None,
            deadline=None,
        ).read
        return json_decoder(reader.schema.text, read)

    def _prepare(self, key: _ReaderKey) -> None:
        schema_id, context, topic, is_key = key
        registry = self._registry
        written = schema_to_read_with(registry, schema_id, context)
        check_rules(written.schema, is_write=False, ignore_rules=self._ignore_rules)
        if written.schema.type != JSON:
            raise ValueNotReadableError(f"schema {schema_id} has type {written.schema.type}, not {JSON}")
        schema, subject = written.schema, written.subject
        deadline: float | None = None
        if self._reader is not None:
            schema, subject = self._reader, context
        elif self._use_latest:
            latest = registry.version(self._subject_name(topic, is_key, title_of(schema)))
            schema, subject = latest.schema, latest.subject
            deadline = time.monotonic() + registry.config.latest_cache_seconds
        validator = _validator(registry, schema, subject, ValueNotReadableError) if self._validate else None
        prepared = _Reader(
            schema_id=schema_id,
            validator=validator,
            decode=self._decode,
            decode_plain=None if validator is None or self._decode is self._decode_plain else self._decode_plain,
            deadline=deadline,
        )
        keep(self._readers, key, prepared, registry)


@dataclass(frozen=True, slots=True)
class _ColumnSchema:
    """A schema of a column."""

    schema_id: SchemaId
    schema: Schema
    subject: str | None
    is_checked: bool
    """Whether values must match it; false for the schema of a class, which permits no other properties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Reads values that were written with one schema."""

    schema_id: SchemaId
    validator: JsonValidator | None
    decode: Callable[[memoryview], Any]
    decode_plain: Callable[[memoryview], Any] | None
    """Reads the value that is validated, if it is not the value that is returned."""
    deadline: float | None

    def read(self, data: memoryview) -> Any:
        """The value in bytes without prefix. Raises `ValueNotReadableError`."""
        try:
            if self.decode_plain is not None and self.validator is not None:
                self.validator.check(self.decode_plain(data))
                return self.decode(data)
            value = self.decode(data)
            if self.validator is not None:
                self.validator.check(value)
            return value
        except InvalidValueError as error:
            raise ValueNotReadableError(f"the bytes are not a value of schema {self.schema_id}: {error}") from error


def _as_schema(schema: str | Schema | type[Any]) -> Schema:
    if isinstance(schema, Schema):
        if schema.type != JSON:
            raise ValueError(f"a JSON Schema serializer needs a schema of type {JSON}, not {schema.type}")
        return schema
    return Schema(text=schema if isinstance(schema, str) else schema_of(schema), type=JSON)


def title_of(schema: Schema) -> str | None:
    """The name of the record. Raises `ValueNotSerializableError`."""
    try:
        value = msgspec.json.decode(schema.text)
    except msgspec.DecodeError as error:
        raise ValueNotSerializableError(f"the schema is not JSON: {error}") from error
    title = value.get("title") if isinstance(value, dict) else None
    return title if isinstance(title, str) else None


def _validator(
    registry: RegistryClient,
    schema: Schema,
    subject: str | None,
    error_class: type[ValueNotSerializableError] | type[ValueNotReadableError],
) -> JsonValidator:
    if schema.type != JSON:
        raise error_class(f"the schema has type {schema.type}, not {JSON}")
    try:
        return JsonValidator(schema.text, registry.references_of(schema, subject))
    except InvalidSchemaError as error:
        raise error_class(str(error)) from error
