"""Columns of records as packed buffers in Arrow's memory layout, without Arrow: what the kernels give and take.

`columns` decodes batches into them, `columns_encode` makes batches of them, and `arrow` turns them into Arrow arrays
and back without a copy. A validity buffer has one bit per row, lowest first, 1 for "not null"; None means no nulls.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.model.errors import OttlaError

if TYPE_CHECKING:
    from typing_extensions import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryColumn:
    """A column of byte strings: row i is `data[offsets[start + i] : offsets[start + i + 1]]`."""

    validity: "Buffer | None"
    offsets: "Buffer"
    """One more than there are rows; int32, or int64 if `wide`."""
    data: "Buffer"
    null_count: int = 0
    start: int = 0
    """The first row, counted in rows; it shifts validity and offsets alike."""
    wide: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadersColumn:
    """A column of header lists: row i has the headers `offsets[start + i]` to `offsets[start + i + 1]`, exclusive."""

    offsets: "Buffer"
    """int32, one more than there are rows."""
    keys: BinaryColumn
    """UTF-8, never null."""
    values: BinaryColumn
    count: int
    """How many headers `keys` and `values` have."""
    validity: "Buffer | None" = None
    """A null list counts as an empty one; decoding makes none."""
    start: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The records of some batches, and how far they reach."""

    count: int
    offsets: "Buffer"
    """int64 per row."""
    timestamps: "Buffer"
    """int64 per row, milliseconds."""
    keys: BinaryColumn
    values: BinaryColumn
    headers: HeadersColumn | None
    """None if they were not asked for."""
    next_offset: int
    """Where the next fetch starts: after the last batch consumed, whatever was in it."""
    consumed_bytes: int
    """Whole batches, counted from the position where decoding began."""
    error: OttlaError | None
    """Why decoding stopped at a batch behind good ones; decoding from there raises it."""
