"""Types and promises of the compiled split of rows."""

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
    """The rows' numbers (int32) sorted by partition, and where each partition's begin: one bound more than partitions.

    Within a partition rows keep their order. A row goes where `chosen` (int32 per row) says, unless that is -1; else
    by its key, as Java's producer does it; and without a key to one of the `keyless` partitions, so many rows of a run
    to each in turn. Raises `MisuseError` for a partition that is not there, and if buffers do not fit the rows.
    """
