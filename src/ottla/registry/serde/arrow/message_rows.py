"""Protobuf values after the id of their schema as rows: the indexes of the message, then the message.

Fields are found by their numbers, so the reader's schema alone decodes what a compatible schema has written.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla.registry.schemas.protobuf.protobuf_schema import ProtobufSchema
from ottla.registry.serde.arrow.avro_plan import NoColumnsError
from ottla.registry.serde.arrow.kernel_rows import KernelRows
from ottla.registry.serde.arrow.protobuf_plan import ProtobufColumns, message_of
from ottla.registry.serde.arrow.row_decoding import BadValueError, BlockRefusedError
from ottla.registry.serde.errors import ValueNotReadableError
from ottla.registry.serde.message_indexes import FIRST, first_message_name, message_name, read_indexes


def message_columns(schema: ProtobufSchema, message: str | None) -> ProtobufColumns:
    """The columns of a message, by its full name, or of the first one of the schema.

    Raises `ValueNotReadableError`, `NoColumnsError`.
    """
    name = message or first_message_name(schema)
    if name is None:
        raise ValueNotReadableError("the schema has no message")
    return ProtobufColumns(message_of(schema, name))


class MessageRows:
    """Decodes what was written with one schema to the struct `kind`."""

    def __init__(
        self,
        writer: ProtobufSchema,
        kind: pa.DataType,
        reader: ProtobufSchema | None = None,
        message: str | None = None,
    ) -> None:
        """`message` is the full name of the reader's message; without it, the first one of its schema.

        Raises `ValueNotReadableError` if the reader's schema cannot read what was written.
        """
        self.type = kind
        self._writer = writer
        self._reader = reader
        self._message = None if reader is None else message or first_message_name(reader)
        self._rows: dict[tuple[int, ...], KernelRows | BadValueError] = {}
        reasons = () if reader is None else reader.incompatibilities(writer)
        if reasons:
            raise ValueNotReadableError(f"{reasons[0].path}: {reasons[0].message}")

    def decode_block(self, values: pa.Array) -> pa.StructArray:
        """Decodes all values, message by message."""
        is_first = pc.equal(pc.binary_slice(values, 0, 1), b"\0")
        if pc.all(is_first).as_py():
            # The most frequent case: no Python object per value.
            return self._block(FIRST, pc.binary_replace_slice(values, start=0, stop=1, replacement=b""))
        found: dict[tuple[int, ...], tuple[list[int], list[bytes]]] = {}
        for row, value in enumerate(values.to_pylist()):
            try:
                indexes, start = read_indexes(value, 0)
            except ValueNotReadableError as error:
                raise BlockRefusedError(str(error)) from error
            rows, bodies = found.setdefault(indexes, ([], []))
            rows.append(row)
            bodies.append(value[start:])
        parts = [self._block(indexes, pa.array(bodies, pa.binary())) for indexes, (_, bodies) in found.items()]
        order = [row for rows, _ in found.values() for row in rows]
        return pa.concat_arrays(parts).take(pc.array_sort_indices(pa.array(order, pa.int64())))

    def is_plausible(self, value: bytes) -> bool:
        """Always true: only decoding shows it."""
        return True

    def decode_row(self, value: bytes) -> dict[str, Any] | None:
        """Decodes one value."""
        try:
            indexes, start = read_indexes(value, 0)
        except ValueNotReadableError as error:
            raise BadValueError(str(error)) from error
        return self._of(indexes).decode_row(value[start:])

    def _block(self, indexes: tuple[int, ...], values: pa.Array) -> pa.StructArray:
        try:
            return self._of(indexes).decode_block(values)
        except BadValueError as error:
            raise BlockRefusedError(str(error)) from error

    def _of(self, indexes: tuple[int, ...]) -> KernelRows:
        found = self._rows.get(indexes)
        if found is None:
            found = self._rows[indexes] = self._made(indexes)
        if isinstance(found, BadValueError):
            raise BadValueError(str(found))
        return found

    def _made(self, indexes: tuple[int, ...]) -> KernelRows | BadValueError:
        try:
            name = message_name(self._writer, indexes)
            if self._reader is None:
                return KernelRows(message_columns(self._writer, name), self.type)
            if name != self._message:
                return BadValueError(f"the value is a message {name}, not {self._message}")
            return KernelRows(message_columns(self._reader, name), self.type)
        except (ValueNotReadableError, NoColumnsError) as error:
            return BadValueError(str(error))
