"""Types and promises of the kernel that encodes Protobuf values."""

from collections.abc import Sequence

from typing_extensions import Buffer

def encode(
    messages: bytes,
    fields: bytes,
    oneof_count: int,
    columns: Sequence[tuple[int, int, int, int]],
    rows: int,
    prefix: bytes,
) -> tuple[Buffer, Buffer] | tuple[int, int, str]:
    """The ends and the bytes of the values of all rows, each after the prefix.

    `columns` has the addresses of validity, data and offsets of each column (0 if it has none), and its own offset. If
    a row does not fit the schema, returns the row, the index of the field that failed, and the problem.
    """
