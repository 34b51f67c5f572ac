"""What is known about the rows of a batch: which certainly pass a filter, and which may pass.

The rows that are possible but not certain have to be decided one by one (`evaluation.py`).
"""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc


class Mask(NamedTuple):
    """Two columns of booleans without nulls. What is certain is possible, too."""

    possible: pa.BooleanArray
    certain: pa.BooleanArray

    @property
    def is_exact(self) -> bool:
        """Whether no row has to be asked."""
        return self.possible is self.certain or self.possible.equals(self.certain)


def exactly(rows: pa.BooleanArray) -> Mask:
    """These rows pass; null counts as false."""
    rows = pc.fill_null(rows, False) if rows.null_count else rows
    return Mask(rows, rows)


def with_doubts(mask: Mask, rows: pa.BooleanArray) -> Mask:
    """The same, but nothing is known about some rows."""
    if not has_any(rows):
        return mask
    return Mask(pc.or_(mask.possible, rows), pc.and_not(mask.certain, rows))


def both(left: Mask, right: Mask) -> Mask:
    """Rows that pass both."""
    possible = pc.and_(left.possible, right.possible)
    if left.possible is left.certain and right.possible is right.certain:
        return Mask(possible, possible)
    return Mask(possible, pc.and_(left.certain, right.certain))


def either(left: Mask, right: Mask) -> Mask:
    """Rows that pass one of them."""
    possible = pc.or_(left.possible, right.possible)
    if left.possible is left.certain and right.possible is right.certain:
        return Mask(possible, possible)
    return Mask(possible, pc.or_(left.certain, right.certain))


def inverted(mask: Mask) -> Mask:
    """Rows that do not pass."""
    possible = pc.invert(mask.certain)
    return Mask(possible, possible if mask.possible is mask.certain else pc.invert(mask.possible))


def repeated(value: bool, count: int) -> pa.BooleanArray:
    """The same for all rows."""
    # Made of its bits: pa.repeat would take as long as some comparisons.
    bits = (b"\xff" if value else b"\0") * ((count + 7) // 8)
    return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bits)], null_count=0)


def none_of(count: int) -> Mask:
    """No row passes."""
    return exactly(repeated(False, count))


def any_of(count: int) -> Mask:
    """Nothing is known."""
    return Mask(repeated(True, count), repeated(False, count))


def has_any(rows: pa.BooleanArray) -> bool:
    """Whether a row is true."""
    return bool(rows.true_count)
