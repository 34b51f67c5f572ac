"""The columns that a pipeline adds to views for itself: where a row came from, and why it was rejected. Pure.

Both begin with an underscore and are never written to a sink. `_origin` is carried by `SELECT *`; a step that names its
columns may name it, too. `_rejected` is taken off behind each step: rows that have it go to the dead letters.
"""

from typing import Final

ORIGIN: Final = "_origin"
ORIGIN_TYPE: Final = (
    "STRUCT<topic: STRING, partition: INT, offset: BIGINT, timestamp: TIMESTAMP, key: BINARY, value: BINARY, "
    "headers: ARRAY<STRUCT<key: STRING, value: BINARY>>>"
)
"""The record that a row was read from, as it was."""

REJECTED: Final = "_rejected"
REJECTED_TYPE: Final = "STRUCT<reason: STRING, error: STRING, stack: STRING, row: STRING>"
"""Why a row was rejected: words, the exception's name, its stack, and the row as JSON where no origin is known."""

REASON_CHARACTERS_MAX: Final = 2000
STACK_CHARACTERS_MAX: Final = 8000


def is_own(column: str) -> bool:
    """Whether a column is the pipeline's own, and not for sinks."""
    return column.startswith("_")
