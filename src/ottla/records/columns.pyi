"""Types and promises of the columnar kernel's reading side."""

from collections.abc import Sequence

from typing_extensions import Buffer

from ottla.records.aborted import AbortedTransactions
from ottla.records.packed import Columns

def decode(
    buffer: Buffer,
    position: int = 0,
    *,
    start_offset: int = 0,
    end_offset: int | None = None,
    headers: bool = True,
    check_crc: bool = True,
    limit: int = ...,
    aborted: AbortedTransactions | Sequence[tuple[int, int]] | None = None,
) -> Columns:
    """The records of all whole batches from `position` on, as columns.

    Records before `start_offset` and from `end_offset` on are left out, and so are control batches. A batch that is cut
    off at the end is not looked at. With `aborted`, the (producer id, first offset) pairs of a fetch answer, the
    records of those transactions are left out too; to decode one answer in several calls, pass one
    `AbortedTransactions`.

    `limit` bounds the decompressed records of all batches together: decoding stops before the batch that would exceed
    it. It stops before a damaged batch as well. `Columns.error` then says why, `consumed_bytes` and `next_offset` how
    far it went; if it is the very first batch, the error is raised: `CorruptBatchError`, `BatchTooLargeError` or
    `UnsupportedCodecError`. So a caller that goes on where it stopped gets every good record and then the error.

    A header's key that is not UTF-8 gets U+FFFD in place of the bad bytes, as Java clients show it: Arrow strings are
    valid, and one odd record cannot stop a consumer.
    """
