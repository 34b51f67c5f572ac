"""Retry: a record that was handed back returns to its group when it is due, or becomes a dead letter. Pure.

It returns on the same partition of `<topic>.<group>.redelivery`, with its headers. Which records are dead was decided
when they were parked (`retry_admission.py`). With `ottla.retry.order=key`, a record waits for those with the same key
that were handed back before it.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.model import dead_letters
from ottla.model.dead_letters import Origin, parse_origin, story_headers
from ottla.model.ids import Offset, TopicPartition
from ottla.model.queue_names import (
    CANCEL,
    DEAD,
    DUE_MS,
    RELEASE,
    RETRY_ATTEMPT,
    RETRY_EXCEPTION,
    RETRY_ORIGIN,
    redelivery_topic,
    retry_topic,
)
from ottla.queues.dead_letters import DeadLetterPlace
from ottla.queues.kinds.kind import NOTHING, Consequence, DeadLetter, Deliver, Found, Later, Verdict
from ottla.queues.offset_runs import offsets_of
from ottla.queues.progress_records import Action, Plan, Settled
from ottla.queues.settled_offsets import SettledOffsets
from ottla.records.batch import Batch
from ottla.records.decode import decode_records
from ottla.records.header_edit import HeaderNames, find_headers, find_numbers
from ottla.records.payload import read_payload
from ottla.records.record import Headers, Record

_DUE: Final = HeaderNames(DUE_MS)
_MARKS: Final = HeaderNames(DEAD, RELEASE, CANCEL)


class _Waiting(NamedTuple):
    """A record whose key keeps its order."""

    key: bytes
    offset: int
    due_ms: int


class RetryQueue:
    """The records that one group handed back on one partition of a topic."""

    name = "retry"
    dropped_headers: Sequence[str] = ()
    dropped_from_dead: Sequence[str] = ()

    def __init__(
        self,
        target: TopicPartition,
        group: str,
        dead_letters: Callable[[], DeadLetterPlace],
        keeps_key_order: Callable[[], bool] = lambda: False,
    ) -> None:
        self._target = target
        self._group = group
        self._dead_letters = dead_letters
        self._deliver = Deliver(TopicPartition(redelivery_topic(target.topic, group), target.partition))
        self._last_dead = -1
        """The highest offset of a dead record."""
        self._keeps_key_order = keeps_key_order
        self._waiting: dict[bytes | None, dict[int, _Waiting]] = {}
        """The records of each key that were handed back, by their offset."""
        self._settled = SettledOffsets(0)

    def begin(self, settled: SettledOffsets) -> None:
        """Records that were settled before a restart hold up nothing."""
        self._settled = settled

    def read(self, batch: Batch) -> Found:
        """All records but instructions are parked.

        What the queue remembers of them: the last one that is dead, and those whose key keeps its order.
        """
        count, base = batch.count, int(batch.base_offset)
        payload = read_payload(batch)
        (due_ms,) = find_numbers(payload, count, _DUE)
        offsets = offsets_of((base, count))
        dead: list[int] = []
        released: list[tuple[int, int]] = []
        cancelled: list[int] = []
        dropped: list[int] = []
        for at, (_, release, cancel) in find_headers(payload, count, _MARKS):
            if release is not None:
                released.append((int(release), due_ms[at]))
                dropped.append(at)
            elif cancel is not None:
                cancelled.append(int(cancel))
                dropped.append(at)
            else:
                dead.append(base + at)
        instructions: list[object] = [*dead[-1:]]
        if self._keeps_key_order():
            records = zip(decode_records(batch), due_ms, strict=True)
            instructions += [
                _Waiting(each.key, each.offset, due)
                for at, (each, due) in enumerate(records)
                if each.key is not None and at not in dropped
            ]
        for at in reversed(dropped):
            del due_ms[at], offsets[at]
        return Found(due_ms, offsets, instructions, released, cancelled)

    def apply(self, found: Found) -> Consequence:
        """Remembers that there are dead records, and the order of keys."""
        for each in found.instructions:
            if isinstance(each, int):
                self._last_dead = max(self._last_dead, each)
            elif isinstance(each, _Waiting):
                self._waiting.setdefault(each.key, {})[each.offset] = each
        return NOTHING

    def on_progress(self, record: Plan | Settled) -> None:
        """Nothing to remember."""

    def uniform_verdict(self) -> Verdict | None:
        """Deliver, as long as the log has no dead records and no keys that keep their order."""
        return self._deliver if self._last_dead < 0 and not self._waiting else None

    def verdict(self, record: Record, now_ms: int) -> Verdict:
        """Dead, if the gate said so; later, if an earlier record of the key is still owed."""
        blocking = self._blocking(record, record.key) if record.key in self._waiting else None
        if blocking is not None:
            return Later(max(blocking.due_ms, now_ms + 1))
        # The reason is in the record: with one verdict for all, dead letters share batches.
        return DeadLetter("") if any(name == DEAD for name, _ in record.headers) else self._deliver

    def _blocking(self, record: Record, key: bytes | None) -> _Waiting | None:
        """The record that this one waits for; without one, this one does not hold up others any more."""
        waiting = self._waiting[key]
        while waiting:
            first = waiting[min(waiting)]
            if first.offset >= record.offset:
                break
            if first.offset not in self._settled:
                return first
            del waiting[first.offset]
        waiting.pop(record.offset, None)
        if not waiting:
            del self._waiting[key]
        return None

    def dead_letter_sink(self) -> TopicPartition:
        """The partition of the dead-letter topic that belongs to this one."""
        return self._dead_letters().sink

    def is_stamping(self, action: Action) -> bool:
        """Dead letters tell their story."""
        return action is Action.DEAD

    def added_headers(self, action: Action, detail: str, record: Record) -> Headers:
        """Where a dead letter was delivered first, how often, and why it is dead; `detail` if the sink refused it."""
        values = {name: value for name, value in record.headers if value is not None}
        origin = parse_origin(values.get(RETRY_ORIGIN))
        letter = dead_letters.DeadLetter(
            origin=origin or Origin(topic=self._target.topic, partition=self._target.partition),
            reason=detail or values.get(DEAD, b"").decode(errors="replace"),
            exception=values[RETRY_EXCEPTION].decode(errors="replace") if RETRY_EXCEPTION in values else None,
            group=self._group,
            attempts=int(values[RETRY_ATTEMPT]) if RETRY_ATTEMPT in values else None,
        )
        return tuple(story_headers(letter, self._dead_letters().headers))

    def on_partitions(self, partitions: int, grew_at: Offset) -> None:
        """Its records return on their own partition: it exists as long as the topic does."""

    def needed_from(self) -> int | None:
        """Its memory follows from records that are owed."""
        return None

    def on_start(self, start_offset: Offset) -> None:
        """Forgets dead records below the log start; what waits there was settled, and is forgotten when it matters."""
        if self._last_dead < start_offset:
            self._last_dead = -1


def group_of(companion: str, topic: str) -> str:
    """The group whose records a retry companion of a topic takes back."""
    before, after = retry_topic(topic, "|").split("|")
    return companion.removeprefix(before).removesuffix(after)
