"""Types of the columns that kernels fill."""

from collections.abc import Sequence

import pyarrow as pa

class ColumnTree:
    """Columns for the Arrow types given, which a kernel fills. The first is the root."""

    count: int

    def __init__(self, kinds: Sequence[tuple[pa.DataType, int, int, int, int, pa.Scalar | pa.Array | None]]) -> None:
        """`kinds`: Arrow type, layout, width, first child, child count and value of each column.

        The value is that of a constant, or has the symbols of an enum, whose column is filled with their numbers."""

    def take(self, index: int = 0) -> pa.Array:
        """The array of a column with those below it. Its memory belongs to Arrow then: each is taken once."""
