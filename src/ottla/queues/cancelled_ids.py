"""The ids of parked records that were cancelled, as long as one of those records may be owed. Pure."""

from collections import OrderedDict

from ottla.queues.settled_offsets import SettledOffsets


class CancelledIds:
    """The ids of one partition; `settled` has at any time the offsets that are not owed any more."""

    def __init__(self, settled: SettledOffsets) -> None:
        self._settled = settled
        self._before: OrderedDict[bytes, int] = OrderedDict()
        """The offset before which records with an id are cancelled; in the order in which they were read."""

    def __len__(self) -> int:
        return len(self._before)

    def __contains__(self, id: object) -> bool:
        return id in self._before

    def add(self, id: bytes, before: int) -> None:
        """Records with this id below the offset are cancelled."""
        if before > self._settled.first_unsettled:
            self._before[id] = max(before, self._before.get(id, 0))
            self._before.move_to_end(id)

    def covers(self, id: bytes, offset: int) -> bool:
        """Whether the record with this id at an offset that is owed is cancelled."""
        return offset < self._before.get(id, 0)

    def forget(self) -> None:
        """Forgets ids of which no record can be owed.

        Those of transactions may be read out of order; then one is forgotten together with the one before it.
        """
        first, ids = self._settled.first_unsettled, self._before
        while ids and next(iter(ids.values())) <= first:
            ids.popitem(last=False)
