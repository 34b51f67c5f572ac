"""Types and promises of the record reader."""

from ottla.records.batch import Batch
from ottla.records.record import Record

def decode_records(batch: Batch, limit: int = ...) -> list[Record]:
    """The batch's records, decompressed up to `limit` bytes; its CRC is not looked at.

    Damage raises `CorruptBatchError` that names the batch's base offset. A header's key that is not UTF-8 is shown with
    U+FFFD in place of the bad bytes, as Java clients do.
    """

def find_time(batch: Batch, start: int, timestamp: int | None = None, limit: int = ...) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record from offset `start` on with at least this timestamp, or without one, of
    the first with the largest timestamp; None if there is none. Records that a queue delivered have the time of that.

    Damage before that record raises `CorruptBatchError`. Runs without the GIL, except for the decompression.
    """

def record_story(finding: int, base_offset: int, index: int) -> str:
    """What is wrong with the record of that index, as a sentence."""
