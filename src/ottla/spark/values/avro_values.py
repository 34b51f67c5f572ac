"""Avro values to Arrow rows: records without a file's header, as they are found in topics.

One schema describes all values, or `registry_values.py` finds each value's own. Decoding is row by row, by fastavro;
the rows of a block then become columns at once. A value must be used up to its last byte: bytes that are left, or
missing, mean that it was written with another schema.
"""

import io
import itertools
from typing import Any, Final

import pyarrow as pa

from ottla.spark.values.avro_schemas import AvroSchema
from ottla.spark.values.rejected_rows import BadValueError, BlockRefusedError

_DECODING: Final = (EOFError, IndexError, KeyError, ValueError, TypeError, OverflowError, ArithmeticError, MemoryError)
"""What fastavro raises on damaged values."""


class AvroValues:
    """Decodes values of one writer's schema to the struct `kind`: fields by name, those that are missing are null.

    With a `reader` schema, values are first resolved to it by Avro's rules: defaults, aliases, promotions.
    """

    def __init__(self, writer: AvroSchema, kind: pa.DataType, reader: AvroSchema | None = None) -> None:
        from fastavro import schemaless_reader

        self.type = kind
        self._read = schemaless_reader
        self._writer = writer.parsed
        self._reader = None if reader is None else reader.parsed
        self._read_type = (reader or writer).type

    def decode_block(self, values: pa.Array) -> pa.StructArray:
        """All values, one after the other out of one buffer."""
        raw = values.to_pylist()
        stream = io.BytesIO(b"".join(raw))
        read, writer, reader, tell = self._read, self._writer, self._reader, stream.tell
        rows = []
        try:
            for end in itertools.accumulate(map(len, raw)):
                rows.append(read(stream, writer, reader))
                if tell() != end:
                    raise BlockRefusedError("a value is shorter or longer than its schema says")
            return self._columns(rows)
        except (*_DECODING, pa.ArrowException, SyntaxError) as error:
            raise BlockRefusedError(str(error)) from error

    def is_plausible(self, value: bytes) -> bool:
        """Only decoding can tell."""
        return True

    def decode_row(self, value: bytes) -> dict[str, Any] | None:
        """One value."""
        stream = io.BytesIO(value)
        try:
            row = self._read(stream, self._writer, self._reader)
        except _DECODING as error:
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise BadValueError(f"the value does not fit its Avro schema: {reason}") from error
        if stream.tell() != len(value):
            left = len(value) - stream.tell()
            raise BadValueError(f"the value does not fit its Avro schema: {left} bytes are left at its end")
        try:
            found: dict[str, Any] | None = self._columns([row])[0].as_py()
        except (pa.ArrowException, *_DECODING) as error:
            raise BadValueError(f"the value does not fit the schema of the columns: {error}") from error
        return found

    def _columns(self, rows: list[dict[str, Any]]) -> pa.StructArray:
        columns = pa.array(rows, self._read_type)
        if self.type.num_fields == 0:
            return pa.array([{}] * len(rows), self.type)
        wanted = pa.struct([pa.field(each.name, each.type) for each in self.type])
        if not columns.type.equals(wanted):
            present = [each.name for each in self._read_type]
            arrays = [
                columns.field(each.name).cast(each.type) if each.name in present else pa.nulls(len(rows), each.type)
                for each in wanted
            ]
        else:
            arrays = columns.flatten()
        return pa.StructArray.from_arrays(arrays, fields=list(self.type))
