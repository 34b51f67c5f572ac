"""The option `valueFormat`: decodes values into columns, and handles values that cannot be decoded.

Makes a decoder from options; Spark sends it to executors, and it opens no connection before it decodes. The formats are
in `ottla.registry.serde.arrow`: `json_rows.py`, `kernel_rows.py`, `framed_rows.py` (values with schemas of a registry);
`row_decoding.py` finds bad rows, `dead_letter_sender.py` sends them. Does not need Spark: a schema is passed as text.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ottla.client.options import OptionError
from ottla.model.errors import OttlaError
from ottla.registry.schemas.schema import AVRO, JSON, PROTOBUF, Schema
from ottla.registry.serde.arrow.json_rows import JsonValues
from ottla.registry.serde.arrow.kernel_rows import KernelRows
from ottla.registry.serde.arrow.row_decoding import DecodedRows, RejectedRow, ValueRows, decode_rows
from ottla.spark.values.dead_letter_sender import DeadLetterTopic
from ottla.spark.values.registry_options import (
    REGISTRY_OPTION_NAMES,
    RegistryAddress,
    advice_on_credentials,
    registry_address,
)
from ottla.spark.values.string_values import StringValues
from ottla.spark.values.value_types import (
    ERROR_FIELD,
    RECORD_FIELDS,
    SCHEMA_ID_FIELD,
    arrow_fields,
    checked_record_fields,
    ddl,
    is_record_field,
    spark_type,
)

if TYPE_CHECKING:
    from ottla.registry.serde.arrow.framed_rows import ReaderSchema

# Formats without schemas are used without `framed_rows`: a worker imports all schema languages with it.

_VERSION: Final = "valueSubjectVersion"
_LATEST: Final = "latest"
OPTION_NAMES: Final = frozenset(
    {*REGISTRY_OPTION_NAMES, "valueFormat", "valueSchema", "valueMessage", _VERSION, "mode", "deadLetterTopic"}
)
"""The options of this module, in their usual spelling."""
FORMATS: Final = ("json", "avro", "protobuf", "registry", "string")
MODES: Final = ("failfast", "permissive", "deadletter")
_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "avro": frozenset({AVRO}),
    "json": frozenset({JSON}),
    "protobuf": frozenset({PROTOBUF}),
    "registry": frozenset({AVRO, JSON, PROTOBUF}),
}
"""The types of schemas that values of a format may have in the registry."""


class RejectedRecordError(OttlaError):
    """A value that cannot be decoded, in a query that fails in that case. Names the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOptions:
    """The parsed and checked options."""

    format: str
    mode: str = "failfast"
    value_schema: str | None = None
    """An Avro or Protobuf schema, as text."""
    subject: str | None = None
    """The subject of the values; None if it is not known, because there are several topics."""
    is_subject_given: bool = False
    """Whether an option names the subject, so that it must exist."""
    message: str | None = None
    """The full name of the Protobuf message; None is the first one of the schema."""
    version: int | str = _LATEST
    """The version of the subject that values are resolved to."""
    registry: RegistryAddress | None = None
    """The registry of the schemas; None if values have no ids of schemas."""
    dead_letters: DeadLetterTopic | None = None


