"""One share-partition: which records of a partition its group has in flight, and who has them.

Pure. The offsets from the start offset on up to the next one to deliver are covered by runs without a gap; a run is a
range of offsets in the same state. A record is available, acquired by one member until a deadline, or done:
acknowledged or archived. The start offset moves over what is done. An acknowledgement takes effect when the share
coordinator has stored it (`Persist`, `on_persisted`); until then its runs are pending and no other member gets them. A
lock that expires takes effect at once. What is acquired is not stored: after a failover it is available again.

If the group has a dead-letter topic, a record that was rejected or delivered too often is archiving first: its dead
letter is to be written (`take_dead_letters`), and then it is archived (`on_dead_letters`). Archiving is stored, so that
the next leader writes the dead letter if this one cannot.

The shell, `share_partition.py`, reads the log, talks to the share coordinator and has the timer.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from ottla.coordination.share_partitions.settings import SharePartitionSettings
from ottla.coordination.share_partitions.share_counts import ShareCounts
from ottla.coordination.share_state.state_batches import StateBatch
from ottla.model.error_codes import ErrorCode
from ottla.model.invariants import violated

_THROTTLE_COUNT_MIN: Final = 2


class RecordState(IntEnum):
    """The state of a record, by its number in the share coordinator's records."""

    AVAILABLE = 0
    """Can be acquired, after its backoff. Exits: acquired; archived, if the log no longer has it."""
    ACQUIRED = 1
    """A member has it. Exits: acknowledged, archiving, archived or available again; by the member, its session, or the
    lock."""
    ACKNOWLEDGED = 2
    """Processed. No exit."""
    ARCHIVING = 3
    """Rejected or delivered too often, and its dead letter is not written yet. Exit: archived, when it is written or
    cannot be."""
    ARCHIVED = 4
    """Rejected, delivered too often, or without a record. No exit."""


TERMINAL: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class DeadReason(Enum):
    """Why a record gets a dead letter; the value is for people."""

    REJECTED = "the share group rejected the record"
    TOO_OFTEN = "the record reached the delivery limit of the share group"


