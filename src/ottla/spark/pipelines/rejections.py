"""Parts what is wrong from what is right behind each view, and makes dead letters of what is wrong.

A row is rejected if its column `_rejected` says why. Reading a record sets it, an expectation that does not hold does,
`rejecting` does, and a SQL step may: a text in a column of that name is a reason. Dead letters are written by a query
of their own, through the exactly-once sink.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.client.parallel import dead_letters
from ottla.model.errors import MisuseError
from ottla.spark.pipelines.columns import ORIGIN, REJECTED, is_own
from ottla.spark.pipelines.parsing import rejection

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FAILED_EXPECTATION: Final = "failed expectation: "
"""How the reason of a row begins that is not as expected; several are parted by semicolons."""
_FIELDS: Final = ("reason", "error", "stack", "row")


def with_expectations(rows: "DataFrame", view: str, expected: Mapping[str, str]) -> "DataFrame":
    """The rows with `_rejected` where one of the conditions does not hold, or is null; a reason that is there stays."""
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
    """The rows that nothing is wrong with. If the others are not kept anywhere, the first of them ends the query."""
    from pyspark.sql import functions as F

    if REJECTED not in rows.columns:
        return rows
    good = F.col(REJECTED).isNull()
    if not is_kept:
        words = [F.lit(f"a row of {view} was rejected: "), F.coalesce(F.col(f"{REJECTED}.reason"), F.lit("no reason"))]
        if rows.columns.count(ORIGIN) == 1:
            words += [
                F.lit("; it is offset "),
                F.col(f"{ORIGIN}.offset").cast("string"),
                F.lit(" of "),
                F.concat_ws("-", f"{ORIGIN}.topic", f"{ORIGIN}.partition"),
            ]
        words.append(F.lit(". With [dead_letters] in pipeline.toml the pipeline puts such rows aside and goes on."))
        good = F.when(good, F.lit(True)).otherwise(F.raise_error(F.concat(*words)).cast("boolean"))
    return rows.where(good).drop(REJECTED)


def dead_letter_rows(rows: "DataFrame", view: str, pipeline: str) -> "DataFrame":
    """The rejected rows of a view as records: key and value as they came, the story in headers.

    Where the record is not known any more, the value is the row as JSON.
    """
    from pyspark.sql import functions as F

    rejected = rows.where(F.col(REJECTED).isNotNull())
    plain = [name for name in rows.columns if not is_own(name)]
    as_json = F.coalesce(F.col(f"{REJECTED}.row"), F.to_json(F.struct(*(F.col(f"`{name}`") for name in plain))))
    story = {
        dead_letters.REASON: F.col(f"{REJECTED}.reason"),
        dead_letters.ERROR: F.col(f"{REJECTED}.error"),
        dead_letters.STACK: F.col(f"{REJECTED}.stack"),
        dead_letters.STEP: F.lit(view),
        dead_letters.PIPELINE: F.lit(pipeline),
    }
    if rows.columns.count(ORIGIN) != 1:
        nothing = F.lit(None).cast("binary")
        return rejected.select(
            nothing.alias("key"), as_json.cast("binary").alias("value"), _headers(story).alias("headers")
        )
    has_origin = F.col(ORIGIN).isNotNull()
    story |= {
        dead_letters.ORIGIN_TOPIC: F.col(f"{ORIGIN}.topic"),
        dead_letters.ORIGIN_PARTITION: F.col(f"{ORIGIN}.partition").cast("string"),
        dead_letters.ORIGIN_OFFSET: F.col(f"{ORIGIN}.offset").cast("string"),
        dead_letters.ORIGIN_TIMESTAMP: F.unix_millis(f"{ORIGIN}.timestamp").cast("string"),
    }
    return rejected.select(
        F.col(f"{ORIGIN}.key").alias("key"),
        F.when(has_origin, F.col(f"{ORIGIN}.value")).otherwise(as_json.cast("binary")).alias("value"),
        F.concat(_older(story), _headers(story)).alias("headers"),
    )


def _headers(story: Mapping[str, "Column"]) -> "Column":
    from pyspark.sql import functions as F

    each = [F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in story.items()]
    return F.filter(F.array(*each), lambda header: header["value"].isNotNull())


def _older(story: Mapping[str, "Column"]) -> "Column":
    """The record's own headers, without an older story."""
    from pyspark.sql import functions as F

    nothing = F.array().cast("ARRAY<STRUCT<key: STRING, value: BINARY>>")
    return F.filter(F.coalesce(F.col(f"{ORIGIN}.headers"), nothing), lambda header: ~header["key"].isin(*story))


def _with_struct(rows: "DataFrame", view: str) -> "DataFrame":
    """The rows with `_rejected` as it should be: a step may write just a text there."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructType

    if REJECTED not in rows.columns:
        return rows
    kind = rows.schema[REJECTED].dataType
    if isinstance(kind, StringType):
        return rows.withColumn(REJECTED, rejection(F.col(REJECTED)))
    if isinstance(kind, StructType) and tuple(kind.names) == _FIELDS:
        return rows
    raise MisuseError(f"{view}: the column {REJECTED} must be a text with the reason, not {kind.simpleString()}")