def format_options(options: Mapping[str, str]) -> FormatOptions | None:
    """Parses the options; None without `valueFormat`. Raises `OptionError`.

    A `valueSchema` that is the path of a file is read now, so that executors need not have the file.
    """
    given = {name.lower(): value.strip() for name, value in options.items()}
    told = {name: given[name.lower()] for name in OPTION_NAMES if given.get(name.lower())}
    if "valueFormat" not in told:
        if told:
            raise OptionError(f"{min(told)} needs valueFormat: {', '.join(FORMATS)}")
        return None
    format = _choice("valueFormat", told["valueFormat"], FORMATS)
    topic = told.get("deadLetterTopic")
    mode = _choice("mode", told.get("mode", "deadletter" if topic else "failfast"), MODES)
    if (mode == "deadletter") != (topic is not None):
        raise OptionError(
            "mode=deadletter needs a deadLetterTopic"
            if topic is None
            else f"deadLetterTopic cannot be combined with mode={mode}"
        )
    client = {name: value for name, value in given.items() if name.startswith("kafka.")}
    _refuse_misplaced(format, told)
    has_ids = format in ("registry", "protobuf") or "schemaRegistryUrl" in told
    return FormatOptions(
        format=format,
        mode=mode,
        value_schema=_schema_text(told["valueSchema"]) if "valueSchema" in told else None,
        subject=_subject(given, told),
        is_subject_given="valueSubject" in told or _VERSION in told,
        message=told.get("valueMessage"),
        version=_version(told),
        registry=registry_address(told) if has_ids else None,
        dead_letters=None if topic is None else DeadLetterTopic(name=topic, client=client),
    )


def value_schema(options: Mapping[str, str]) -> str:
    """The columns of values as Spark DDL, if the format knows them; otherwise raises `OptionError`."""
    told = format_options(options)
    if told is None:
        raise OptionError("values have no columns without valueFormat")
    return ddl(_known_fields(told))


def decoder_for(options: Mapping[str, str], schema: Any) -> "ValueDecoder | None":
    """The decoder for a query with this schema (a Spark `StructType` or its JSON); None without `valueFormat`.

    Raises `OptionError` for options or a schema that cannot be.
    """
    told = format_options(options)
    if told is None:
        return None
    spark = schema if isinstance(schema, Mapping) else schema.jsonValue()
    decoder = ValueDecoder(options=told, schema=json.dumps(spark), reader=_reader(told))
    decoder.check()
    return decoder


def known_version(options: Mapping[str, str]) -> int | None:
    """The version of the subject that values are resolved to, if it is known; for queries that are planned again."""
    told = format_options(options)
    reader = None if told is None else _reader(told)
    return None if reader is None else reader.version