class AcknowledgeType(IntEnum):
    """What a member says of a record that it has acquired."""

    GAP = 0
    """There is no record at this offset."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """It needs more time."""


_OUTCOMES: Final = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


class AcquireMode(IntEnum):
    """How the number of records of a fetch is limited."""

    BATCH_OPTIMIZED = 0
    """A batch that is begun is delivered whole, even if that is more than was asked for."""
    RECORD_LIMIT = 1
    """Never more than was asked for."""


class Span(NamedTuple):
    """A range of offsets, both ends included."""

    first: int
    last: int


class Acquired(NamedTuple):
    """Records that a member has acquired; for the fetch response."""

    first: int
    last: int
    delivery_count: int


class DeadLetters(NamedTuple):
    """Effect: dead letters are to be written for these offsets; then `on_dead_letters`."""

    first: int
    last: int
    delivery_count: int
    reason: DeadReason


class Acknowledgement(NamedTuple):
    """One type for a range of offsets."""

    first: int
    last: int
    type: AcknowledgeType


@dataclass(slots=True)
class Run:
    """Offsets in one state. `pending` is the id of the write that will bring them to `target`, if it succeeds."""

    first: int
    last: int
    state: RecordState
    delivery_count: int = 0
    member_id: str = ""
    deadline_ms: int = 0
    """When the lock of acquired records expires."""
    ready_ms: int = 0
    """When available records may be acquired again."""
    pending: int | None = None
    target: RecordState | None = None
    is_rejected: bool = False
    """Whether archiving records were rejected by a member."""
    is_taken: bool = False
    """Whether the shell has the archiving records, to write their dead letters."""

    def is_ready(self, now_ms: int) -> bool:
        """Whether the records can be acquired now."""
        return self.state is RecordState.AVAILABLE and self.ready_ms <= now_ms

    def resembles(self, other: "Run") -> bool:
        """Whether both are in the same state, so that they can be one run."""
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.pending == other.pending
            and self.target is other.target
            and self.member_id == other.member_id
            and self.deadline_ms == other.deadline_ms
            and self.ready_ms == other.ready_ms
            and self.is_rejected == other.is_rejected
            and self.is_taken == other.is_taken
        )


class Persist(NamedTuple):
    """Effect: the share coordinator is to store this, with what `outlook` says when it is sent; the outcome comes with
    `on_persisted`."""

    id: int
    batches: tuple[StateBatch, ...]


class Outlook(NamedTuple):
    """The start offset, and how many offsets from there on are done."""

    start_offset: int
    delivery_complete_count: int


class AcknowledgeRefusedError(Exception):
    """The acknowledgements of a request are not valid; none of them was applied."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class SharePartitionState:
    """The runs of one share-partition.

    `start_offset` never goes back; everything below is done. `next_offset` is the first that was never delivered.
    """

    def __init__(
        self,
        settings: SharePartitionSettings,
        start_offset: int,
        batches: Iterable[StateBatch] = (),
        counts: ShareCounts | None = None,
    ) -> None:
        self.settings = settings
        self.counts = counts or ShareCounts()
        self.start_offset = start_offset
        self.next_offset = start_offset
        self.runs: list[Run] = []
        """Ascending, without a gap, from `start_offset` to `next_offset`."""
        self._next_id = 0
        self._owes_letters = False
        """Whether a run may be archiving that was not taken."""
        self._gone: list[Run] = []
        """Runs that owe dead letters, or will when that is stored, and whose records the log no longer has: ascending,
        below the start offset. What is stored does not pass them, so that the next leader finds them."""
        for batch in sorted(batches):
            self._load(batch)
        self._advance()

    def _load(self, batch: StateBatch) -> None:
        first, last = max(batch.first_offset, self.next_offset), batch.last_offset
        if first > last:
            return
        if first > self.next_offset:
            # In flight when the former leader stopped; how often it was delivered is not known.
            self._append(Run(self.next_offset, first - 1, RecordState.AVAILABLE))
        is_kept = batch.delivery_state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVING, RecordState.ARCHIVED)
        state = RecordState(batch.delivery_state) if is_kept else RecordState.AVAILABLE
        self._owes_letters |= state is RecordState.ARCHIVING
        self._append(Run(first, last, state, batch.delivery_count))

    def _append(self, run: Run) -> None:
        """Adds the run that begins at `next_offset`."""
        if self.runs and self.runs[-1].resembles(run):
            self.runs[-1].last = run.last
        else:
            self.runs.append(run)
        self.next_offset = run.last + 1

    # Acquiring

    @property
    def in_flight(self) -> int:
        """How many offsets were delivered and are not below the start offset, or still owe a dead letter."""
        return self.next_offset - self.start_offset + sum(map(_size, self._gone))

    def fetch_offset(self, now_ms: int) -> int | None:
        """Where to read for the next member; None if there is nothing to acquire now, whatever the log has."""
        for run in self.runs:
            if run.is_ready(now_ms):
                return run.first
        return self.next_offset if self.in_flight < self.settings.in_flight_max else None

    def acquire(
        self,
        member_id: str,
        fetch_offset: int,
        batches: Sequence[Span],
        *,
        now_ms: int,
        max_records: int,
        batch_size: int = 500,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        skipped: Sequence[Span] = (),
    ) -> list[Acquired]:
        """Gives a member what it can have of what was read at `fetch_offset`, ascending.

        `batches` are the offsets of the batches that were read, `skipped` those of them that must not be delivered, as
        parts of aborted transactions. Offsets without a record before the first batch are archived.
        """
        if not batches or max_records <= 0:
            return []
        self._archive(Span(fetch_offset, batches[0].first - 1))
        for span in skipped:
            # Those next to what was delivered are done at once, so that they do not use up `max_records`.
            self._archive(span, only_known=span.first > self.next_offset)
        read = Span(max(fetch_offset, batches[0].first, self.start_offset), batches[-1].last)
        limit = _Limit(max_records, mode, batches)
        found = self._acquire_known(member_id, read, limit, now_ms)
        if not limit.is_reached and self.next_offset <= read.last:
            found += self._acquire_new(member_id, read, limit, batch_size, now_ms)
        if skipped:
            found = self._without(found, skipped)
        self._advance()
        for each in found:
            self.counts.acquired += each.last - each.first + 1
            if each.delivery_count > 1:
                self.counts.redelivered += each.last - each.first + 1
        return found

    def _acquire_known(self, member_id: str, read: Span, limit: "_Limit", now_ms: int) -> list[Acquired]:
        """Records that were delivered before, and are available again."""
        found: list[Acquired] = []
        highest = self.settings.delivery_count_limit
        # From half of the limit on, ever fewer records are delivered together, and for the last time each one alone:
        # one bad record must not take its neighbours with it.
        throttled = max(_THROTTLE_COUNT_MIN, -(-highest // 2))
        for run in [each for each in self._overlapping(read) if each.is_ready(now_ms)]:
            if limit.is_reached:
                break
            first, last = max(run.first, read.first), min(run.last, read.last)
            if run.delivery_count >= highest:
                # The limit was lowered since.
                self.counts.limit_reached += last - first + 1
                self._owes_letters = True
                for part in self._split(Span(first, last)):
                    part.state, part.ready_ms = self._dead, 0
                continue
            if run.delivery_count >= throttled:
                if found:
                    limit.stop()
                    break
                room = max(1, (run.last - run.first + 1) >> (run.delivery_count - throttled + 1))
                is_last_chance = highest > _THROTTLE_COUNT_MIN and run.delivery_count >= highest - 1
                last = min(last, first + (0 if is_last_chance else room - 1))
                limit.stop()
            last = min(last, limit.take(first, last))
            for part in self._split(Span(first, last)):
                part.state = RecordState.ACQUIRED
                part.delivery_count += 1
                part.member_id = member_id
                part.deadline_ms = now_ms + self.settings.lock_duration_ms
                found.append(Acquired(part.first, part.last, part.delivery_count))
        return found

    def _acquire_new(self, member_id: str, read: Span, limit: "_Limit", batch_size: int, now_ms: int) -> list[Acquired]:
        """Records that were never delivered."""
        room = self.settings.in_flight_max - self.in_flight
        if room <= 0:
            return []
        first = self.next_offset
        last = limit.take(first, read.last, room)
        deadline_ms = now_ms + self.settings.lock_duration_ms
        self._append(Run(first, last, RecordState.ACQUIRED, 1, member_id, deadline_ms))
        if limit.mode is AcquireMode.RECORD_LIMIT:
            return [Acquired(first, last, 1)]
        found = []
        for span in limit.batches:
            if span.first > last:
                break
            if span.first - first >= max(batch_size, 1):
                found.append(Acquired(first, span.first - 1, 1))
                first = span.first
        found.append(Acquired(first, last, 1))
        return found

    def _archive(self, span: Span, *, only_known: bool = False) -> None:
        """There is nothing to deliver at these offsets: those that are available are done."""
        if span.last < span.first:
            return
        for run in [each for each in self._overlapping(span) if each.state is RecordState.AVAILABLE]:
            for part in self._split(Span(max(run.first, span.first), min(run.last, span.last))):
                part.state = RecordState.ARCHIVED
                part.ready_ms = 0
        if not only_known and self.next_offset <= span.last:
            self._append(Run(self.next_offset, span.last, RecordState.ARCHIVED))
        self._advance()

    def _without(self, found: Sequence[Acquired], skipped: Sequence[Span]) -> list[Acquired]:
        """What was acquired, without what must not be delivered, which is done."""
        left: list[Acquired] = []
        for each in found:
            first = each.first
            for span in skipped:
                begin, end = max(first, span.first), min(each.last, span.last)
                if begin > end:
                    continue
                for part in self._split(Span(begin, end)):
                    part.state, part.member_id, part.deadline_ms = RecordState.ARCHIVED, "", 0
                if begin > first:
                    left.append(Acquired(first, begin - 1, each.delivery_count))
                first = end + 1
            if first <= each.last:
                left.append(Acquired(first, each.last, each.delivery_count))
        return left

    # Acknowledging

    def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement], now_ms: int) -> Persist | None:
        """Takes what a member says of its records: all of it, or none (`AcknowledgeRefusedError`).

        None if there is nothing to store. Offsets below the start offset are done already, and ignored.
        """
        known = [each for each in acknowledgements if each.last >= self.start_offset]
        last: int | None = None
        for each in known:
            if last is not None and each.first <= last:
                raise AcknowledgeRefusedError(
                    ErrorCode.INVALID_RECORD_STATE, "An offset is acknowledged more than once in the request."
                )
            last = each.last
            self._check_acknowledged(member_id, each)
        changed: list[Run] = []
        for each in known:
            span = Span(max(each.first, self.start_offset), each.last)
            for run in self._split(span):
                if each.type is AcknowledgeType.RENEW:
                    run.deadline_ms = now_ms + self.settings.lock_duration_ms
                else:
                    self._begin(run, _OUTCOMES[each.type], changed)
                    if each.type is AcknowledgeType.REJECT:
                        run.target, run.is_rejected = self._dead, True
            self.counts.acknowledged[each.type] += span.last - span.first + 1
        return self._persist(changed)

    def _check_acknowledged(self, member_id: str, each: Acknowledgement) -> None:
        if each.last >= self.next_offset:
            raise AcknowledgeRefusedError(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The last offset in request is past acquired records.",
            )
        for run in self._overlapping(Span(max(each.first, self.start_offset), each.last)):
            if run.state is not RecordState.ACQUIRED:
                raise AcknowledgeRefusedError(
                    ErrorCode.INVALID_RECORD_STATE, "The offset cannot be acknowledged. The offset is not acquired."
                )
            if run.pending is not None:
                raise AcknowledgeRefusedError(
                    ErrorCode.INVALID_RECORD_STATE,
                    "The record state is invalid. The acknowledgement of delivery could not be completed.",
                )
            if run.member_id != member_id:
                raise AcknowledgeRefusedError(
                    ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of the acquired records."
                )
        if each.type is AcknowledgeType.RENEW and not self.settings.allows_renewal:
            raise AcknowledgeRefusedError(
                ErrorCode.INVALID_RECORD_STATE, "Renewing acquisition locks is not enabled for the group."
            )

    def release_member(self, member_id: str, now_ms: int) -> Persist | None:
        """A member's session ended: what it has acquired is released, unless that is under way."""
        changed: list[Run] = []
        for run in self.runs:
            if run.state is RecordState.ACQUIRED and run.member_id == member_id and run.pending is None:
                self._begin(run, RecordState.AVAILABLE, changed)
        return self._persist(changed)

    def _begin(self, run: Run, target: RecordState, changed: list[Run]) -> None:
        run.pending = self._next_id
        run.target = self._bounded(target, run.delivery_count)
        if run.target is not target:
            self.counts.limit_reached += run.last - run.first + 1
        changed.append(run)

    def _bounded(self, target: RecordState, delivery_count: int) -> RecordState:
        """A record that was delivered as often as it may be is not available again."""
        is_over = target is RecordState.AVAILABLE and delivery_count >= self.settings.delivery_count_limit
        return self._dead if is_over else target

    @property
    def _dead(self) -> RecordState:
        """What becomes of a record that is rejected or was delivered too often."""
        return RecordState.ARCHIVING if self.settings.dead_letter_topic else RecordState.ARCHIVED

    def _persist(self, changed: Sequence[Run]) -> Persist | None:
        if not changed:
            return None
        write_id, self._next_id = self._next_id, self._next_id + 1
        batches = [
            StateBatch(run.first, run.last, run.state if run.target is None else run.target, run.delivery_count)
            for run in changed
        ]
        return Persist(write_id, _joined(batches))

    def outlook(self, write_ids: Collection[int] = ()) -> Outlook:
        """What is stored with these writes: how things are if they succeed."""
        start_offset = self.start_offset
        complete = 0
        is_prefix = True
        for run in self.runs:
            state = run.target if run.pending in write_ids else run.state
            is_done = state in TERMINAL
            if is_prefix and is_done:
                start_offset = run.last + 1
            else:
                is_prefix = False
                complete += (run.last - run.first + 1) if is_done else 0
        if self._gone:
            first = self._gone[0].first
            complete += start_offset - first - sum(map(_size, self._gone))
            start_offset = first
        return Outlook(start_offset, complete)

    def on_persisted(self, write_id: int, now_ms: int, *, is_stored: bool) -> bool:
        """A write has succeeded or failed. Returns whether a member may find something new now.

        If it failed its records are as before: acquired, until their lock expires.
        """
        is_news = False
        touched = [run for run in (*self._gone, *self.runs) if run.pending == write_id]
        for run in touched:
            target = run.target
            run.pending = run.target = None
            if not is_stored or target is None:
                run.is_rejected = False
                continue
            run.state = target
            run.is_rejected = run.is_rejected and target is RecordState.ARCHIVING
            self._owes_letters |= target is RecordState.ARCHIVING
            run.member_id, run.deadline_ms = "", 0
            if target is RecordState.AVAILABLE:
                delay_ms = self.settings.release_delay_ms(run.delivery_count)
                run.ready_ms = now_ms + delay_ms if delay_ms else 0
            is_news = True
        self._gone = [run for run in self._gone if run.pending is not None or run.state is RecordState.ARCHIVING]
        self._advance()
        self._join()
        return is_news

    # Dead letters

    def take_dead_letters(self) -> list[DeadLetters]:
        """The dead letters that are to be written and were not taken before, ascending.

        Why a record died is not stored: if a former leader knew, it is inferred from the delivery count.
        """
        if not self._owes_letters:
            return []
        self._owes_letters = False
        found: list[DeadLetters] = []
        for run in (*self._gone, *self.runs):
            if run.state is RecordState.ARCHIVING and not run.is_taken:
                run.is_taken = True
                is_rejected = run.is_rejected or run.delivery_count < self.settings.delivery_count_limit
                reason = DeadReason.REJECTED if is_rejected else DeadReason.TOO_OFTEN
                found.append(DeadLetters(run.first, run.last, run.delivery_count, reason))
        return found

    def on_dead_letters(self, span: Span) -> Persist | None:
        """The dead letters of these offsets are written, or cannot be: the records are archived at once, stored or
        not. If that is not stored, the next leader writes the dead letters again."""
        changed = self._take_gone(span)
        held = Span(max(span.first, self.start_offset), span.last)
        if held.first <= held.last:
            changed += [run for run in self._split(held) if run.state is RecordState.ARCHIVING]
        for run in changed:
            run.state, run.is_rejected, run.is_taken = RecordState.ARCHIVED, False, False
        persist = self._persist(changed)
        self._advance()
        self._join()
        return persist

    def _take_gone(self, span: Span) -> list[Run]:
        """Removes these offsets from what is owed of records that the log no longer has."""
        taken: list[Run] = []
        left: list[Run] = []
        for run in self._gone:
            first, last = max(run.first, span.first), min(run.last, span.last)
            if first > last or run.state is not RecordState.ARCHIVING:
                left.append(run)
                continue
            taken.append(replace(run, first=first, last=last))
            if run.first < first:
                left.append(replace(run, last=first - 1))
            if last < run.last:
                left.append(replace(run, first=last + 1))
        self._gone = left
        return taken

    # Time

    def next_deadline(self) -> int | None:
        """When `on_tick` must be called next: a lock expires, or records have waited long enough."""
        deadlines = [
            run.deadline_ms if run.state is RecordState.ACQUIRED else run.ready_ms
            for run in self.runs
            if (run.state is RecordState.ACQUIRED and run.pending is None)
            or (run.state is RecordState.AVAILABLE and run.ready_ms)
        ]
        return min(deadlines, default=None)

    def on_tick(self, now_ms: int) -> tuple[Persist | None, bool]:
        """Ends the locks that have expired. Returns what is to be stored, and whether a member may find something new.

        Members can have the records at once, whether or not that is stored.
        """
        changed: list[Run] = []
        is_news = False
        for run in self.runs:
            if run.state is RecordState.AVAILABLE and 0 < run.ready_ms <= now_ms:
                run.ready_ms = 0
                is_news = True
            elif run.state is RecordState.ACQUIRED and run.pending is None and run.deadline_ms <= now_ms:
                run.state = self._bounded(RecordState.AVAILABLE, run.delivery_count)
                run.member_id, run.deadline_ms = "", 0
                self.counts.locks_expired += run.last - run.first + 1
                if run.state is not RecordState.AVAILABLE:
                    self._owes_letters = True
                    self.counts.limit_reached += run.last - run.first + 1
                changed.append(run)
        persist = self._persist(changed)
        self._advance()
        self._join()
        return persist, is_news or persist is not None

    # The log

    def on_log_start(self, log_start: int) -> None:
        """The log no longer has what is below this offset, so that it is done.

        Of a record that was rejected there is a dead letter all the same, once that is stored.
        """
        if log_start <= self.start_offset:
            return
        self._cut(log_start)
        kept = bisect_left(self.runs, log_start, key=_first)
        gone, self.runs = self.runs[:kept], self.runs[kept:]
        self._gone += [run for run in gone if RecordState.ARCHIVING in (run.state, run.target)]
        self.start_offset = log_start
        self.next_offset = max(self.next_offset, log_start)
        self._advance()

    # Runs

    def _index(self, offset: int) -> int:
        """The place of the run that has an offset."""
        return bisect_right(self.runs, offset, key=_first) - 1

    def _overlapping(self, span: Span) -> Iterator[Run]:
        at = max(self._index(span.first), 0)
        while at < len(self.runs) and self.runs[at].first <= span.last:
            if self.runs[at].last >= span.first:
                yield self.runs[at]
            at += 1

    def _cut(self, offset: int) -> None:
        """Makes a run begin at this offset, if one has it."""
        at = self._index(offset)
        if at < 0 or not self.runs[at].first < offset <= self.runs[at].last:
            return
        run = self.runs[at]
        self.runs.insert(at + 1, replace(run, first=offset))
        run.last = offset - 1

    def _split(self, span: Span) -> list[Run]:
        """The runs of exactly these offsets."""
        self._cut(span.first)
        self._cut(span.last + 1)
        return list(self._overlapping(span))

    def _advance(self) -> None:
        """Moves the start offset over what is done."""
        done = 0
        for run in self.runs:
            if run.state not in TERMINAL:
                break
            done += 1
        if done:
            self.start_offset = self.runs[done - 1].last + 1
            del self.runs[:done]

    def _join(self) -> None:
        """Makes neighbours in the same state one run."""
        joined: list[Run] = []
        for run in self.runs:
            if joined and joined[-1].resembles(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self.runs = joined

    def check(self) -> None:
        """Raises when an invariant does not hold."""
        at = -1
        for run in self._gone:
            if not at < run.first <= run.last < self.start_offset:
                violated(f"records {run}, which the log no longer has, are not between {at} and {self.start_offset}")
            if RecordState.ARCHIVING not in (run.state, run.target):
                violated(f"records {run}, which the log no longer has, owe no dead letter")
            at = run.last
        at = self.start_offset
        for run in self.runs:
            if run.first != at or run.last < run.first:
                violated(f"a share-partition's run {run} does not begin at {at}")
            at = run.last + 1
            if run.delivery_count > self.settings.delivery_count_limit:
                violated(f"records {run} were delivered more often than {self.settings.delivery_count_limit} times")
            if (run.state is RecordState.ACQUIRED) != bool(run.member_id):
                violated(f"records {run} are acquired without a member, or have a member without being acquired")
            if run.pending is not None and run.state is not RecordState.ACQUIRED:
                violated(f"records {run} are pending without being acquired")
            if (run.is_taken or (run.is_rejected and run.pending is None)) and run.state is not RecordState.ARCHIVING:
                violated(f"records {run} have a dead letter without being archiving")
            if (run.pending is None) != (run.target is None):
                violated(f"records {run} have a target without a write, or a write without a target")
        if at != self.next_offset:
            violated(f"a share-partition's runs end at {at}, not at {self.next_offset}")
        if self.runs and self.runs[0].state in TERMINAL:
            violated(f"the start offset {self.start_offset} did not move over {self.runs[0]}")


class _Limit:
    """How many records a fetch may still have."""

    __slots__ = ("_is_stopped", "_left", "batches", "mode")

    def __init__(self, max_records: int, mode: AcquireMode, batches: Sequence[Span]) -> None:
        self.mode = mode
        self.batches = batches
        self._left = max_records
        self._is_stopped = False

    @property
    def is_reached(self) -> bool:
        return self._is_stopped or self._left <= 0

    def stop(self) -> None:
        """Nothing more after what is being acquired."""
        self._is_stopped = True

    def take(self, first: int, last: int, room: int | None = None) -> int:
        """Takes offsets from `first` on, `last` at most; returns the last one. A batch that is begun may be taken
        whole, even if there is less room."""
        left = self._left if room is None else min(self._left, room)
        end = first + left - 1
        if self.mode is AcquireMode.BATCH_OPTIMIZED and end < last:
            at = bisect_right(self.batches, end, key=_first) - 1
            if at >= 0:
                end = max(end, self.batches[at].last)
        end = min(end, last)
        self._left -= end - first + 1
        return end


def _first(range_: Run | Span) -> int:
    return range_.first


def _size(run: Run) -> int:
    return run.last - run.first + 1


def _joined(batches: Iterable[StateBatch]) -> tuple[StateBatch, ...]:
    """Neighbours in the same state as one batch."""
    joined: list[StateBatch] = []
    for batch in sorted(batches):
        last = joined[-1] if joined else None
        if last is not None and last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
            joined[-1] = last._replace(last_offset=batch.last_offset)
        else:
            joined.append(batch)
    return tuple(joined)
