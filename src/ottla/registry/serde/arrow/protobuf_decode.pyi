"""Types and promises of the kernel that decodes Protobuf values."""

import pyarrow as pa

from ottla.registry.serde.arrow.column_out import ColumnTree

def decode(
    messages: bytes,
    fields: bytes,
    places: bytes,
    symbols: bytes,
    names: bytes,
    oneof_count: int,
    tree: ColumnTree,
    values: pa.BinaryArray,
    skip: int = 0,
) -> list[tuple[int, str]]:
    """Decodes values, none of them null, into the tree; returns row and reason of each bad one, which is a null row.

    `skip` bytes before each value are not read.
    """