@dataclass(frozen=True, kw_only=True)
class ValueDecoder:
    """Turns batches with the columns of the connector into batches with those of the query. Can be pickled."""

    options: FormatOptions
    schema: str = field(repr=False)
    """The Spark schema as JSON."""
    reader: "ReaderSchema | None" = field(default=None, repr=False)
    """The schema that values are resolved to. It stays the same as long as the query runs."""

    @property
    def wants_headers(self) -> bool:
        """Whether headers must be read: they may have the id of the schema."""
        return (
            self.options.registry is not None
            or self.options.mode == "deadletter"
            or any(each.name == "_headers" for each in self._fields)
        )

    def check(self) -> None:
        """Raises `OptionError` if the format cannot produce the schema."""
        checked_record_fields(self._fields)
        values = [each for each in self._fields if not is_record_field(each.name)]
        if self.options.format == "string" and (len(values) > 1 or any(each.type != pa.string() for each in values)):
            raise OptionError("valueFormat=string has one column of type STRING, besides the fields of the record")

    def decode(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of a batch; no batch or one. Raises `RejectedRecordError` if a bad row fails the query, and
        `IncompatibleSchemaError` if the schema has changed so that the query cannot read it.
        """
        values, ids = self._values(batch)
        found = self._decoded(values)
        rejected = found.rejected
        errors: pa.Array | None = None
        rows = found.rows
        if rejected and self.options.mode == "failfast":
            raise _rejection(batch, rejected[0], ids) from rejected[0].error
        if rejected and self.options.dead_letters is not None:
            self.options.dead_letters.send(batch, rejected, ids)
            kept = _kept(batch.num_rows, rejected)
            batch, rows = batch.filter(kept), rows.filter(kept)
            ids = None if ids is None else ids.filter(kept)
        elif rejected:
            errors = _reasons(batch.num_rows, rejected)
        if batch.num_rows:
            yield self._columns(batch, rows, errors, ids)

    def _values(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array | None]:
        """The values, with their frames if they have any, and the ids of their schemas."""
        values = batch.column("value")
        if self.options.registry is None:
            return values, None
        from ottla.registry.serde.arrow.framed_rows import schema_ids, with_header_frames

        values = with_header_frames(values, batch.column("headers"))
        return values, schema_ids(values)

    def _decoded(self, values: pa.Array) -> DecodedRows:
        if not self._has_value_fields and ERROR_FIELD not in (each.name for each in self._fields):
            return DecodedRows(rows=pa.array([{}] * len(values), pa.struct([])), rejected=[])
        with advice_on_credentials():
            return decode_rows(self._format, values)

    def _columns(
        self, batch: pa.RecordBatch, rows: pa.StructArray, errors: pa.Array | None, ids: pa.Array | None
    ) -> pa.RecordBatch:
        values = dict(zip((each.name for each in rows.type), rows.flatten(), strict=True))
        texts = {ERROR_FIELD: errors, SCHEMA_ID_FIELD: ids}
        columns = []
        for each in self._fields:
            if each.name in texts:
                text = texts[each.name]
                columns.append(pa.nulls(batch.num_rows, pa.string()) if text is None else text)
            elif each.name in RECORD_FIELDS:
                name, kind = RECORD_FIELDS[each.name]
                column = batch.column(name)
                columns.append(column if column.type.equals(kind) else column.cast(kind))
            else:
                columns.append(values[each.name])
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(self._fields))

    @cached_property
    def _fields(self) -> list[pa.Field]:
        return arrow_fields(json.loads(self.schema))

    @property
    def _has_value_fields(self) -> bool:
        return any(not is_record_field(each.name) for each in self._fields)

    @cached_property
    def _format(self) -> ValueRows:
        kind = pa.struct([each for each in self._fields if not is_record_field(each.name)])
        told = self.options
        if told.registry is not None:
            from ottla.registry.serde.arrow.framed_rows import FramedRows

            return FramedRows(
                told.registry.client(), kind, self.reader, subject=told.subject, types=_TYPES[told.format]
            )
        if told.format == "json":
            return JsonValues(kind)
        if self.reader is None:
            return StringValues(kind)
        from ottla.registry.serde.arrow.framed_rows import kernel_of

        return KernelRows(kernel_of(self.reader), kind)

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "schema": self.schema, "reader": self.reader}


def _kept(count: int, rejected: list[RejectedRow]) -> pa.Array:
    bad = {each.index for each in rejected}
    return pa.array([index not in bad for index in range(count)])


def _reasons(count: int, rejected: list[RejectedRow]) -> pa.Array:
    reasons: list[str | None] = [None] * count
    for each in rejected:
        # A reason quotes the value, which may be any bytes; lone surrogates are not valid UTF-8.
        reasons[each.index] = str(each.error).encode(errors="replace").decode()
    return pa.array(reasons, pa.string())


def _rejection(batch: pa.RecordBatch, rejected: RejectedRow, ids: pa.Array | None) -> RejectedRecordError:
    topic, partition, offset = (batch.column(name)[rejected.index] for name in ("topic", "partition", "offset"))
    schema_id = None if ids is None else ids[rejected.index].as_py()
    schema = "" if schema_id is None else f" (schema {schema_id})"
    return RejectedRecordError(
        f"record at offset {offset} of {topic}-{partition}{schema} cannot be decoded: {rejected.error}. "
        "Set mode=permissive to read it as nulls with the reason in _error, or deadLetterTopic to keep it in a topic"
    )


def _known_fields(told: FormatOptions) -> list[pa.Field]:
    if told.format == "string":
        return [pa.field("value", pa.string())]
    if told.format == "json" and told.registry is None:
        raise OptionError('valueFormat=json needs a schema: .schema("id STRING, amount DOUBLE")')
    reader = _reader(told)
    if reader is None and told.registry is None:
        raise OptionError("valueFormat=avro needs valueSchema, an Avro schema as JSON or a file")
    if reader is None and told.subject is None:
        raise OptionError("the columns of values are not known; set .schema(…), valueSubject or valueSchema")
    if reader is None:
        raise OptionError(f"the registry has no subject {told.subject}; set valueSubject, valueSchema or .schema(…)")
    from ottla.registry.serde.arrow.framed_rows import reader_type

    try:
        return [pa.field(each.name, spark_type(each.type)) for each in reader_type(reader)]
    except OttlaError as error:
        where = "valueSchema" if reader.version is None else f"version {reader.version} of subject {reader.subject}"
        raise OptionError(f"{where}: {error}") from error


def _reader(told: FormatOptions) -> "ReaderSchema | None":
    """The schema that values are resolved to; None if there is none. Raises `OptionError`."""
    if told.format == "string" or (told.format == "json" and told.registry is None):
        return None
    from ottla.registry.serde.arrow.framed_rows import ReaderSchema, reader_type, registered_reader

    if told.value_schema is not None:
        given = ReaderSchema(
            schema=Schema(text=told.value_schema, type=PROTOBUF if told.format == "protobuf" else AVRO),
            subject=told.subject,
            message=told.message,
        )
        try:
            reader_type(given)
        except OttlaError as error:
            raise OptionError(f"valueSchema: {error}") from error
        return given
    if told.registry is None:
        raise OptionError("valueFormat=avro needs valueSchema, an Avro schema as JSON or a file")
    if told.subject is None:
        return None
    with advice_on_credentials():
        found = registered_reader(told.registry.client(), told.subject, told.version, told.message)
    if found is None and told.is_subject_given:
        raise OptionError(f"the registry has no version {told.version} of subject {told.subject}")
    if found is not None and found.schema.type not in _TYPES[told.format]:
        raise OptionError(
            f"subject {told.subject} has a schema of type {found.schema.type}, but valueFormat is {told.format}"
        )
    return found


def _choice(name: str, text: str, choices: tuple[str, ...]) -> str:
    if text.lower() not in choices:
        raise OptionError(f"{name}={text} is not one of {', '.join(choices)}")
    return text.lower()


def _refuse_misplaced(format: str, told: Mapping[str, str]) -> None:
    registry = sorted(name for name in told if name in REGISTRY_OPTION_NAMES or name == _VERSION)
    if registry and format == "string":
        raise OptionError(f"{registry[0]} is for values with schemas of a registry, not for valueFormat=string")
    if registry and "schemaRegistryUrl" not in told:
        raise OptionError(f"{registry[0]} needs schemaRegistryUrl, such as http://host:port")
    if "valueSchema" in told and format in ("json", "string"):
        raise OptionError(f"valueSchema is an Avro or Protobuf schema; with valueFormat={format}, use .schema(…)")
    if "valueSchema" in told and _VERSION in told:
        raise OptionError(f"valueSchema and {_VERSION} exclude each other; remove one of them")


def _version(told: Mapping[str, str]) -> int | str:
    text = told.get(_VERSION, _LATEST)
    if text != _LATEST and not (text.isdecimal() and int(text) > 0):
        raise OptionError(f"{_VERSION}={text} is neither {_LATEST} nor the number of a version")
    return text if text == _LATEST else int(text)


def _schema_text(given: str) -> str:
    if given.lstrip()[:1] in ("{", "[", '"') or "\n" in given or ";" in given:
        return given
    try:
        return Path(given).read_text()
    except (OSError, ValueError) as error:
        raise OptionError(f"valueSchema={given} is neither a schema nor a file that can be read: {error}") from None


def _subject(given: Mapping[str, str], told: Mapping[str, str]) -> str | None:
    if "valueSubject" in told:
        return told["valueSubject"]
    topics = [each for each in given.get("subscribe", "").split(",") if each.strip()]
    return f"{topics[0].strip()}-value" if len(topics) == 1 else None
