"""Types and promises of the columnar kernel's writing side."""

from typing_extensions import Buffer

from ottla.records.layout import Codec
from ottla.records.packed import BinaryColumn, HeadersColumn

def encode(
    count: int,
    *,
    keys: BinaryColumn | None = None,
    values: BinaryColumn | None = None,
    timestamps: Buffer | None = None,
    default_timestamp: int = -1,
    headers: HeadersColumn | None = None,
    batch_bytes_max: int = 1048576,
    batch_records_max: int = 2147483647,
    codec: Codec = ...,
    level: int | None = None,
    timestamp_type: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
    order: Buffer | None = None,
) -> list[memoryview]:
    """The rows as batches, in order, each a writable view that `Batch` can stamp.

    The columns have `count` rows. With `order`, int32 numbers of rows, these are written and no others, as they come.
    A column that is None is null in every row; without `timestamps` (int64 milliseconds) all rows get
    `default_timestamp`. A batch ends before it would exceed `batch_bytes_max`, counted before compression, or
    `batch_records_max`; a single larger row is a batch of its own. Offsets and, if given, sequences run on from batch
    to batch. Uncompressed batches share one piece of memory, which lives as long as any of them.

    Raises `MisuseError` if the columns' buffers do not fit each other, `order` has a row that is not there, or a
    header's key is null.
    """
