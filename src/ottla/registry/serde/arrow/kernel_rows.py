"""Values that a compiled kernel decodes to columns, as the rows that a query wants: its fields, in its types.

A value must be decoded to its last byte: remaining or missing bytes mean that it was written with another schema.
"""

from typing import Any, Protocol

import pyarrow as pa

from ottla.registry.serde.arrow.row_decoding import BadValueError, BlockRefusedError


class Kernel(Protocol):
    """Decodes values of one schema: `AvroColumns`, `ProtobufColumns`."""

    @property
    def type(self) -> pa.StructType:
        """The struct of the columns."""

    def decode(self, values: pa.Array) -> tuple[pa.StructArray, list[tuple[int, str]]]:
        """The rows of the values, none of which is null; and row and reason of each bad value, whose row is null."""


class KernelRows:
    """Rows of the struct `kind`: fields by name; fields that the kernel does not have are null."""

    def __init__(self, kernel: Kernel, kind: pa.DataType) -> None:
        self.type = kind
        self._kernel = kernel

    def decode_block(self, values: pa.Array) -> pa.StructArray:
        """Decodes all values at once."""
        rows, bad = self._kernel.decode(values)
        if bad:
            raise BlockRefusedError(bad[0][1])
        try:
            return self._wanted(rows)
        except pa.ArrowException as error:
            raise BlockRefusedError(str(error)) from error

    def is_plausible(self, value: bytes) -> bool:
        """Always true: only decoding shows it."""
        return True

    def decode_row(self, value: bytes) -> dict[str, Any] | None:
        """Decodes one value."""
        rows, bad = self._kernel.decode(pa.array([value], pa.binary()))
        if bad:
            raise BadValueError(f"the value does not fit its schema: {bad[0][1]}")
        try:
            found: dict[str, Any] | None = self._wanted(rows)[0].as_py()
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise BadValueError(f"the value does not fit the schema of the columns: {error}") from error
        return found

    def _wanted(self, rows: pa.StructArray) -> pa.StructArray:
        if self.type.num_fields == 0:
            return pa.array([{}] * len(rows), self.type)
        present = {each.name for each in rows.type}
        arrays = [
            rows.field(each.name).cast(each.type) if each.name in present else pa.nulls(len(rows), each.type)
            for each in self.type
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(self.type))
