"""Types and promises of the expiry kernel."""

from array import array

from ottla.records.batch import Batch

NEVER: int
"""The expiry of a record that does not expire."""

NO_TTL: int
"""The TTL of a topic on which only records with a TTL of their own expire."""

def expiry_bounds(batch: Batch, ttl_ms: int) -> tuple[int, int]:
    """When the first and the last record of the batch expire, in ms since the epoch; `NEVER` for none.

    A record expires after its TTL (header `ottla.ttl-ms`, or else `ttl_ms`), counted from the later of its timestamp
    and its due time (header `ottla.due-ms`). Headers that are not decimal numbers are ignored. A record without a
    timestamp has no age and does not expire. Control batches do not expire.

    Raises `CorruptBatchError` for damage inside a record, `BatchTooLargeError` for a batch that exceeds the bound. Runs
    without the GIL, except for the decompression.
    """

def expiries(batch: Batch, ttl_ms: int) -> array[int]:
    """(expiry, offset) of each record that expires at some time, in the order of offsets, as one flat array."""

def drop_expired(batch: Batch, ttl_ms: int, now: int, level: int | None = None) -> tuple[int, bytes | None]:
    """How many records have not expired at `now`, and the batch with only those; None instead if none or all stay.

    Offsets, sequences, codec and leader epoch stay. The batch ends at the last record that stays; its largest
    timestamp is that of the records that stay, except for LogAppendTime.
    """
