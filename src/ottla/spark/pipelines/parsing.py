"""Records as rows: the value's fields as columns, the record as `_origin`, and why it could not be read as `_rejected`.

JSON, Avro and the schema registry's values are decoded by the data source, whose option `valueFormat` is in
`value_format.py`; text and bytes here.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.pipelines.columns import ORIGIN, ORIGIN_TYPE, REJECTED, REJECTED_TYPE
from ottla.spark.pipelines.project import Source

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DECODED_BY_SOURCE: Final = ("json", "avro", "registry")
"""Formats of values that the data source decodes."""
_RECORD_COLUMNS: Final = (
    "_topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP, _key BINARY, _value BINARY, "
    "_headers ARRAY<STRUCT<key: STRING, value: BINARY>>, _error STRING"
)
"""How the data source names what belongs to the record, beside the fields of its value."""


def parsed_rows(records: "DataFrame", source: Source) -> "DataFrame":
    """The rows of records that have the connector's columns, headers included, with `_origin` and `_rejected`."""
    return _PARSERS[source.format](records.withColumn(ORIGIN, _origin()))


def decoded_rows(reader: Any, source: Source, schema: str | None) -> "DataFrame":
    """The rows of a topic whose values the data source decodes, with `_origin` and `_rejected`."""
    from pyspark.sql import functions as F

    from ottla.spark.values.value_format import value_schema

    options = {"valueFormat": source.format, "mode": "permissive"}
    if source.format == "avro":
        options["valueSchema"] = schema or ""
    if source.registry is not None:
        options["schemaRegistryUrl"] = source.registry
    fields = schema
    if source.format == "avro" or schema is None:
        fields = value_schema(options | {"subscribe": source.topic or ""})
    rows = reader.options(**options).schema(f"{fields}, {_RECORD_COLUMNS}").load()
    names = ("_topic", "_partition", "_offset", "_timestamp", "_key", "_value", "_headers")
    reason = F.when(F.col("_value").isNull(), F.lit("the record has no value")).otherwise(F.col("_error"))
    return rows.withColumns({ORIGIN: F.struct(*names).cast(ORIGIN_TYPE), REJECTED: rejection(reason)}).drop(
        *names, "_error"
    )


def _origin() -> "Column":
    from pyspark.sql import functions as F

    names = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    return F.struct(*names).cast(ORIGIN_TYPE)


def _string(records: "DataFrame") -> "DataFrame":
    """Key and value as text; bytes that are no UTF-8 are a reason."""
    from pyspark.sql import functions as F

    # Null is neither valid nor invalid, and no reason.
    reason = F.when(~F.is_valid_utf8(F.col("value").cast("string")), F.lit("the value is no UTF-8"))
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
    """A rejection for the rows where there is a reason."""
    from pyspark.sql import functions as F

    nothing = F.lit(None).cast("string")
    story = F.struct(reason.alias("reason"), nothing.alias("error"), nothing.alias("stack"), nothing.alias("row"))
    return F.when(reason.isNotNull(), story).cast(REJECTED_TYPE)


_PARSERS: Final[dict[str, Callable[["DataFrame"], "DataFrame"]]] = {"string": _string, "bytes": _bytes}
