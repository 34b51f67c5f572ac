"""Types and promises of the record reader."""

from ottla.records.batch import Batch
from ottla.records.record import Record

def decode_records(batch: Batch, limit: int = ...) -> list[Record]:
    """The batch's records, decompressed up to `limit` bytes; its CRC is not looked at.

    Damage raises `CorruptBatchError` that names the batch's base offset. A header's key that is not UTF-8 is shown with
    U+FFFD in place of the bad bytes, as Java clients do.
    """

def record_story(finding: int, base_offset: int, index: int) -> str:
    """What is wrong with the record of that index, as a sentence."""
