"""Types and promises of the kernel that decodes Avro values."""

import pyarrow as pa

from ottla.registry.serde.arrow.column_out import ColumnTree

def decode(
    program: bytes, branches: bytes, tree: ColumnTree, values: pa.BinaryArray, skip: int = 0
) -> list[tuple[int, str]]:
    """Decodes values, none of them null, into the tree; returns row and reason of each bad one, which is a null row.

    `skip` bytes before each value are not read.
    """
