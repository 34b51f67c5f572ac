"""Types and promises of the compaction kernel."""

from typing import final

from ottla.records.batch import Batch

@final
class OffsetMap:
    """The last offset of each key, in bounded memory.

    It never takes more than `memory_bytes`, also while it grows, and starts small. Keys are known by a digest of 128
    bits that depends on `hash_key`, 16 bytes: they should be random, so that keys which collide cannot be made up. By
    chance, 2^40 records against 2^23 keys meet a false match with a probability below 2^-64.
    """

    def __init__(self, memory_bytes: int, hash_key: bytes, load_factor: float = 0.9) -> None: ...
    def __len__(self) -> int:
        """How many keys it holds."""
    @property
    def capacity(self) -> int:
        """How many keys it can hold."""
    def add(self, batch: Batch, start_offset: int) -> int:
        """Maps the keys of the batch's records from `start_offset` on; batches must come in the order of their offsets.

        Answers the first offset that is not covered: the batch's next offset, or that of the first record that found
        the map full. Raises `CorruptBatchError` for damage inside a record, `BatchTooLargeError` for a batch that
        exceeds the bound. Runs without the GIL but for the decompression.
        """
    def get(self, key: bytes) -> int:
        """The key's last offset; -1 if it has none."""

def key_digest(key: bytes, hash_key: bytes) -> bytes:
    """What the map knows a key by: SipHash-2-4 with 128 bits of output."""

def compact_batch(
    batch: Batch, offset_map: OffsetMap, *, end_offset: int, now: int, horizon: int, level: int | None = None
) -> tuple[int, bytes | None]:
    """How many records stay, and the batch without the others; None instead if it stays as it is, or if none stay.

    Of the records below `end_offset` those stay that are their key's last and have a key; a tombstone goes as well once
    `now` has reached the batch's delete horizon. A batch that keeps a tombstone and has no horizon gets `horizon`, if
    it ends below `end_offset`: a tombstone that the map does not know has not done its work yet. Offsets, sequences,
    codec and leader epoch stay; the largest timestamp is that of the records that stay, except for LogAppendTime.
    """

def stamp_horizon(batch: Batch, horizon: int, level: int | None = None) -> bytes:
    """The same batch with a delete horizon; its records keep their timestamps."""

def empty_batch(batch: Batch) -> bytes:
    """The batch's header without any record: it holds the place of its offsets and its producer's sequence."""
