"""The option `valueFormat`: records whose values become columns, and what happens to those that cannot.

Options in, a decoder out, which Spark sends to its executors: it opens nothing before it decodes. The formats are in
`json_values.py`, `avro_values.py`, `registry_values.py` and `string_values.py`; finding bad rows in `rejected_rows.py`;
sending them away in `dead_letter_sender.py`. No Spark is needed here: its schema is taken as the text that it can be.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ottla.client.options import OptionError
from ottla.model.errors import OttlaError
from ottla.spark.values.avro_schemas import AvroSchema, avro_schema
from ottla.spark.values.dead_letter_sender import DeadLetterTopic
from ottla.spark.values.json_schemas import json_schema_fields
from ottla.spark.values.json_values import JsonValues
from ottla.spark.values.rejected_rows import DecodedRows, RejectedRecordError, RejectedRow, ValueRows, decode_rows
from ottla.spark.values.schema_registry import RegistryAddress, SchemaRegistry
from ottla.spark.values.string_values import StringValues
from ottla.spark.values.value_types import (
    ERROR_FIELD,
    RECORD_FIELDS,
    arrow_fields,
    checked_record_fields,
    ddl,
    is_record_field,
)

OPTION_NAMES: Final = frozenset(
    {
        "valueFormat",
        "valueSchema",
        "valueSubject",
        "schemaRegistryUrl",
        "schemaRegistryUser",
        "schemaRegistryPassword",
        "schemaRegistryTimeoutMs",
        "mode",
        "deadLetterTopic",
    }
)
"""The options that are read here, as people write them."""
FORMATS: Final = ("json", "avro", "registry", "string")
MODES: Final = ("failfast", "permissive", "deadletter")


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOptions:
    """What the options said, checked as a whole."""

    format: str
    mode: str = "failfast"
    value_schema: str | None = None
    """An Avro schema, as text."""
    subject: str | None = None
    registry: RegistryAddress | None = None
    dead_letters: DeadLetterTopic | None = None


def format_options(options: Mapping[str, str]) -> FormatOptions | None:
    """Reads the options; None without `valueFormat`. Raises `OptionError`.

    A `valueSchema` that is the path of a file is read now, so that executors need not have the file.
    """
    given = {name.lower(): value.strip() for name, value in options.items()}
    told = {name: given[name.lower()] for name in OPTION_NAMES if given.get(name.lower())}
    if "valueFormat" not in told:
        if told:
            raise OptionError(f"{min(told)} has a meaning only together with valueFormat: {', '.join(FORMATS)}")
        return None
    format = _choice("valueFormat", told["valueFormat"], FORMATS)
    topic = told.get("deadLetterTopic")
    mode = _choice("mode", told.get("mode", "deadletter" if topic else "failfast"), MODES)
    if (mode == "deadletter") != (topic is not None):
        raise OptionError(
            "mode=deadletter needs a deadLetterTopic" if topic is None else f"deadLetterTopic excludes mode={mode}"
        )
    client = {name: value for name, value in given.items() if name.startswith("kafka.")}
    _refuse_misplaced(format, told)
    return FormatOptions(
        format=format,
        mode=mode,
        value_schema=_schema_text(told["valueSchema"]) if "valueSchema" in told else None,
        subject=_subject(given, told),
        registry=_registry_address(told) if format == "registry" else None,
        dead_letters=None if topic is None else DeadLetterTopic(name=topic, client=client),
    )


def value_schema(options: Mapping[str, str]) -> str:
    """The columns of values, as Spark's schema text, where the format itself knows them; else raises `OptionError`."""
    told = format_options(options)
    if told is None:
        raise OptionError("without valueFormat, values have no columns of their own")
    return ddl(_known_fields(told))


def decoder_for(options: Mapping[str, str], schema: Any) -> "ValueDecoder | None":
    """The decoder for a query that wants `schema` (Spark's `StructType`, or its JSON); None without `valueFormat`.

    Raises `OptionError` for options or a schema that cannot be.
    """
    told = format_options(options)
    if told is None:
        return None
    spark = schema if isinstance(schema, Mapping) else schema.jsonValue()
    decoder = ValueDecoder(options=told, schema=json.dumps(spark))
    decoder.check()
    return decoder


