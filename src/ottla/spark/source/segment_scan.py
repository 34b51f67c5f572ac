"""Reads a span from the broker's segment files, where these are on the machine of the task. A shortcut for backfills.

Files are used only if they belong to the leader (its broker id and the topic id are in files beside them), and only as
long as batches are whole, have the right CRC and follow each other without a gap. Retention, compaction and truncation
show up as a gap, a missing file or a wrong CRC; then the rest of the span is fetched. Records from the planned end on
are not read: all records before it are below the high watermark. Files are read, not mapped: a mapped file that is
truncated would kill the process.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.model.base64_ids import id_text
from ottla.model.errors import StorageError
from ottla.records.batch import Batch, scan
from ottla.records.layout import HEADER_BYTES, LENGTH_AT, LENGTH_PREFIX_BYTES
from ottla.spark.source.span_plan import OffsetSpan
from ottla.storage.data_dirs.names import (
    LOG,
    META_PROPERTIES,
    OFFSET_INDEX,
    PARTITION_METADATA,
    base_offset_of,
    segment_path,
)

READ_BYTES: Final = 2 * 1024 * 1024
OFFSETS_MIN: Final = 10_000
"""Smaller spans are fetched: searching the file takes as long as a fetch."""
_INDEX_ENTRY_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHint:
    """Where the broker says a partition's files are; the task checks whether they are on its machine."""

    log_dir: str
    broker: int
    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPiece:
    """Whole batches of the span, in order."""

    batches: list[Batch]
    start: int
    """Records before it were read already, or do not belong to the span."""


class SegmentScan:
    """Reads what the files have; `position` is where the rest of the span begins."""

    def __init__(self, hint: SegmentHint, span: OffsetSpan, *, stops_at_transactions: bool) -> None:
        self.position = span.start
        self._span = span
        self._hint = hint
        self._folder = os.path.join(hint.log_dir, f"{span.partition.topic}-{span.partition.partition}")
        self._stops_at_transactions = stops_at_transactions

    def problem(self) -> str | None:
        """Why the files cannot be read here; None if they can."""
        hint = self._hint
        try:
            broker = _properties(os.path.join(hint.log_dir, META_PROPERTIES), "=")
            topic = _properties(os.path.join(self._folder, PARTITION_METADATA), ":")
        except (OSError, UnicodeDecodeError) as error:
            return f"{self._folder} cannot be read here: {error}"
        if broker.get("node.id", broker.get("broker.id")) != str(hint.broker):
            return f"{hint.log_dir} does not belong to broker {hint.broker}, the leader of {self._span.partition}"
        if topic.get("topic_id") != id_text(UUID(hint.topic_id)):
            return f"{self._folder} does not belong to topic {hint.topic_id}"
        return None

    def pieces(self) -> Iterator[SegmentPiece]:
        """The batches in the files from the start of the span on, in order; ends early if they are not valid."""
        if self.problem() is not None:
            return
        file: int | None = None
        try:
            while self.position < self._span.end:
                bases = _segments(self._folder)
                base = max((each for each in bases if each <= self.position), default=None)
                if base is None:
                    return
                file = os.open(segment_path(self._folder, base, LOG), os.O_RDONLY | os.O_CLOEXEC)
                before = self.position
                yield from self._read(file, _start_in(self._folder, base, self.position))
                os.close(file)
                file = None
                if self.position == before:
                    return
        except (OSError, StorageError):
            # Files come and go. The rest is fetched.
            return
        finally:
            if file is not None:
                os.close(file)

    def _read(self, file: int, at: int) -> Iterator[SegmentPiece]:
        """The batches of one segment from a file position on, as long as they follow each other."""
        size = READ_BYTES
        while self.position < self._span.end:
            data = os.pread(file, size, at)
            batches, consumed, problem = scan(data)
            if not batches:
                needed = _batch_bytes(data)
                if problem is None and needed > size and len(data) == size:
                    size = needed
                    continue
                return
            kept: list[Batch] = []
            start = self.position
            for batch in batches:
                if batch.next_offset <= self.position and not kept:
                    # The index points to an earlier batch.
                    continue
                follows = batch.base_offset == self.position or (not kept and batch.base_offset < self.position)
                if not follows or (self._stops_at_transactions and batch.is_transactional):
                    problem = "a gap"
                    break
                kept.append(batch)
                self.position = batch.next_offset
                if self.position >= self._span.end:
                    break
            at += consumed
            if kept:
                yield SegmentPiece(batches=kept, start=start)
            if problem is not None or len(data) < HEADER_BYTES:
                return


def _properties(path: str, separator: str) -> dict[str, str]:
    with open(path, encoding="utf-8") as file:
        pairs = (line.partition(separator) for line in file.read(64 * 1024).splitlines())
        return {name.strip(): value.strip() for name, _, value in pairs}


def _segments(folder: str) -> list[int]:
    """The base offsets of the segments that are part of the log now."""
    found = []
    for name in os.listdir(folder):
        if name.endswith(LOG):
            base = base_offset_of(name)
            if base is not None:
                found.append(int(base))
    return found


def _start_in(folder: str, base: int, offset: int) -> int:
    """A file position at or before the batch with this offset, by the offset index; 0 without an index."""
    try:
        with open(segment_path(folder, base, OFFSET_INDEX), "rb") as file:
            index = file.read()
    except OSError:
        return 0
    low, high = 0, len(index) // _INDEX_ENTRY_BYTES
    while low < high:
        middle = (low + high) // 2
        relative = int.from_bytes(index[middle * 8 : middle * 8 + 4], "big")
        # The rest of an index file that still grows is zeros.
        if (relative == 0 and middle > 0) or base + relative > offset:
            high = middle
        else:
            low = middle + 1
    return int.from_bytes(index[low * 8 - 4 : low * 8], "big") if low else 0


def _batch_bytes(data: bytes) -> int:
    """The size of the first batch by its header; 0 if the header is incomplete."""
    if len(data) < LENGTH_AT + 4:
        return 0
    return LENGTH_PREFIX_BYTES + int.from_bytes(data[LENGTH_AT : LENGTH_AT + 4], "big", signed=True)
