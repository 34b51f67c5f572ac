"""Types and promises of the compiled batch view."""

from collections.abc import Sequence as Sequenced
from typing import final

from typing_extensions import Buffer

from ottla.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs

@final
class Batch:
    """A zero-copy view of one whole batch in a buffer (bytes, bytearray, memoryview, mmap).

    Raises `CorruptBatchError` when the bytes at `position` are not one whole batch of magic 2. The CRC and the fields'
    sense are looked at only by `check`. The view keeps the buffer alive and a bytearray from being resized; fields are
    read from the buffer at each access.
    """

    unpacked: memoryview | None
    """The records' bytes, if the batch is compressed and they were decompressed before it is looked into."""
    verdict: object
    """What the validation of a compressed batch of a client found; see `ottla.storage.batch_validation`."""

    def __init__(self, buffer: Buffer, position: int = 0) -> None: ...
    @property
    def position(self) -> int:
        """Where in the given buffer the batch starts."""
    @property
    def size_bytes(self) -> int:
        """The whole batch, with the prefix that its own length field leaves out."""
    @property
    def base_offset(self) -> Offset: ...
    @property
    def leader_epoch(self) -> LeaderEpoch: ...
    @property
    def magic(self) -> int: ...
    @property
    def crc(self) -> int:
        """What the header says; `crc_valid` compares."""
    @property
    def attributes(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def last_offset(self) -> Offset:
        """Inclusive."""
    @property
    def next_offset(self) -> Offset:
        """The offset after the batch, which may be more than `count` records on: compaction leaves gaps."""
    @property
    def base_timestamp(self) -> TimestampMs: ...
    @property
    def max_timestamp(self) -> TimestampMs: ...
    @property
    def producer_id(self) -> ProducerId: ...
    @property
    def producer_epoch(self) -> ProducerEpoch: ...
    @property
    def base_sequence(self) -> Sequence: ...
    @property
    def last_sequence(self) -> Sequence:
        """Wraps from 2^31-1 to 0; -1 if the batch has no sequence."""
    @property
    def count(self) -> int: ...
    @property
    def codec(self) -> int:
        """0 to 7; `Codec` ends at 4."""
    @property
    def timestamp_type(self) -> int: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def has_producer_id(self) -> bool: ...
    @property
    def has_delete_horizon(self) -> bool: ...
    @property
    def delete_horizon(self) -> TimestampMs:
        """When the batch's tombstones and markers may go, in ms; -1 if no cleaner has set it."""
    @property
    def buffer(self) -> memoryview:
        """The whole batch."""
    @property
    def payload(self) -> memoryview:
        """The records as they are stored, compressed or not."""
    @property
    def decompressed_bytes_max(self) -> int:
        """What the records may decompress to, by the headers of the compressed blocks, which are not decompressed.

        Never too small, often too large; a huge number if the headers cannot be read.
        """
    def copied(self) -> Batch:
        """The batch in a writable buffer of its own, with its verdict."""
    def crc_valid(self) -> bool: ...
    def check(self) -> None:
        """Raises `CorruptBatchError` for a bad CRC, impossible offsets or a count that does not fit them."""
    def passes(self, bytes_max: int, oldest: int, newest: int) -> bool:
        """Whether a log can store the batch as it is: uncompressed, undamaged, with a header that matches its records.

        Not a control batch, no LogAppendTime; every record is well formed and has a timestamp in [oldest, newest] or
        -1, and the header's largest timestamp is that of the records. After False the batch may still be
        valid; `storage.validation` then checks it in full.
        """

    def stamp(self, base_offset: int, leader_epoch: int) -> None:
        """Writes both in place; the CRC does not cover them. `MisuseError` if the buffer is read-only."""
    def stamp_append_time(self, timestamp: int) -> None:
        """Makes it a LogAppendTime batch of that time, with a new CRC. `MisuseError` if the buffer is read-only."""
    def stamp_create_time(self, max_timestamp: int) -> None:
        """Makes it a CreateTime batch with that largest timestamp, and brings the CRC up to date.

        A CRC that was wrong stays wrong. `MisuseError` if the buffer is read-only.
        """
    def stamp_producer(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Writes what an idempotent producer learns late, and brings the CRC up to date without reading all records.

        A CRC that was wrong stays wrong. `MisuseError` if the buffer is read-only.
        """

def scan(buffer: Buffer, position: int = 0, *, check_crc: bool = True) -> tuple[list[Batch], int, str | None]:
    """All good batches from a position on, the position after them, and what is wrong there.

    None if nothing is: the buffer ends there, or in the middle of a batch. Large buffers are walked and checked without
    the GIL.
    """

def find_batch(buffer: Buffer, offset: int, position: int = 0) -> Batch | None:
    """The first batch that reaches up to `offset` or beyond; None if the whole batches end before.

    Walks headers only. Raises `CorruptBatchError` at a damaged header.
    """

def whole_bytes(buffer: Buffer, position: int = 0) -> int:
    """How many bytes from `position` on are whole batches, by their headers."""

def crc32c(buffer: Buffer, crc: int = 0) -> int:
    """CRC-32C of the buffer, or of what `crc` was taken of followed by the buffer."""

def crc32c_by_table(buffer: Buffer, crc: int = 0) -> int:
    """The same by tables, as on a processor without a CRC instruction."""

def crc32c_by_instruction(buffer: Buffer, crc: int = 0) -> int:
    """The same by the CRC instruction, as on a processor without wide carry-less products; by tables if it has none."""

def spanned(batches: Sequenced[Batch]) -> memoryview:
    """The bytes of some batches, one at least: a view if they lie one behind the other in one buffer, else a copy."""
