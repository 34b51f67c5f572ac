"""What a queue owes and how far each delivery is: the pure core of a queue shard.

Everything here follows from the companion partition's log, read in order up to the high watermark: `on_data`,
`on_marker`, `on_progress`. What the leader decides is written to the log first (`draft` and others return the record to
write) and counts when it is read back, so a new leader that reads the same log knows the same.

The life of a parked record:

    owed         in the due index of the shell; an open transaction's records are held until its marker
    planned      a Plan for it is committed; its batch is appended to the sink, again and again until acknowledged
    done         acknowledged; the next Plan for the sink, or a Done, says so in the log
    settled      planned, cancelled, aborted, or not a parked record at all: it will not be planned again

Each sink has one plan at a time. Its batch has the queue's producer id and the plan's epoch and sequences, and is sent
again after a crash: the sink recognises the repeated batch, so it is there once. A refusal for good ends the epoch.

The end of the log may be lost, by a power cut or an unclean election, and with it plans that were carried out. If a new
plan had the sequences of a lost one, the sink would take its batch for a repeated one, and the records would be lost.
So the first plan of each leader for a sink begins a new epoch, and until a plan of this leader is in the sink, the sink
is asked first whether it already has a batch with these sequences (`Send.asks_first`).
"""

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.model.ids import Offset, ProducerId, TopicPartition
from ottla.model.invariants import violated
from ottla.queues.kinds.kind import Found
from ottla.queues.offset_runs import offsets_of, runs_of
from ottla.queues.progress_records import (
    Action,
    Done,
    Grew,
    Plan,
    ProgressRecord,
    Refused,
    Settled,
    SinkProgress,
    Snapshot,
)
from ottla.queues.settled_offsets import SettledOffsets

EPOCH_MAX: Final = 2**15 - 1
_NEVER: Final = -1


class Parcel(NamedTuple):
    """Records to be planned together. Without a sink they are dead letters, and the kind says where those go."""

    sink: TopicPartition | None
    action: Action
    detail: str
    runs: tuple[int, ...]
    again_ms: int = -1

    def offsets(self) -> "array[int]":
        """The offset of each record, in order."""
        return offsets_of(self.runs)


class Owe(NamedTuple):
    """These records are due at these times from now on."""

    due_ms: "array[int]"
    offsets: "array[int]"


class Instructed(NamedTuple):
    """Instructions about records by their offset were obeyed or ignored."""

    cancelled: int
    """Records that are not owed any more."""
    ignored: Sequence[int]
    """Offsets of records that are not parked, or not any more."""


class Apply(NamedTuple):
    """The kind remembers the instructions of a batch."""

    found: Found


class Note(NamedTuple):
    """The kind learns what the log says about its records."""

    record: Plan | Settled


class Send(NamedTuple):
    """Append a plan's batch to its sink until that succeeds; then `on_sent`, or write a `refusal`."""

    plan: Plan
    asks_first: bool = False
    """Whether the sink may have a batch with the same sequences that the log does not know of: then it is refused."""


class Repartition(NamedTuple):
    """The target has this many partitions; records parked before the offset are delivered by their key."""

    partitions: int
    grew_at: Offset


DeliveryEffect = Owe | Instructed | Apply | Note | Send | Repartition


@dataclass(slots=True)
class Sink:
    """The deliveries to one partition."""

    producer_id: int
    producer_epoch: int = 0
    next_sequence: int = 0
    """Of the next plan."""
    plan: Plan | None = None
    """The last one that is committed, unless the log says that it is done."""
    is_sent: bool = False
    """Whether the plan's batch is known to be in the sink, though the log does not say so yet."""
    draft: Plan | None = None
    """Written to the log and not read back yet; nothing else is planned meanwhile."""
    is_own: bool = False
    """Whether the last plan was made by this leader, and not by an earlier one."""
    is_agreed: bool = False
    """Whether a plan of this leader is in the sink, so that both know the same sequences."""

    @property
    def is_free(self) -> bool:
        """Whether the next plan can be drafted."""
        return self.draft is None and (self.plan is None or self.is_sent)


@dataclass(slots=True)
class _Transaction:
    first_offset: Offset
    batches: list[tuple[Offset, int, Found]] = field(default_factory=list)
    """First offset, count and content of each."""


