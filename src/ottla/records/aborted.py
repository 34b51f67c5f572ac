"""Which batches belong to aborted transactions, by the rule that read_committed consumers follow.

A fetch answer lists the aborted transactions that overlap it, as producer id and first offset. From that offset on the
producer's transactional batches are aborted, until its ABORT marker. The state is carried from batch to batch in log
order; make a new one for each fetch answer.
"""

from collections.abc import Iterable

from ottla.records.batch import Batch
from ottla.records.control import read_marker
from ottla.records.layout import Marker


class AbortedTransactions:
    """The aborted transactions of one fetch answer, and those open at the place that has been reached."""

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        """Takes (producer id, first offset) in any order."""
        self._ahead = sorted(((first_offset, producer_id) for producer_id, first_offset in transactions), reverse=True)
        self._open: set[int] = set()

    def __bool__(self) -> bool:
        """Whether any batch from here on can be aborted."""
        return bool(self._ahead or self._open)

    def covers(self, batch: Batch) -> bool:
        """Moves on to `batch` and says whether its records are aborted. Asking twice about one batch does no harm."""
        while self._ahead and self._ahead[-1][0] <= batch.last_offset:
            self._open.add(self._ahead.pop()[1])
        if batch.producer_id not in self._open:
            return False
        if not batch.is_control:
            return batch.is_transactional
        marker = read_marker(batch)
        if marker is not None and marker[0] is Marker.ABORT:
            self._open.discard(batch.producer_id)
        return False
