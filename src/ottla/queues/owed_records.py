"""What a companion's partition still owes, found by reading its log: for tools that look at queues from outside. Pure.

The broker's own queue shard does the same and more. Both use `delivery_state`, so that they agree about what has been
delivered. A record that was cancelled or rolled back is not owed any more, although the broker only drops it from its
books when it is due.

The log is read twice, because only its end tells what is owed of its beginning: first for what was delivered and
cancelled, then for the records that are left. In between one bit for each offset is kept, and the cancelled ids, but
nothing of the parked records, of which there may be millions.
"""

from array import array
from bisect import bisect_left
from typing import Final, NamedTuple

from ottla.model.ids import Offset, ProducerId
from ottla.model.queue_names import (
    CANCEL,
    DELAY_CANCEL,
    DELAY_ID,
    DELAY_REPLACE,
    DUE_MS,
    HALF_ID,
    HALF_STATE,
    RELEASE,
)
from ottla.queues.cancelled_ids import CancelledIds
from ottla.queues.delivery_state import Apply, DeliveryEffect, DeliveryState
from ottla.queues.kinds.kind import Found
from ottla.queues.offset_runs import offsets_of
from ottla.queues.progress_records import decode
from ottla.records.batch import Batch
from ottla.records.control import read_marker, read_progress
from ottla.records.header_edit import ABSENT, HeaderNames, find_headers, find_numbers
from ottla.records.layout import Marker
from ottla.records.payload import read_payload

_DUE: Final = HeaderNames(DUE_MS)
_MARKS: Final = HeaderNames(DELAY_ID, DELAY_CANCEL, DELAY_REPLACE, HALF_ID, HALF_STATE, RELEASE, CANCEL)
_NO_PRODUCER: Final = ProducerId(-1)
_ROLLBACK: Final = b"rollback"


class Owed(NamedTuple):
    """A parked record that the broker has not delivered."""

    due_ms: int
    offset: int
    id: bytes | None = None
    """Its `ottla.delay.id` or `ottla.half.id`."""


class _Cancel(NamedTuple):
    id: bytes
    before: int


class OwedRecords:
    """One partition. First all batches from the log start on go to `on_batch`, then those of interest to `owed_in`."""

    def __init__(self, start_offset: Offset) -> None:
        self._state = DeliveryState(start_offset)
        self._cancels = CancelledIds(self._state.settled)

    @property
    def next_offset(self) -> Offset:
        """The offset after the last batch that was read."""
        return self._state.followed

    @property
    def first_owed(self) -> Offset:
        """Nothing below this offset is owed."""
        return Offset(self._state.settled.first_unsettled)

    def on_batch(self, batch: Batch) -> None:
        """The next batch of the log. Raises CorruptError if it cannot be read."""
        if batch.next_offset <= self.next_offset:
            return
        if batch.is_control:
            self._on_control(batch)
            return
        batch.check()
        producer_id = batch.producer_id if batch.is_transactional else _NO_PRODUCER
        # The log may start within the batch.
        first = Offset(max(batch.base_offset, self.next_offset))
        found, _ = _read(batch)
        at = bisect_left(found.offsets, first)
        found = found._replace(due_ms=found.due_ms[at:], offsets=found.offsets[at:])
        self._note(self._state.on_data(first, batch.next_offset - first, found, ProducerId(producer_id)))

    def _on_control(self, batch: Batch) -> None:
        state, base = self._state, Offset(batch.base_offset)
        marker = read_marker(batch)
        if marker is not None:
            producer_id = ProducerId(batch.producer_id)
            self._note(state.on_marker(base, producer_id, is_commit=marker[0] is Marker.COMMIT))
            return
        for offset, value in read_progress(batch):
            if offset >= state.followed:
                self._note(state.on_progress(Offset(offset), decode(value)))
        if state.followed < batch.next_offset:
            state.on_skipped(state.followed, batch.next_offset - state.followed)

    def _note(self, effects: list[DeliveryEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Apply):
                for each in effect.found.instructions:
                    if isinstance(each, _Cancel):
                        self._cancels.add(each.id, each.before)
                self._cancels.forget()

    def owed_in(self, batch: Batch) -> list[Owed]:
        """The records of a batch that are owed, in the order of their offsets. Raises CorruptError."""
        state = self._state
        if batch.is_control or batch.base_offset >= self.next_offset or batch.last_offset < self.first_owed:
            return []
        found, ids = _read(batch)
        owed: list[Owed] = []
        for at in state.settled.unsettled(found.offsets):
            offset = found.offsets[at]
            # A transaction is open as a whole, so that its batches are not looked for again for each record.
            if offset >= self.next_offset or (not owed and batch.is_transactional and not state.is_owed(offset)):
                break
            id = ids.get(offset)
            if id is None or not self._cancels.covers(id, offset):
                owed.append(Owed(state.due_of(offset, found.due_ms[at]), offset, id))
        return owed


def _read(batch: Batch) -> tuple[Found, dict[int, bytes]]:
    """What a data batch has, and the ids of its parked records by offset."""
    count, base = batch.count, int(batch.base_offset)
    payload = read_payload(batch)
    (due_ms,) = find_numbers(payload, count, _DUE)
    offsets = offsets_of((base, count))
    cancels = []
    ids: dict[int, bytes] = {}
    released: list[tuple[int, int]] = []
    cancelled: list[int] = []
    for at, (id, cancel, replace, half, state, release, cancel_at) in find_headers(payload, count, _MARKS):
        name = id if id is not None else half
        if release is not None and half is None:
            released.append((int(release), due_ms[at]))
            due_ms[at] = ABSENT
        elif cancel_at is not None and half is None:
            cancelled.append(int(cancel_at))
            due_ms[at] = ABSENT
        if cancel is not None:
            cancels.append(_Cancel(cancel, base + at))
        elif name is not None and due_ms[at] >= 0:
            ids[base + at] = name
        if name is not None and (replace == b"true" or state == _ROLLBACK):
            cancels.append(_Cancel(name, base + at))
    if count and min(due_ms) < 0:
        parked = [at for at in range(count) if due_ms[at] >= 0]
        due_ms, offsets = array("q", [due_ms[at] for at in parked]), array("q", [base + at for at in parked])
    return Found(due_ms, offsets, cancels, released, cancelled), ids
