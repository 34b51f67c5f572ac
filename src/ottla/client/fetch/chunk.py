"""A run of fetched batches of one partition. Decodes itself on demand: to columns, to records, or only to a count."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.model.ids import TopicPartition
from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import Batch, spanned
from ottla.records.decode import decode_records
from ottla.records.record import Record

if TYPE_CHECKING:
    from ottla.records.packed import Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Whole batches of one partition. Only records from `start` to `end`, exclusive, belong to the chunk."""

    partition: TopicPartition
    batches: list[Batch]
    start: int
    end: int | None
    aborted: list[tuple[int, int]] | None
    """(producer id, first offset) of aborted transactions to leave out; None for read_uncommitted."""
    high_watermark: int
    size_bytes: int

    @property
    def next_offset(self) -> int:
        """Where the next chunk of this partition begins."""
        return self.batches[-1].next_offset

    def count(self) -> int:
        """How many records the data batches have, also outside the bounds."""
        return sum(batch.count for batch in self.batches if not batch.is_control)

    def records(self) -> Iterator[Record]:
        """The records within the bounds, without aborted ones. Raises `CorruptError` for a wrong CRC."""
        aborted = None if self.aborted is None else AbortedTransactions(self.aborted)
        for batch in self.batches:
            left_out = aborted is not None and aborted.covers(batch)
            if left_out or batch.is_control:
                continue
            batch.check()
            for record in decode_records(batch):
                if record.offset >= self.start and (self.end is None or record.offset < self.end):
                    yield record

    def columns(self, *, headers: bool = True) -> "Columns":
        """The same records as packed columns; `Columns.consumed_bytes` tells whether all fitted the limit."""
        from ottla.records.columns import decode

        data = spanned(self.batches)
        return decode(data, start_offset=self.start, end_offset=self.end, headers=headers, aborted=self.aborted)
