"""Packed columns as Python records, written out the slow way: what the kernels' tests compare with."""

from typing import TYPE_CHECKING

from ottla.records.packed import BinaryColumn, Columns
from ottla.records.record import Record

if TYPE_CHECKING:
    from typing_extensions import Buffer


def is_valid(validity: "Buffer | None", row: int) -> bool:
    return validity is None or bool(memoryview(validity)[row >> 3] >> (row & 7) & 1)


def binary_rows(column: BinaryColumn, count: int) -> list[bytes | None]:
    offsets = memoryview(column.offsets).cast("B").cast("i")
    data = memoryview(column.data).cast("B")
    assert count + 1 == len(offsets)
    assert len(data) == offsets[count]
    rows = [
        bytes(data[offsets[row] : offsets[row + 1]]) if is_valid(column.validity, row) else None for row in range(count)
    ]
    assert column.null_count == rows.count(None)
    return rows


def records_of(columns: Columns) -> list[Record]:
    """The rows as records; without headers in the columns, without headers."""
    headers: list[tuple[tuple[str, bytes | None], ...]] = [()] * columns.count
    if columns.headers is not None:
        ends = memoryview(columns.headers.offsets).cast("B").cast("i")
        assert (columns.count + 1, columns.headers.count) == (len(ends), ends[-1])
        keys = [(key or b"").decode() for key in binary_rows(columns.headers.keys, columns.headers.count)]
        pairs = list(zip(keys, binary_rows(columns.headers.values, columns.headers.count), strict=True))
        headers = [tuple(pairs[ends[row] : ends[row + 1]]) for row in range(columns.count)]
    return [
        Record(*row)
        for row in zip(
            memoryview(columns.offsets).cast("B").cast("q"),
            memoryview(columns.timestamps).cast("B").cast("q"),
            binary_rows(columns.keys, columns.count),
            binary_rows(columns.values, columns.count),
            headers,
            strict=True,
        )
    ]
