"""Types and promises of the kernel that makes batches of single records."""

from collections.abc import Iterable, Mapping, Sequence
from typing import final

from typing_extensions import Buffer

from ottla.records.batch import Batch
from ottla.records.header_edit import HeaderNames
from ottla.records.header_stamp import Stamp
from ottla.records.layout import Codec
from ottla.records.record import Headers, Record

@final
class RecordBlock:
    """Some records of a batch as bytes of its own: the batch's buffer can go.

    `offsets` are those of the records to take, ascending, as `array("q")`; without it all are taken. Offsets that the
    batch does not have are passed over. Damage raises `CorruptBatchError`; the batch's CRC is not looked at.
    """

    def __init__(self, batch: Batch, offsets: Buffer | None = None, *, limit: int = ...) -> None: ...
    def __len__(self) -> int: ...
    def __contains__(self, offset: object) -> bool: ...
    @property
    def count(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """The memory that it takes."""
    @property
    def first_offset(self) -> int:
        """-1 if it is empty."""
    @property
    def last_offset(self) -> int:
        """Inclusive; -1 if it is empty."""
    def key(self, offset: int) -> bytes | None:
        """The record's key. `MisuseError` if the block does not have the record."""
    def record(self, offset: int) -> Record:
        """The record as an object. `MisuseError` if the block does not have it."""

def count_fitting(blocks: Sequence[RecordBlock], offsets: Buffer, bytes_max: int, added_bytes: int = 0) -> int:
    """How many of the records, from the first on, certainly fit into an uncompressed batch of `bytes_max` bytes.

    `added_bytes` is what the headers that are added take in each record at most.
    """

def pick_batch(
    blocks: Sequence[RecordBlock],
    offsets: Buffer,
    *,
    drop: HeaderNames,
    stamps: Iterable[Stamp] = (),
    added: Mapping[int, Headers] | None = None,
    codec: Codec = ...,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A new batch of the records at these offsets, an `array("q")`, in the order given; its base offset is 0.

    The blocks must be in the order of their offsets, and must have every record. Keys, values, timestamps and headers
    stay, except for headers of the names in `drop`. Each record gets its header of every stamp, then those that
    `added` has for its index among the offsets. Raises `MisuseError` for a missing record, `BatchTooLargeError` if no
    batch could hold the records.
    """