class DeliveryState:
    """The deliveries of one companion partition, read from `start_offset` on by the leader of `leader_epoch`."""

    def __init__(self, start_offset: Offset, leader_epoch: int = 0) -> None:
        self.leader_epoch: Final = leader_epoch
        self.settled: Final = SettledOffsets(start_offset)
        self.sinks: Final[dict[TopicPartition, Sink]] = {}
        self.returned: Final[deque[Parcel]] = deque()
        """Records whose plan was refused: planned again before others."""
        self.followed = start_offset
        """Everything below has been read."""
        self.producer_id: int | None = None
        self.snapshot_at: Offset | None = None
        """The offset of the last Snapshot."""
        self.partitions = 0
        """Of the target, as the log says; 0 if it says nothing."""
        self.grew_at = Offset(0)
        self.owed = 0
        """Parked records that are not settled."""
        self.is_loaded = False
        """Whether everything that earlier leaders wrote has been read. Nothing is planned or sent before."""
        self._transactions: dict[ProducerId, _Transaction] = {}
        self._due_again: dict[int, int] = {}
        """Records that were asked about or released: when they are due. Their other entries in the index are stale."""
        self._hastened: set[int] = set()
        """Owed records that became due at once: a question that is still on its way does not postpone them."""

    # Reading the log

    def on_data(self, base_offset: Offset, count: int, found: Found, producer_id: ProducerId) -> list[DeliveryEffect]:
        """A data batch that spans `count` offsets; `producer_id` is -1 unless it belongs to a transaction."""
        self._follow(base_offset, count)
        if producer_id >= 0:
            transaction = self._transactions.setdefault(producer_id, _Transaction(base_offset))
            transaction.batches.append((base_offset, count, found))
            return []
        return self._count(base_offset, count, found)

    def on_marker(self, offset: Offset, producer_id: ProducerId, *, is_commit: bool) -> list[DeliveryEffect]:
        """A transaction has ended."""
        self._follow(offset, 1)
        self.settled.settle(offset)
        effects: list[DeliveryEffect] = []
        transaction = self._transactions.pop(producer_id, None)
        for base_offset, count, found in transaction.batches if transaction is not None else ():
            if is_commit:
                effects += self._count(base_offset, count, found)
            else:
                self.settled.settle(base_offset, count)
        return effects

    def on_skipped(self, base_offset: Offset, count: int) -> None:
        """A batch without meaning for a queue, such as a control batch of another kind."""
        self._follow(base_offset, count)
        self.settled.settle(base_offset, count)

    def on_progress(self, offset: Offset, record: ProgressRecord) -> list[DeliveryEffect]:
        """A progress record, of this leader or an earlier one."""
        self._follow(offset, 1)
        self.settled.settle(offset)
        match record:
            case Plan():
                return self._on_plan(record)
            case Done():
                for progress in record.sinks:
                    self._on_done(progress)
            case Refused():
                self._on_refused(record)
            case Settled():
                self.drop(self._unsettled(record.offsets()))
                return [Note(record)]
            case Grew():
                self.partitions, self.grew_at = record.partitions, offset
                return [Repartition(record.partitions, offset)]
            case Snapshot():
                return self._on_snapshot(offset, record)
        return []

    def on_loaded(self) -> list[DeliveryEffect]:
        """The whole log of earlier leaders has been read: unfinished plans are sent, perhaps again."""
        self.is_loaded = True
        return [Send(sink.plan) for sink in self.sinks.values() if sink.plan is not None and not sink.is_sent]

    def _follow(self, base_offset: Offset, count: int) -> None:
        if base_offset < self.followed:
            violated(f"offset {base_offset} was read twice, the log is known up to {self.followed}")
        if base_offset > self.followed:
            # A gap: damaged records that were given up, for example.
            self.settled.settle(self.followed, base_offset - self.followed)
        self.followed = Offset(base_offset + count)

    def _count(self, base_offset: Offset, count: int, found: Found) -> list[DeliveryEffect]:
        """A batch whose records count: those that are not parked are settled at once."""
        offsets = found.offsets
        if len(offsets) != count:
            at = int(base_offset)
            for offset in offsets:
                self.settled.settle(at, offset - at)
                at = offset + 1
            self.settled.settle(at, base_offset + count - at)
        effects: list[DeliveryEffect] = []
        if found.instructions:
            effects.append(Apply(found))
        if offsets:
            self.owed += len(offsets)
            effects.append(Owe(found.due_ms, offsets))
        if found.released or found.cancelled:
            effects += self._instruct(found)
        return effects

    def _instruct(self, found: Found) -> list[DeliveryEffect]:
        """Records that are due earlier than they were, or are not delivered."""
        effects: list[DeliveryEffect] = []
        cancelled = [offset for offset in dict.fromkeys(found.cancelled) if self.is_owed(offset)]
        released = {offset: due_ms for offset, due_ms in found.released if self.is_owed(offset)}
        known = {*cancelled, *released}
        ignored = [offset for offset in (*dict(found.released), *found.cancelled) if offset not in known]
        self.drop(cancelled)
        for offset, due_ms in released.items():
            if offset not in self.settled and due_ms < self._due_again.get(offset, due_ms + 1):
                self._due_again[offset] = due_ms
                effects.append(Owe(array("q", [due_ms]), array("q", [offset])))
        if cancelled or ignored:
            effects.append(Instructed(len(cancelled), ignored))
        return effects

    def is_owed(self, offset: int) -> bool:
        """Whether a record is parked, and not part of an open transaction."""
        return (
            offset < self.followed
            and offset not in self.settled
            and not any(
                base <= offset < base + count
                for transaction in self._transactions.values()
                for base, count, _ in transaction.batches
            )
        )

    def _on_plan(self, plan: Plan) -> list[DeliveryEffect]:
        sink = self.sinks.setdefault(plan.sink, Sink(plan.producer_id))
        sink.producer_id, sink.producer_epoch = plan.producer_id, plan.producer_epoch
        sink.next_sequence = plan.next_sequence
        # Its predecessor was acknowledged, or there would be no further plan.
        sink.plan, sink.is_sent, sink.draft, sink.is_own = plan, False, None, self.is_loaded
        effects: list[DeliveryEffect] = [Note(plan)]
        offsets = plan.offsets()
        if self.returned:
            self._take_returned(offsets)
        if plan.action is Action.ASK:
            waiting = array("q", (offset for offset in self._unsettled(offsets) if offset not in self._hastened))
            self._due_again.update((offset, plan.again_ms) for offset in waiting)
            effects.append(Owe(array("q", [plan.again_ms]) * len(waiting), waiting))
        else:
            # Some of its records may be below the log start.
            self.owed -= len(self.settled.unsettled(offsets))
            for at in range(0, len(plan.runs), 2):
                self.settled.settle(plan.runs[at], plan.runs[at + 1])
            if self._due_again:
                for offset in offsets:
                    self._due_again.pop(offset, None)
                self._hastened.difference_update(offsets)
        if self.is_loaded:
            effects.append(Send(plan, asks_first=not sink.is_agreed))
        return effects

    def _take_returned(self, offsets: "array[int]") -> None:
        """Refused records that are planned again: what is left of their parcel still waits.

        A parcel may have been split before it was planned, which the log does not say.
        """
        planned = frozenset(offsets)
        for _ in range(len(self.returned)):
            parcel = self.returned.popleft()
            left = [offset for offset in parcel.offsets() if offset not in planned]
            if left:
                self.returned.append(parcel._replace(runs=runs_of(left)))

    def _on_done(self, progress: SinkProgress) -> None:
        name = TopicPartition(progress.topic, progress.partition)
        # The plan itself may be below the log start, and the last Snapshot written before the plan was done.
        sink = self.sinks.setdefault(name, _sink_of(progress))
        if _progress_of(name, sink) == progress:
            sink.plan = None

    def _on_refused(self, refused: Refused) -> None:
        sink = self.sinks.get(refused.sink)
        if sink is None:
            # The plan is below the log start, and so is all that was known about the sink before.
            sink = self.sinks[refused.sink] = Sink(refused.producer_id, refused.producer_epoch)
        plan = sink.plan
        if (refused.producer_id, refused.producer_epoch) != (sink.producer_id, sink.producer_epoch) or (
            plan is not None and not _is_about(refused, plan)
        ):
            return  # Written by an earlier leader about a plan that went well after all.
        sink.plan = None
        sink.next_sequence = 0
        sink.producer_epoch += 1
        if sink.producer_epoch > EPOCH_MAX:
            # A new Snapshot brings another producer id, with which the sink begins again.
            del self.sinks[refused.sink]
            if refused.producer_id == self.producer_id:
                self.producer_id = None
        if plan is None:
            return  # Its records were planned otherwise, or the log would start before the plan.
        if plan.action is Action.ASK and not refused.is_unknown_producer:
            # There is nowhere to ask; the records are due again as planned.
            return
        where = plan.sink if plan.action is not Action.DEAD else None
        parcel = Parcel(where, plan.action, plan.detail, plan.runs, plan.again_ms)
        if plan.count == 1 and plan.action is not Action.DEAD and not refused.is_unknown_producer:
            self.returned.append(parcel._replace(sink=None, action=Action.DEAD, detail=refused.reason))
        elif plan.count == 1 or refused.is_unknown_producer:
            self.returned.append(parcel)
        else:
            offsets = plan.offsets()
            half = len(offsets) // 2
            self.returned.append(parcel._replace(runs=runs_of(offsets[:half])))
            self.returned.append(parcel._replace(runs=runs_of(offsets[half:])))

    def _on_snapshot(self, offset: Offset, snapshot: Snapshot) -> list[DeliveryEffect]:
        self.snapshot_at = offset
        self.producer_id = snapshot.producer_id
        self.partitions, self.grew_at = snapshot.partitions, Offset(snapshot.grew_at)
        for progress in snapshot.sinks:
            name = TopicPartition(progress.topic, progress.partition)
            if name not in self.sinks:
                self.sinks[name] = _sink_of(progress)
        return [Repartition(self.partitions, self.grew_at)] if self.partitions else []

    # Deciding

    def due_of(self, offset: int, due_ms: int) -> int:
        """When an owed record is due that was parked with this due time."""
        return self._due_again.get(offset, due_ms)

    def is_stale(self, offset: int, due_ms: int) -> bool:
        """Whether an entry of the due index is not true any more."""
        return offset in self.settled or self._due_again.get(offset, due_ms) != due_ms

    @property
    def has_stale(self) -> bool:
        """Whether entries of the due index may be stale for another reason than that their record is settled."""
        return bool(self._due_again)

    def drop(self, offsets: Sequence[int]) -> None:
        """Records that are not owed any more: cancelled, for example. The same follows from the log each time."""
        for offset in offsets:
            self.settled.settle(offset)
            self._due_again.pop(offset, None)
        self._hastened.difference_update(offsets)
        self.owed -= len(offsets)

    def hasten(self, offsets: Sequence[int], now_ms: int) -> list[DeliveryEffect]:
        """Owed records are due now, whatever was their due time."""
        hastened = array("q", self._unsettled(offsets))
        self._hastened.update(hastened)
        self._due_again.update((offset, now_ms) for offset in hastened)
        return [Owe(array("q", [now_ms]) * len(hastened), hastened)]

    def take(self, offset: int) -> None:
        """The verdict about an owed record is final: all entries of a hastened one in the due index are stale."""
        if offset in self._hastened:
            self._due_again[offset] = _NEVER

    def is_hastened(self, offset: int) -> bool:
        """Whether an owed record became due at once."""
        return offset in self._hastened

    def _unsettled(self, offsets: Sequence[int]) -> list[int]:
        return [offset for offset in offsets if offset not in self.settled]

    def postpone(self, offset: int, due_ms: int) -> None:
        """A record is looked at again at this time: its new entry in the due index is true."""
        if offset in self._due_again:
            self._due_again[offset] = due_ms

    def is_free(self, sink: TopicPartition) -> bool:
        """Whether the next plan for a sink can be drafted: the last one is done."""
        known = self.sinks.get(sink)
        return known is None or known.is_free

    def draft(self, sink: TopicPartition, parcel: Parcel) -> Plan:
        """A plan to write to the log. `sink` must be free, and the producer id known."""
        if self.producer_id is None or not self.is_loaded:
            violated(f"a delivery to {sink} was planned without a producer id, or before the log was read")
        known = self.sinks.get(sink)
        if known is None:
            known = self.sinks[sink] = Sink(self.producer_id, producer_epoch=-1)
        if not known.is_free:
            violated(f"a second delivery to {sink} was planned while one is under way")
        epoch, sequence = known.producer_epoch, known.next_sequence
        if not known.is_own:
            new_epoch = max(epoch + 1, self.leader_epoch if self.leader_epoch <= EPOCH_MAX else 0)
            if new_epoch <= EPOCH_MAX:
                epoch, sequence = new_epoch, 0
        plan = Plan(
            topic=sink.topic,
            partition=sink.partition,
            producer_id=known.producer_id,
            producer_epoch=epoch,
            first_sequence=sequence,
            runs=parcel.runs,
            action=parcel.action,
            detail=parcel.detail,
            again_ms=parcel.again_ms,
        )
        known.draft = plan
        return plan

    def split_returned(self, parcel: Parcel, count: int) -> None:
        """Only the first `count` records of a refused parcel fit into a batch: the others become another parcel."""
        at = self.returned.index(parcel)
        offsets = parcel.offsets()
        self.returned[at] = parcel._replace(runs=runs_of(offsets[:count]))
        self.returned.insert(at + 1, parcel._replace(runs=runs_of(offsets[count:])))

    def shrink_returned(self, parcel: Parcel, left: Sequence[int]) -> Parcel | None:
        """The log has only these records of a refused parcel left. Returns the parcel of those, if there are any."""
        at = self.returned.index(parcel)
        if not left:
            del self.returned[at]
            return None
        self.returned[at] = parcel._replace(runs=runs_of(left))
        return self.returned[at]

    def on_draft_failed(self, plan: Plan) -> None:
        """A plan was not written to the log."""
        sink = self.sinks.get(plan.sink)
        if sink is not None and sink.draft is plan:
            sink.draft = None
            if sink.producer_epoch < 0:
                del self.sinks[plan.sink]

    def on_sent(self, plan: Plan) -> None:
        """A plan's batch is committed in its sink."""
        sink = self.sinks.get(plan.sink)
        if sink is not None and sink.plan is plan:
            sink.is_sent = True
            sink.is_agreed = sink.is_agreed or sink.is_own

    def refusal(self, plan: Plan, reason: str, *, is_unknown_producer: bool = False) -> Refused:
        """The record to write when a sink has refused a plan's batch for good.

        A single dead letter has nowhere else to go: it is planned again later, and others go on.
        """
        return Refused(
            topic=plan.topic,
            partition=plan.partition,
            producer_id=plan.producer_id,
            producer_epoch=plan.producer_epoch,
            first_sequence=plan.first_sequence,
            reason=reason,
            is_unknown_producer=is_unknown_producer,
        )

    def done(self) -> Done | None:
        """The record that notes what was sent since the last one, if there is anything."""
        sinks = tuple(
            _progress_of(name, sink) for name, sink in self.sinks.items() if sink.plan is not None and sink.is_free
        )
        return Done(sinks) if sinks else None

    def snapshot(self, producer_id: int) -> Snapshot:
        """The record that lets the log start behind everything that is settled.

        A sink with a plan under way is in it, too: if the plan is refused, only the Refused says so, and the log may
        start behind that. A reader then has sequences that the sink refuses, which begins a new epoch.
        """
        return Snapshot(
            producer_id=producer_id,
            sinks=tuple(
                _progress_of(name, sink) if sink.draft is None else _progress_behind(sink.draft)
                for name, sink in self.sinks.items()
            ),
            partitions=self.partitions,
            grew_at=self.grew_at,
        )

    @property
    def undelivered(self) -> int:
        """How many records are owed, planned without being known to be in their sink, or were refused by one."""
        return self.owed + self.on_their_way + sum(len(parcel.offsets()) for parcel in self.returned)

    @property
    def on_their_way(self) -> int:
        """How many of the undelivered records may be in their sink all the same."""
        plans = [sink.plan for sink in self.sinks.values() if sink.plan is not None and not sink.is_sent]
        return sum(plan.count for plan in plans if plan.action is not Action.ASK)

    def first_needed(self) -> Offset:
        """The lowest offset that a reader of the log needs, not counting the last Snapshot."""
        held = [self.followed, self.settled.first_unsettled]
        for sink in self.sinks.values():
            # As long as the log does not say that a plan is done, the next leader sends it again.
            held += [plan.first_offset for plan in (sink.plan, sink.draft) if plan is not None]
        held += [min(parcel.runs[::2]) for parcel in self.returned]
        return Offset(min(held))

    def check(self) -> None:
        """Raises InvariantViolation if the state is impossible."""
        if self.owed < 0:
            violated(f"{self.owed} records are owed")
        for name, sink in self.sinks.items():
            if sink.plan is not None and sink.draft is not None and not sink.is_sent:
                violated(f"{name}: planned twice")
            if sink.plan is not None and sink.next_sequence != sink.plan.next_sequence:
                violated(f"{name}: next sequence {sink.next_sequence} does not follow its plan")
            if not (0 if sink.draft is None else -1) <= sink.producer_epoch <= EPOCH_MAX:
                violated(f"{name}: producer epoch {sink.producer_epoch}")
        for parcel in self.returned:
            if parcel.action is not Action.ASK and any(offset not in self.settled for offset in parcel.offsets()):
                violated("a refused record can be planned twice")


def _progress_of(name: TopicPartition, sink: Sink) -> SinkProgress:
    return SinkProgress(name.topic, name.partition, sink.producer_id, sink.producer_epoch, sink.next_sequence)


def _progress_behind(plan: Plan) -> SinkProgress:
    return SinkProgress(plan.topic, plan.partition, plan.producer_id, plan.producer_epoch, plan.next_sequence)


def _sink_of(progress: SinkProgress) -> Sink:
    return Sink(progress.producer_id, progress.producer_epoch, progress.next_sequence)


def _is_about(refused: Refused, plan: Plan) -> bool:
    return (refused.producer_id, refused.producer_epoch, refused.first_sequence) == (
        plan.producer_id,
        plan.producer_epoch,
        plan.first_sequence,
    )
