"""Types and docstrings of the compiled split of rows."""

from collections.abc import Sequence

from typing_extensions import Buffer

from ottla.records.packed import BinaryColumn

def split_rows(
    count: int,
    *,
    partitions: int,
    keys: BinaryColumn | None = None,
    chosen: Buffer | None = None,
    keyless: Sequence[int] = (0,),
    keyless_run: int = 1,
) -> tuple[bytearray, list[int]]:
    """The row numbers (int32) sorted by partition, and where each partition starts: one bound more than partitions.

    Within a partition rows keep their order. A row goes to the partition in `chosen` (int32 per row), unless that is
    -1; else to the partition of its key, as in Java's producer; without a key to the `keyless` partitions in turn,
    `keyless_run` rows to each. Raises `MisuseError` for a partition that does not exist, and for buffers that are too
    short.
    """
