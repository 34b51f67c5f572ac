"""Batches that are appended with one write, and the changes that follow from them."""

from ottla.model.ids import Offset
from ottla.records.batch import Batch
from ottla.storage.producers.producer_state import Appends


class AppendGroup:
    """Gathered by `Log.append`; the results of its batches begin at `first_result`."""

    __slots__ = ("batches", "end_offset", "first_result", "pending", "size_bytes")

    def __init__(self, end_offset: Offset, first_result: int) -> None:
        self.batches: list[Batch] = []
        self.end_offset = end_offset
        self.first_result = first_result
        self.pending: Appends | None = None
        """The changes by idempotent and transactional batches; None if there are none."""
        self.size_bytes = 0

    def add(self, batch: Batch) -> None:
        """Adds a batch that already has its offsets."""
        self.batches.append(batch)
        self.end_offset = batch.next_offset
        self.size_bytes += batch.size_bytes
