"""The columns that a pipeline adds to views: the record of a row, and why the row was rejected. Pure.

Both begin with an underscore and are never written to a sink. `SELECT *` keeps `_origin`; a step that lists its columns
may include it. `_rejected` is removed after each step: rows that have it go to the dead-letter topic.
"""

from typing import Final

ORIGIN: Final = "_origin"
ORIGIN_TYPE: Final = (
    "STRUCT<topic: STRING, partition: INT, offset: BIGINT, timestamp: TIMESTAMP, key: BINARY, value: BINARY, "
    "headers: ARRAY<STRUCT<key: STRING, value: BINARY>>, schema_id: STRING>"
)
"""The record that a row was read from, unchanged, and the id of its schema if it has one in a registry."""

REJECTED: Final = "_rejected"
REJECTED_TYPE: Final = "STRUCT<reason: STRING, error: STRING, stack: STRING, row: STRING>"
"""Why a row was rejected: reason, name of the exception, stack, and the row as JSON if it has no origin."""

REASON_CHARACTERS_MAX: Final = 2000
STACK_CHARACTERS_MAX: Final = 8000


def is_own(column: str) -> bool:
    """Whether a column was added by the pipeline and is not written to sinks."""
    return column.startswith("_")
