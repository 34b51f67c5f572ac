"""Delayed delivery: a parked record is appended to the topic when it is due, unless it was cancelled. Pure.

A record with the header `ottla.delay.cancel` cancels the records with that `ottla.delay.id` that were parked before it;
a record with `ottla.delay.replace` cancels the earlier ones of its own id. Cancels are remembered, the ids of parked
records are not: an id is looked at when its record is due. A cancel is forgotten when no record before it is owed, and
the gate refuses further ones at `ottla.delay.cancelled.max`. What the headers may be is checked when a record is
parked (`delay_admission.py`).
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.model.dead_letters import DeadLetter, Origin, story_headers
from ottla.model.ids import Offset, TopicPartition
from ottla.model.queue_names import CANCEL, DELAY_CANCEL, DELAY_ID, DELAY_REPLACE, DUE_MS, RELEASE
from ottla.queues.cancelled_ids import CancelledIds
from ottla.queues.dead_letters import DeadLetterPlace
from ottla.queues.kinds.kind import NOTHING, Consequence, Deliver, Drop, Found, Verdict
from ottla.queues.offset_runs import offsets_of
from ottla.queues.progress_records import Action, Plan, Settled
from ottla.queues.settled_offsets import SettledOffsets
from ottla.records.batch import Batch
from ottla.records.header_edit import HeaderNames, find_headers, find_numbers
from ottla.records.murmur2 import partition_for_key
from ottla.records.payload import read_payload
from ottla.records.record import Headers, Record

_DUE: Final = HeaderNames(DUE_MS)
_MARKS: Final = HeaderNames(DELAY_CANCEL, DELAY_ID, DELAY_REPLACE, RELEASE, CANCEL)


class Cancel(NamedTuple):
    """Records with this id that were parked before the offset are not delivered."""

    id: bytes
    before: int


class DelayQueue:
    """The delayed records for one partition of a topic; `dead_letters` says where its dead letters go."""

    name = "delayed"
    dropped_headers: Sequence[str] = ()
    dropped_from_dead: Sequence[str] = ()

    def __init__(self, target: TopicPartition, dead_letters: Callable[[], DeadLetterPlace]) -> None:
        self._target = target
        self._dead_letters = dead_letters
        self._deliver = Deliver(target)
        self._cancels = CancelledIds(SettledOffsets(0))
        self._grew_at = Offset(0)
        self._partitions = 0

    def begin(self, settled: SettledOffsets) -> None:
        """Cancels before which nothing is owed are not needed."""
        self._cancels = CancelledIds(settled)

    # What the gate asks

    @property
    def cancel_count(self) -> int:
        """How many cancelled ids are remembered."""
        return len(self._cancels)

    def is_cancelled(self, id: bytes) -> bool:
        """Whether this id is remembered."""
        return id in self._cancels

    def is_full(self, most: int) -> bool:
        """Whether this many cancelled ids are remembered, and still needed."""
        if len(self._cancels) >= most:
            self._cancels.forget()
        return len(self._cancels) >= most

    # Reading the log

    def read(self, batch: Batch) -> Found:
        """All records but instructions are parked."""
        count, base = batch.count, int(batch.base_offset)
        payload = read_payload(batch)
        (due_ms,) = find_numbers(payload, count, _DUE)
        offsets = offsets_of((base, count))
        marked = find_headers(payload, count, _MARKS)
        if not marked:
            return Found(due_ms, offsets)
        cancels: list[Cancel] = []
        released: list[tuple[int, int]] = []
        cancelled: list[int] = []
        dropped: list[int] = []
        for at, (cancel, id, replace, release, cancel_at) in marked:
            if release is not None:
                released.append((int(release), due_ms[at]))
                dropped.append(at)
            elif cancel_at is not None:
                cancelled.append(int(cancel_at))
                dropped.append(at)
            elif cancel is not None:
                cancels.append(Cancel(cancel, base + at))
                dropped.append(at)
            elif id is not None and replace == b"true":
                cancels.append(Cancel(id, base + at))
        for at in reversed(dropped):
            del due_ms[at], offsets[at]
        return Found(due_ms, offsets, cancels, released, cancelled)

    def apply(self, found: Found) -> Consequence:
        """Remembers cancels, and forgets those that are not needed any more."""
        for cancel in found.instructions:
            if isinstance(cancel, Cancel):
                self._cancels.add(cancel.id, cancel.before)
        self._cancels.forget()
        return NOTHING

    def on_progress(self, record: Plan | Settled) -> None:
        """Nothing to remember."""

    def uniform_verdict(self) -> Verdict | None:
        """Deliver, as long as no record can be cancelled or belong elsewhere."""
        return None if self._cancels or self._grew_at else self._deliver

    def verdict(self, record: Record, now_ms: int) -> Verdict:
        """Deliver to the partition where it was parked, or where its key belongs after the topic grew."""
        if self._cancels:
            id = next((value for name, value in reversed(record.headers) if name == DELAY_ID), None)
            if id is not None and self._cancels.covers(id, record.offset):
                return Drop()
        if record.offset < self._grew_at and record.key is not None:
            return Deliver(TopicPartition(self._target.topic, partition_for_key(record.key, self._partitions)))
        return self._deliver

    def dead_letter_sink(self) -> TopicPartition:
        """The partition of the dead-letter topic that belongs to this one."""
        return self._dead_letters().sink

    def is_stamping(self, action: Action) -> bool:
        """Only dead letters get more than their origin."""
        return action is Action.DEAD

    def added_headers(self, action: Action, detail: str, record: Record) -> Headers:
        """Where a dead letter comes from, and why."""
        origin = Origin(topic=self._target.topic, partition=self._target.partition)
        return tuple(story_headers(DeadLetter(origin=origin, reason=detail), self._dead_letters().headers))

    def on_partitions(self, partitions: int, grew_at: Offset) -> None:
        """Records parked before the topic grew are delivered by their key."""
        self._partitions, self._grew_at = partitions, grew_at

    def needed_from(self) -> int | None:
        """Cancels come after the records that they are about."""
        return None

    def on_start(self, start_offset: Offset) -> None:
        """Forgets what is about records below the log start: they are gone."""
        self._cancels.forget()
        if self._grew_at <= start_offset:
            self._grew_at = Offset(0)
