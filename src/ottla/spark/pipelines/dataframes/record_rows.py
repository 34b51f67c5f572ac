"""Records as rows: fields of the value as columns, the record as `_origin`, a decoding error as `_rejected`.

The data source decodes JSON, Avro and values of the schema registry (option `valueFormat`, see `value_format.py`);
strings and bytes are decoded here.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.pipelines.dataframes.added_columns import ORIGIN, ORIGIN_TYPE, REJECTED, REJECTED_TYPE
from ottla.spark.pipelines.declaration.project import Source

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DECODED_BY_SOURCE: Final = ("json", "avro", "protobuf", "registry")
"""Value formats that the data source decodes."""
_RECORD_COLUMNS: Final = (
    "_topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP, _key BINARY, _value BINARY, "
    "_headers ARRAY<STRUCT<key: STRING, value: BINARY>>, _schema_id STRING, _error STRING"
)
"""Columns of the data source that belong to the record rather than to its value."""


def parsed_rows(records: "DataFrame", source: Source) -> "DataFrame":
    """Records with the columns of the connector as rows with `_origin` and `_rejected`."""
    return _PARSERS[source.format](records.withColumn(ORIGIN, _origin()))


def decoded_rows(
    reader: Any, source: Source, schema: str | None, registry: str | None, login: Mapping[str, str]
) -> "DataFrame":
    """Records whose values the data source decodes, as rows with `_origin` and `_rejected`.

    `registry` is the URL of the project's schema registry, `login` the options that log in there.
    """
    from pyspark.sql import functions as F

    from ottla.spark.values.registry_options import REGISTRY_OPTION_NAMES
    from ottla.spark.values.value_format import known_version, value_schema

    options = {"valueFormat": source.format, "mode": "permissive"}
    fields = schema
    if source.has_registered_schema:
        options |= {"schemaRegistryUrl": source.registry or registry or "", "valueSubject": source.subject or ""}
        options["valueSubjectVersion"] = "" if source.version is None else str(source.version)
        # The source's own options come last: another registry may have other users.
        own = {name: str(value) for name, value in source.options.items() if name in REGISTRY_OPTION_NAMES}
        options |= {**login, **own}
    elif source.format == "avro":
        options["valueSchema"], fields = schema or "", None
    asked = options | {"subscribe": source.topic or ""}
    if source.has_registered_schema and source.version is None:
        # A table that is read for each micro-batch must not change its columns while the query runs.
        version = known_version(asked)
        options["valueSubjectVersion"] = "" if version is None else str(version)
    if fields is None:
        fields = value_schema(asked | options)
    rows = reader.options(**options).schema(f"{fields}, {_RECORD_COLUMNS}").load()
    names = ("_topic", "_partition", "_offset", "_timestamp", "_key", "_value", "_headers", "_schema_id")
    reason = F.when(F.col("_value").isNull(), F.lit("the record has no value")).otherwise(F.col("_error"))
    return rows.withColumns({ORIGIN: F.struct(*names).cast(ORIGIN_TYPE), REJECTED: rejection(reason)}).drop(
        *names, "_error"
    )


def _origin() -> "Column":
    from pyspark.sql import functions as F

    names = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    return F.struct(*names, F.lit(None).cast("string")).cast(ORIGIN_TYPE)


def _string(records: "DataFrame") -> "DataFrame":
    """Key and value as strings; a value that is not UTF-8 is rejected."""
    from pyspark.sql import functions as F

    # A null value is not rejected.
    reason = F.when(~F.is_valid_utf8(F.col("value").cast("string")), F.lit("the value is not valid UTF-8"))
    return records.select(
        F.col("key").cast("string").alias("key"),
        F.col("value").cast("string").alias("value"),
        ORIGIN,
        rejection(reason).alias(REJECTED),
    )


def _bytes(records: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    return records.select("key", "value", ORIGIN, F.lit(None).cast(REJECTED_TYPE).alias(REJECTED))


def rejection(reason: "Column") -> "Column":
    """The rejection of rows that have a reason."""
    from pyspark.sql import functions as F

    nothing = F.lit(None).cast("string")
    fields = F.struct(reason.alias("reason"), nothing.alias("error"), nothing.alias("stack"), nothing.alias("row"))
    return F.when(reason.isNotNull(), fields).cast(REJECTED_TYPE)


_PARSERS: Final[dict[str, Callable[["DataFrame"], "DataFrame"]]] = {"string": _string, "bytes": _bytes}