@dataclass(frozen=True, kw_only=True)
class ValueDecoder:
    """Turns batches of records, with the connector's columns, into batches of the query's own; can be pickled."""

    options: FormatOptions
    schema: str = field(repr=False)
    """Spark's schema, as its own JSON."""

    @property
    def wants_headers(self) -> bool:
        """Whether the records must come with their headers."""
        return self.options.mode == "deadletter" or any(each.name == "_headers" for each in self._fields)

    def check(self) -> None:
        """Raises `OptionError` for a schema that the format cannot give."""
        checked_record_fields(self._fields)
        values = [each for each in self._fields if not is_record_field(each.name)]
        if self.options.format == "string" and (len(values) > 1 or any(each.type != pa.string() for each in values)):
            raise OptionError("valueFormat=string gives one column of type STRING, and the fields of the record itself")
        if self.options.format == "avro" and self.options.value_schema is not None:
            _avro(self.options.value_schema)

    def decode(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of a batch; none, or one batch. Raises `RejectedRecordError` if a bad row must end the query."""
        found = self._decoded(batch)
        rejected = found.rejected
        errors: pa.Array | None = None
        rows = found.rows
        if rejected and self.options.mode == "failfast":
            raise _rejection(batch, rejected[0]) from rejected[0].error
        if rejected and self.options.dead_letters is not None:
            self.options.dead_letters.send(batch, rejected)
            kept = _kept(batch.num_rows, rejected)
            batch, rows = batch.filter(kept), rows.filter(kept)
        elif rejected:
            errors = _reasons(batch.num_rows, rejected)
        if batch.num_rows:
            yield self._columns(batch, rows, errors)

    def _decoded(self, batch: pa.RecordBatch) -> DecodedRows:
        format = self._format
        if format.type.num_fields == 0 and ERROR_FIELD not in (each.name for each in self._fields):
            return DecodedRows(rows=pa.array([{}] * batch.num_rows, format.type), rejected=[])
        return decode_rows(format, batch.column("value"))

    def _columns(self, batch: pa.RecordBatch, rows: pa.StructArray, errors: pa.Array | None) -> pa.RecordBatch:
        values = dict(zip((each.name for each in self._format.type), rows.flatten(), strict=True))
        columns = []
        for each in self._fields:
            if each.name == ERROR_FIELD:
                columns.append(pa.nulls(batch.num_rows, pa.string()) if errors is None else errors)
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

    @cached_property
    def _format(self) -> ValueRows:
        kind = pa.struct([each for each in self._fields if not is_record_field(each.name)])
        return _MAKE[self.options.format](self.options, kind)

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "schema": self.schema}


def _kept(count: int, rejected: list[RejectedRow]) -> pa.Array:
    bad = {each.index for each in rejected}
    return pa.array([index not in bad for index in range(count)])


def _reasons(count: int, rejected: list[RejectedRow]) -> pa.Array:
    reasons: list[str | None] = [None] * count
    for each in rejected:
        # A reason quotes the value, which may be any bytes; lone surrogates are no UTF-8.
        reasons[each.index] = str(each.error).encode(errors="replace").decode()
    return pa.array(reasons, pa.string())


def _rejection(batch: pa.RecordBatch, rejected: RejectedRow) -> RejectedRecordError:
    topic, partition, offset = (batch.column(name)[rejected.index] for name in ("topic", "partition", "offset"))
    return RejectedRecordError(
        f"the record at offset {offset} of partition {partition} of topic {topic} cannot be decoded: {rejected.error}. "
        "The option mode=permissive reads it as nulls with a reason in _error; deadLetterTopic puts such records aside"
    )


def _known_fields(told: FormatOptions) -> list[pa.Field]:
    if told.format == "string":
        return [pa.field("value", pa.string())]
    if told.format == "json":
        raise OptionError('valueFormat=json needs a schema: .schema("id STRING, amount DOUBLE")')
    if told.value_schema is not None:
        return _avro(told.value_schema).fields
    if told.format == "avro":
        raise OptionError("valueFormat=avro needs valueSchema, the Avro schema as JSON or the path of a file with it")
    if told.subject is None:
        raise OptionError("which columns values have is not known: give .schema(…), valueSubject or valueSchema")
    assert told.registry is not None
    newest = SchemaRegistry(told.registry).newest(told.subject)
    if newest.kind == "JSON":
        return json_schema_fields(newest.text)
    if newest.kind != "AVRO":
        raise OptionError(f"the subject {told.subject} is of type {newest.kind}, which is not read here")
    return avro_schema(newest.text, newest.references).fields


def _avro(text: str) -> AvroSchema:
    try:
        return avro_schema(text)
    except ImportError as error:
        raise OptionError("Avro needs the package fastavro: pip install 'ottla[spark]'") from error
    except OttlaError as error:
        raise OptionError(f"valueSchema: {error}") from error


def _avro_format(told: FormatOptions, kind: pa.DataType) -> ValueRows:
    from ottla.spark.values.avro_values import AvroValues

    if told.value_schema is None:
        raise OptionError("valueFormat=avro needs valueSchema, the Avro schema as JSON or the path of a file with it")
    return AvroValues(_avro(told.value_schema), kind)


_registries: Final[dict[RegistryAddress, SchemaRegistry]] = {}
"""Workers live longer than tasks: what one task asked a registry, the next one need not."""


def _registry_format(told: FormatOptions, kind: pa.DataType) -> ValueRows:
    from ottla.spark.values.registry_values import RegistryValues

    assert told.registry is not None
    registry = _registries.setdefault(told.registry, SchemaRegistry(told.registry))
    return RegistryValues(registry, kind, None if told.value_schema is None else _avro(told.value_schema))


_MAKE: Final[Mapping[str, Callable[[FormatOptions, pa.DataType], ValueRows]]] = {
    "json": lambda told, kind: JsonValues(kind),
    "string": lambda told, kind: StringValues(kind),
    "avro": _avro_format,
    "registry": _registry_format,
}


def _choice(name: str, text: str, choices: tuple[str, ...]) -> str:
    if text.lower() not in choices:
        raise OptionError(f"{name}={text} is not allowed; it takes one of {', '.join(choices)}")
    return text.lower()


def _refuse_misplaced(format: str, told: Mapping[str, str]) -> None:
    registry = sorted(name for name in told if name.startswith("schemaRegistry") or name == "valueSubject")
    if registry and format != "registry":
        raise OptionError(f"{registry[0]} has a meaning only with valueFormat=registry, not {format}")
    if "valueSchema" in told and format not in ("avro", "registry"):
        raise OptionError(f"valueSchema is an Avro schema; with valueFormat={format}, use .schema(…)")


def _schema_text(given: str) -> str:
    if given.lstrip()[:1] in ("{", "[", '"'):
        return given
    try:
        return Path(given).read_text()
    except (OSError, ValueError) as error:
        raise OptionError(
            f"valueSchema={given} is neither an Avro schema nor a file that can be read: {error}"
        ) from None


def _subject(given: Mapping[str, str], told: Mapping[str, str]) -> str | None:
    if "valueSubject" in told:
        return told["valueSubject"]
    topics = [each for each in given.get("subscribe", "").split(",") if each.strip()]
    return f"{topics[0].strip()}-value" if len(topics) == 1 else None


def _registry_address(told: Mapping[str, str]) -> RegistryAddress:
    urls = tuple(each.strip() for each in told.get("schemaRegistryUrl", "").split(",") if each.strip())
    if not urls or not all(each.startswith(("http://", "https://")) for each in urls):
        raise OptionError("valueFormat=registry needs schemaRegistryUrl, as http://host:port")
    user, password = told.get("schemaRegistryUser"), told.get("schemaRegistryPassword", "")
    timeout = told.get("schemaRegistryTimeoutMs", "30000")
    if not timeout.isdecimal() or int(timeout) == 0:
        raise OptionError(f"schemaRegistryTimeoutMs={timeout} is not allowed; it takes a number of milliseconds")
    return RegistryAddress(
        urls=urls, credentials=None if user is None else f"{user}:{password}", timeout_ms=int(timeout)
    )
