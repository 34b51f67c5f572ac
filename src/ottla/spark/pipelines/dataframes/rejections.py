"""Separates rejected rows from good ones after each view, and turns rejected rows into dead letters.

A row is rejected if its column `_rejected` is set: by a record that cannot be decoded, by an expectation that is not
met, by `rejecting`, or by a SQL step that writes a reason into a column of that name. A separate query writes the dead
letters, through the exactly-once sink.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.model import dead_letters
from ottla.model.errors import MisuseError
from ottla.spark.pipelines.dataframes.added_columns import ORIGIN, REJECTED, is_own
from ottla.spark.pipelines.dataframes.record_rows import rejection

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FAILED_EXPECTATION: Final = "failed expectation: "
"""The beginning of the reason if expectations are not met; several are separated by semicolons."""
_FIELDS: Final = ("reason", "error", "stack", "row")


def with_expectations(rows: "DataFrame", view: str, expected: Mapping[str, str]) -> "DataFrame":
    """The rows with `_rejected` set where a condition is false or null; an earlier reason stays."""
    from pyspark.sql import functions as F

    rows = _with_struct(rows, view)
    if not expected:
        return rows
    failed = F.concat_ws(
        "; ",
        *(
            F.when(~F.coalesce(F.expr(condition), F.lit(False)), F.lit(reason))
            for reason, condition in expected.items()
        ),
    )
    reason = F.when(failed != "", F.concat(F.lit(FAILED_EXPECTATION), failed))
    found = F.coalesce(F.col(REJECTED), rejection(reason)) if REJECTED in rows.columns else rejection(reason)
    return rows.withColumn(REJECTED, found)


def good_rows(rows: "DataFrame", view: str, *, is_kept: bool) -> "DataFrame":
    """The rows that are not rejected. Without dead letters (`is_kept`), the first rejected row fails the query."""
    from pyspark.sql import functions as F

    if REJECTED not in rows.columns:
        return rows
    good = F.col(REJECTED).isNull()
    if not is_kept:
        words = [F.lit(f"a row of {view} was rejected: "), F.coalesce(F.col(f"{REJECTED}.reason"), F.lit("no reason"))]
        if rows.columns.count(ORIGIN) == 1:
            words += [
                F.lit("; it was read from offset "),
                F.col(f"{ORIGIN}.offset").cast("string"),
                F.lit(" of "),
                F.concat_ws("-", f"{ORIGIN}.topic", f"{ORIGIN}.partition"),
            ]
        words.append(F.lit(". Add [dead_letters] to pipeline.toml to write rejected rows to a topic and continue."))
        good = F.when(good, F.lit(True)).otherwise(F.raise_error(F.concat(*words)).cast("boolean"))
    return rows.where(good).drop(REJECTED)


def dead_letter_rows(rows: "DataFrame", view: str, pipeline: str) -> "DataFrame":
    """The rejected rows of a view as records: original key and value, with the reason in headers.

    If the original record is not known, the value is the row as JSON.
    """
    from pyspark.sql import functions as F

    rejected = rows.where(F.col(REJECTED).isNotNull())
    plain = [name for name in rows.columns if not is_own(name)]
    as_json = F.coalesce(F.col(f"{REJECTED}.row"), F.to_json(F.struct(*(F.col(f"`{name}`") for name in plain))))
    fields = {
        dead_letters.MESSAGE: F.col(f"{REJECTED}.reason"),
        dead_letters.EXCEPTION: F.col(f"{REJECTED}.error"),
        dead_letters.STACKTRACE: F.col(f"{REJECTED}.stack"),
        dead_letters.STEP: F.lit(view),
        dead_letters.PIPELINE: F.lit(pipeline),
    }
    if rows.columns.count(ORIGIN) != 1:
        nothing = F.lit(None).cast("binary")
        return rejected.select(
            nothing.alias("key"), as_json.cast("binary").alias("value"), _headers(fields).alias("headers")
        )
    has_origin = F.col(ORIGIN).isNotNull()
    fields |= {
        dead_letters.TOPIC: F.col(f"{ORIGIN}.topic"),
        dead_letters.PARTITION: F.col(f"{ORIGIN}.partition").cast("string"),
        dead_letters.OFFSET: F.col(f"{ORIGIN}.offset").cast("string"),
        dead_letters.TIMESTAMP: F.unix_millis(f"{ORIGIN}.timestamp").cast("string"),
        dead_letters.SCHEMA_ID: F.col(f"{ORIGIN}.schema_id"),
    }
    return rejected.select(
        F.col(f"{ORIGIN}.key").alias("key"),
        F.when(has_origin, F.col(f"{ORIGIN}.value")).otherwise(as_json.cast("binary")).alias("value"),
        F.concat(_older(fields), _headers(fields)).alias("headers"),
    )


def _headers(fields: Mapping[str, "Column"]) -> "Column":
    from pyspark.sql import functions as F

    each = [F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in fields.items()]
    return F.filter(F.array(*each), lambda header: header["value"].isNotNull())


def _older(fields: Mapping[str, "Column"]) -> "Column":
    """The headers of the record, without those of an earlier dead letter."""
    from pyspark.sql import functions as F

    nothing = F.array().cast("ARRAY<STRUCT<key: STRING, value: BINARY>>")
    return F.filter(F.coalesce(F.col(f"{ORIGIN}.headers"), nothing), lambda header: ~header["key"].isin(*fields))


def _with_struct(rows: "DataFrame", view: str) -> "DataFrame":
    """The rows with `_rejected` as a struct: a step may write just the reason as a string."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructType

    if REJECTED not in rows.columns:
        return rows
    kind = rows.schema[REJECTED].dataType
    if isinstance(kind, StringType):
        return rows.withColumn(REJECTED, rejection(F.col(REJECTED)))
    if isinstance(kind, StructType) and tuple(kind.names) == _FIELDS:
        return rows
    raise MisuseError(f"{view}: the column {REJECTED} must be a string with the reason, not {kind.simpleString()}")
