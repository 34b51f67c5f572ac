"""Expiry on read: what a consumer gets of a partition whose topic has a TTL.

An expired record stays in the log until retention or compaction removes it, but consumers no longer get it. A range
without expired records is sent from the file as on any topic. Otherwise its batches are read, rewritten without their
expired records, and sent from memory. Offsets stay as they are. Replicas copy the log unchanged.

When a record expires is defined in `ottla.records.expiry`; `expiry_index.py` remembers it for each batch.
"""

import asyncio
from struct import Struct
from typing import Final, NamedTuple

from ottla.env.ports import Clock
from ottla.model.errors import OttlaError, StorageError
from ottla.model.ids import NO_OFFSET, Offset, TimestampMs
from ottla.queues.expiry_index import ExpiryIndex, Survey, batch_bytes
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder
from ottla.records.expiry import NO_TTL, drop_expired
from ottla.records.layout import LENGTH_PREFIX_BYTES
from ottla.records.payload import read_payload
from ottla.replication.partition import Partition
from ottla.storage.segments.segment import FileRange

RANGE_BYTES_MAX: Final = 2 * 1024 * 1024
"""One partition of a response gets no more than this, or one batch."""

REWRITTEN_BYTES_MAX: Final = 1024 * 1024
"""Compressed batches are rewritten until they were decompressed to this much, for one partition of a response."""

READ_PER_TURN_BYTES_MAX: Final = 8 * 1024 * 1024
"""No more is read in one turn of the event loop, except for the first partition of each fetch."""

PLACEHOLDER_TYPE: Final = 101
"""The type of the control record that stands for expired records at the end of a response. Consumers skip it."""

_CONTROL_KEY: Final = Struct(">hh")


class UnexpiredRead(NamedTuple):
    """The batches in `found`, which was read from `offset` on, without expired records."""

    offset: Offset
    """Where the fetch begins, or later if all records before it have expired."""
    found: FileRange
    records: FileRange | bytes | None
    """None if nothing can be sent now."""
    size: int


class _Filtered(NamedTuple):
    records: FileRange | bytes
    has_records: bool
    """Whether any record is left, or nothing has expired."""
    next_offset: Offset


class ExpiryFilter:
    """Removes expired records from what consumers read, on all partitions of a broker."""

    def __init__(self, clock: Clock, index: ExpiryIndex | None = None) -> None:
        self._clock = clock
        self._index = ExpiryIndex() if index is None else index
        self._read_bytes_max = READ_PER_TURN_BYTES_MAX
        """How far the index may read in this turn of the event loop."""
        self._is_refilling = False

    def read(
        self,
        partition: Partition,
        offset: Offset,
        found: FileRange,
        max_bytes: int,
        *,
        is_committed: bool,
        at_least_one: bool,
    ) -> UnexpiredRead:
        """What a consumer gets of `found`, which was read from `offset` on within these limits.

        If all of it has expired, what follows is read instead. If nothing follows, the records end with a control batch
        that consumers skip, so that they continue behind the expired records.
        """
        now = self._clock.now_ms()
        filtered: _Filtered | None = None
        try:
            if at_least_one or self._may_read():
                filtered = self._filter(partition, found, now)
            while filtered is not None and not filtered.has_records and self._may_read():
                following = self._following(partition, filtered.next_offset, max_bytes, is_committed, at_least_one)
                further = None if following is None else self._filter(partition, following, now)
                if following is None or further is None:
                    break
                offset, found, filtered = filtered.next_offset, following, further
        except OSError as error:
            raise StorageError(f"{found.file.path}: cannot read: {error.strerror}") from error
        if filtered is None:
            return UnexpiredRead(offset, found, None, 0)
        records = filtered.records
        return UnexpiredRead(offset, found, records, len(records) if isinstance(records, bytes) else records.size)

    def _may_read(self) -> bool:
        """Whether this turn's limit is not reached."""
        if not self._is_refilling:
            self._is_refilling = True
            self._read_bytes_max = self._index.read_bytes + READ_PER_TURN_BYTES_MAX
            asyncio.get_running_loop().call_soon(self._refill)
        return self._index.read_bytes < self._read_bytes_max

    def _refill(self) -> None:
        self._is_refilling = False

    def _filter(self, partition: Partition, found: FileRange, now: TimestampMs) -> _Filtered | None:
        """The complete batches of a range, without expired records; None if the range has no complete batch."""
        file, position = found.file, found.position
        ttl_ms = NO_TTL if partition.ttl_ms is None else partition.ttl_ms
        size = found.size
        if size > RANGE_BYTES_MAX:
            size = min(size, max(RANGE_BYTES_MAX, batch_bytes(file.read_at(position, LENGTH_PREFIX_BYTES))))
        survey = self._index.survey(file, position, position + size, ttl_ms=ttl_ms, now=now)
        if survey.end == position:
            return None
        if not survey.batches:
            return _Filtered(FileRange(file, position, survey.end - position), True, NO_OFFSET)
        return _without_expired(found, survey, ttl_ms, now)

    def _following(
        self, partition: Partition, offset: Offset, max_bytes: int, is_committed: bool, at_least_one: bool
    ) -> FileRange | None:
        try:
            return partition.read(offset, max_bytes, is_committed=is_committed, at_least_one=at_least_one)
        except OttlaError:
            # The consumer gets this error when it has come that far.
            return None


def _without_expired(found: FileRange, survey: Survey, ttl_ms: int, now: TimestampMs) -> _Filtered:
    position = found.position
    data = memoryview(found.file.read_at(position, survey.end - position))
    pieces: list[bytes | memoryview] = []
    run = 0
    """Where the batches that stay as they are begin."""
    last_offset = NO_OFFSET
    """Of the last batch, if it ends there after the rewriting too."""
    has_records = False
    last_at = rewritten_bytes = 0
    for batch in survey.batches:
        at = batch.position - position
        if rewritten_bytes >= REWRITTEN_BYTES_MAX:
            data = data[:at]
            break
        last_at = at
        has_records = has_records or batch.latest > now
        if batch.earliest > now:
            continue
        whole = Batch(data, at)
        pieces.append(data[run:at])
        run = at + whole.size_bytes
        if batch.latest <= now:
            continue
        if whole.codec:
            whole.unpacked = read_payload(whole)
            rewritten_bytes += len(whole.unpacked)
        rewritten = drop_expired(whole, ttl_ms, now)[1]
        if rewritten is not None:
            pieces.append(rewritten)
            last_offset = Batch(rewritten).last_offset
    pieces.append(data[run:])
    last = Batch(data, last_at)
    if run == len(data) and last_offset < last.last_offset:
        pieces.append(_placeholder(last, now))
    return _Filtered(b"".join(pieces), has_records, last.next_offset)


def _placeholder(last: Batch, now: TimestampMs) -> bytes:
    """A control batch at the last offset of a batch.

    Not an empty batch, which compaction leaves: kafkajs does not advance over it.
    """
    builder = BatchBuilder(control=True, base_offset=last.last_offset, leader_epoch=last.leader_epoch)
    builder.append(now, _CONTROL_KEY.pack(0, PLACEHOLDER_TYPE), b"")
    return builder.build()
