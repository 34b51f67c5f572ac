"""A Python function applied to each row of a step: a row on which it raises is rejected, the others are kept."""

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.dataframes.added_columns import (
    ORIGIN,
    REASON_CHARACTERS_MAX,
    REJECTED,
    REJECTED_TYPE,
    STACK_CHARACTERS_MAX,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Row = dict[str, Any]
RowFunction = Callable[[Row], "Row | Iterable[Row] | None"]


def rejecting(rows: "DataFrame", function: RowFunction, schema: str) -> "DataFrame":
    """Calls the function with each row as a dictionary; the result has the columns of `schema` (Spark DDL).

    The function returns a row, several rows, or None for none. A row on which it raises goes to the dead letters, with
    the reason, the stack and the original record; so does a row whose result does not fit the schema. A missing column
    is null.

        def step(spark, orders):
            return rejecting(orders, priced, "id STRING, price DECIMAL(10, 2)")
    """
    from pyspark.sql.types import StructType

    wanted = StructType.fromDDL(schema)
    rejected = StructType.fromDDL(f"{REJECTED} {REJECTED_TYPE}")
    kept = [rows.schema[ORIGIN]] if ORIGIN in rows.columns else []
    return rows.mapInArrow(_Call(function, wanted, rejected), StructType([*wanted.fields, *kept, *rejected.fields]))


class _Call:
    """Runs on executors, pickled with the function. Executors cannot parse DDL, which needs a session."""

    def __init__(self, function: RowFunction, wanted: "StructType", rejected: "StructType") -> None:
        self._function = function
        self._wanted = wanted
        self._rejected = rejected

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from pyspark.sql.pandas.types import to_arrow_schema

        wanted = to_arrow_schema(self._wanted, timezone="UTC")
        rejected = to_arrow_schema(self._rejected).field(0).type
        for batch in batches:
            yield called(batch, self._function, wanted, rejected)


def called(
    batch: "pa.RecordBatch", function: RowFunction, wanted: "pa.Schema", rejected: "pa.DataType"
) -> "pa.RecordBatch":
    """Applies a function to one batch: the wanted columns, then the origin if there is one, then the rejection."""
    import pyarrow as pa

    origin_at = batch.schema.get_field_index(ORIGIN)
    plain = batch if origin_at < 0 else batch.drop_columns([ORIGIN])
    taken: list[int] = []
    good: list[Row] = []
    reasons: list[Row | None] = []
    for at, row in enumerate(plain.to_pylist()):
        try:
            outcome = [_fitting(each, wanted) for each in _rows(function(row))]
        except Exception as error:
            outcome = [{}]
            rejection = _rejection(error)
            reasons.append(rejection if origin_at >= 0 else rejection | {"row": json.dumps(row, default=str)})
        else:
            reasons += [None] * len(outcome)
        good += outcome
        taken += [at] * len(outcome)
    columns = [pa.array([row.get(field.name) for row in good], field.type) for field in wanted]
    names = list(wanted.names)
    if origin_at >= 0:
        columns.append(batch.column(origin_at).take(pa.array(taken, pa.int64())))
        names.append(ORIGIN)
    return pa.RecordBatch.from_arrays([*columns, pa.array(reasons, rejected)], names=[*names, REJECTED])


def _rows(outcome: "Row | Iterable[Row] | None") -> list[Row]:
    if outcome is None:
        return []
    return [dict(outcome)] if isinstance(outcome, Mapping) else [dict(row) for row in outcome]


def _fitting(row: Row, wanted: "pa.Schema") -> Row:
    """The row, if each value has a column and fits its type; raises otherwise."""
    import pyarrow as pa

    for name, value in row.items():
        at = wanted.get_field_index(name)
        if at < 0:
            raise ValueError(
                f"the function returned {name}, which is not a column of its schema: {', '.join(wanted.names)}"
            )
        try:
            pa.scalar(value, wanted.field(at).type)
            # Arrow would truncate it.
            if isinstance(value, float) and pa.types.is_integer(wanted.field(at).type) and not value.is_integer():
                raise ValueError("not an integer")
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise TypeError(f"{name}={value!r} does not fit {wanted.field(at).type}: {error}") from None
    return row


def _rejection(error: Exception) -> Row:
    kind = type(error)
    stack = "".join(traceback.format_exception(error))
    return {
        "reason": (str(error) or kind.__name__)[:REASON_CHARACTERS_MAX],
        "error": f"{kind.__module__}.{kind.__qualname__}",
        "stack": stack[-STACK_CHARACTERS_MAX:],
    }
