"""The columns of one batch that a filter compares: its own, those of headers, and fields of JSON.

Fields are read by `json_fields`, all that a filter names in one pass, when the first of them is needed. If only few
rows may pass a comparison, the fields of only these are read, for this comparison alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.console.filters import json_fields
from ottla.console.filters.column_comparisons import BinaryRows, binary_rows, marked
from ottla.console.filters.syntax import Root

Steps = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldColumn:
    """One field of all rows. `has` says which kinds occur, `of_kind` where; columns of other kinds are None."""

    kinds: bytes
    integers: pa.Array | None
    reals: pa.Array | None
    texts: pa.Array | None

    def has(self, kind: int) -> bool:
        """Whether a row is of this kind."""
        return kind in self.kinds

    def of_kind(self, kind: int) -> pa.BooleanArray:
        """The rows of this kind."""
        return marked(self.kinds, kind)


class BatchColumns:
    """A batch as the clients decode it (`ottla.records.arrow.SCHEMA`), and what was made of it."""

    def __init__(self, batch: pa.RecordBatch, partition: int, paths: Mapping[Root, Sequence[Steps]]) -> None:
        self._batch = batch
        self._partition = partition
        self._paths = paths
        self._rows: dict[Root, BinaryRows] = {}
        self._fields: dict[Root, dict[Steps, FieldColumn]] = {}
        self._headers: dict[str, pa.Array] = {}

    @property
    def num_rows(self) -> int:
        """How many records the batch has."""
        return int(self._batch.num_rows)

    def column(self, root: Root) -> pa.Array:
        """Keys and values as binary; offsets, partitions and timestamps as int64."""
        if root is Root.PARTITION:
            return pa.repeat(pa.scalar(self._partition, pa.int64()), self.num_rows)
        column = self._batch.column(root.value)
        return column.view(pa.int64()) if root is Root.TIMESTAMP else column

    def header(self, name: str) -> pa.Array:
        """The value of each row's last header of this name; null if it is null or there is none."""
        if name not in self._headers:
            self._headers[name] = self._last_headers(name)
        return self._headers[name]

    def _last_headers(self, name: str) -> pa.Array:
        headers = self._batch.column("headers")
        items = headers.flatten()
        named = pc.equal(items.field("key"), pa.scalar(name))
        if not named.true_count:
            return pa.nulls(self.num_rows, pa.binary())
        owners = pc.list_parent_indices(headers).filter(named)
        values = items.field("value").filter(named)
        # Owners ascend, so a header is the last of its name if the next one has another owner.
        is_last = pa.concat_arrays([pc.not_equal(owners[1:], owners[:-1]), pa.array([True])])
        rows = pa.array(range(self.num_rows), owners.type)
        return values.filter(is_last).take(pc.index_in(rows, value_set=owners.filter(is_last)))

    def has_read(self, root: Root) -> bool:
        """Whether the fields of the key or value were read for another comparison."""
        return root in self._fields

    def rows(self, root: Root) -> BinaryRows:
        """Keys or values as the kernels of JSON take them. A null is an empty document: neither has a field."""
        if root not in self._rows:
            column = self._batch.column(root.value)
            # What is behind the offsets of a null is not specified.
            self._rows[root] = binary_rows(pc.fill_null(column, b"") if column.null_count else column)
        return self._rows[root]

    def field(self, root: Root, steps: Steps, marks: bytes | None = None) -> FieldColumn | None:
        """A field of JSON keys or values; None if the filter names too many of them.

        With `marks`, a byte for each row, rows whose byte is 0 may be null instead.
        """
        if root not in self._fields:
            if marks is not None and marks.count(1) * _FEW < len(marks):
                return self._read(root, [steps], marks)[0]
            paths = self._paths[root]
            self._fields[root] = dict(zip(paths, self._read(root, paths), strict=True))
        return self._fields[root].get(steps)

    def _read(self, root: Root, paths: Sequence[Steps], marks: bytes | None = None) -> list[FieldColumn]:
        found = json_fields.json_fields(*self.rows(root), paths, marks)
        return [_field_column(each, self.num_rows) for each in found]


_FEW: Final = 4
"""Fields of less than one in this many rows are read for one comparison alone."""


def _field_column(buffers: Sequence[bytes | None], count: int) -> FieldColumn:
    kinds, integers, reals, offsets, texts = buffers

    def array(kind: pa.DataType, *parts: bytes | None) -> pa.Array | None:
        if parts[0] is None:
            return None
        return pa.Array.from_buffers(kind, count, [None, *map(pa.py_buffer, parts)])

    return FieldColumn(
        kinds=kinds or b"",
        integers=array(pa.int64(), integers),
        reals=array(pa.float64(), reals),
        texts=array(pa.string(), offsets, texts),
    )
