"""One partition of `__share_group_state`: the state of the share-partitions that it coordinates.

Pure. Every change is an update record; after many updates a snapshot takes their place. Records below the oldest
snapshot that counts are pruned, and share-partitions that are not changed get a new snapshot from time to time, so that
they do not hold the pruning back. Requests carry two epochs that fence: the leader epoch of the partition, so that a
former leader cannot write, and the state epoch, which the group coordinator moves on with each (re)initialization.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from uuid import UUID

from ottla.coordination.groups.group_kind import Topics
from ottla.coordination.runtime.effects import CoordinatorRecord, Effect, Respond, Write
from ottla.coordination.share_state.records import NOT_SET, ShareKey, Snapshot, StateRecord, Update, decode, encode
from ottla.coordination.share_state.requests import (
    PruneLog,
    ShareStateSettings,
    StateOutcome,
    StateRead,
    StateSummary,
    StateWrite,
)
from ottla.coordination.share_state.state_batches import combined
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import NO_PRODUCER_ID, Offset, ProducerId
from ottla.model.invariants import violated

_NOT_WRITTEN = ErrorCode.COORDINATOR_NOT_AVAILABLE
_NOT_INITIALIZED = "The share partition has not been initialized."
_FIRST_SNAPSHOT_EPOCH = 0


@dataclass(slots=True, kw_only=True)
class _Entry:
    """A share-partition: its state as a snapshot would have it now, and how it came there."""

    state: Snapshot
    updates: int
    """Updates since the snapshot in the log."""
    snapshot_offset: int
    """Where that snapshot is in the log."""


class ShareStateShard:
    """The share-partitions of one partition, by key. `replay` is the only way into them."""

    def __init__(self, settings: ShareStateSettings) -> None:
        self.settings = settings
        self.entries: dict[ShareKey, _Entry] = {}
        self._partition_counts: dict[UUID, int] | None = None
        """The partitions of each topic of the cluster; None before that is known."""
        self._next_offset = 0
        """The offset of the next record to be replayed."""
        self._pruned_to = 0
        self._next_prune_ms: int | None = None

    # Requests, each for one share-partition

    def initialize(
        self, key: ShareKey, state_epoch: int, start_offset: int, now_ms: int, token: Hashable
    ) -> list[Effect]:
        """InitializeShareGroupState: a new state, at this start offset; -1 lets the first leader choose."""
        error = self._unknown(key)
        entry = self.entries.get(key)
        if error is None and entry is not None and -1 != state_epoch < entry.state.state_epoch:
            error = StateOutcome(error=ErrorCode.FENCED_STATE_EPOCH, message="The state epoch is stale.")
        if error is not None:
            return [Respond(token, error)]
        if entry is not None and start_offset == NOT_SET and state_epoch == entry.state.state_epoch:
            # The request was repeated, perhaps late: what the leader has written since must stay.
            failure = Respond(token, StateOutcome(error=_NOT_WRITTEN))
            return [Write((), (Respond(token, StateOutcome()),), (failure,))]
        snapshot = Snapshot(
            snapshot_epoch=_FIRST_SNAPSHOT_EPOCH if entry is None else entry.state.snapshot_epoch + 1,
            state_epoch=state_epoch,
            # Former leaders stay fenced.
            leader_epoch=0 if entry is None else entry.state.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=NOT_SET if start_offset == NOT_SET else 0,
            create_ms=now_ms,
            write_ms=now_ms,
            batches=(),
        )
        return [_write(StateRecord(key, snapshot), token, StateOutcome())]

    def read(self, key: ShareKey, leader_epoch: int, now_ms: int, token: Hashable) -> list[Effect]:
        """ReadShareGroupState, by the leader of the partition: older leaders can write no more."""
        unknown = self._unknown(key)
        entry = self.entries.get(key)
        if unknown is None and entry is None:
            unknown = StateOutcome(error=ErrorCode.INVALID_REQUEST, message=_NOT_INITIALIZED)
        if unknown is None and entry is not None and entry.state.leader_epoch > leader_epoch:
            unknown = StateOutcome(error=ErrorCode.FENCED_LEADER_EPOCH, message="The leader epoch is stale.")
        if unknown is not None or entry is None:
            failed = unknown or StateOutcome()
            return [Respond(token, StateRead(error=failed.error, message=failed.message))]
        state = entry.state
        response = StateRead(state_epoch=state.state_epoch, start_offset=state.start_offset, batches=state.batches)
        failure = StateRead(error=_NOT_WRITTEN)
        if leader_epoch in (NOT_SET, state.leader_epoch):
            # Nothing to write, but what is told must be committed.
            return [Write((), (Respond(token, response),), (Respond(token, failure),))]
        change = StateWrite(
            state_epoch=state.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )
        record = self._record(key, entry, change, now_ms, sets_leader_epoch=True)
        return [Write((encode(record),), (Respond(token, response),), (Respond(token, failure),))]

    def write(self, key: ShareKey, change: StateWrite, now_ms: int, token: Hashable) -> list[Effect]:
        """WriteShareGroupState, by the leader of the partition."""
        entry = self.entries.get(key)
        error = None
        if entry is None:
            error = StateOutcome(error=ErrorCode.INVALID_REQUEST, message=_NOT_INITIALIZED)
        elif -1 != change.leader_epoch < entry.state.leader_epoch:
            error = StateOutcome(error=ErrorCode.FENCED_LEADER_EPOCH, message="The leader epoch is stale.")
        elif -1 != change.state_epoch < entry.state.state_epoch:
            error = StateOutcome(error=ErrorCode.FENCED_STATE_EPOCH, message="The state epoch is stale.")
        error = error or self._unknown(key)
        if error is not None or entry is None:
            return [Respond(token, error)]
        return [_write(self._record(key, entry, change, now_ms, sets_leader_epoch=False), token, StateOutcome())]

    def delete(self, key: ShareKey, now_ms: int, token: Hashable) -> list[Effect]:
        """DeleteShareGroupState; a share-partition without state is deleted already."""
        error = self._unknown(key)
        if error is not None:
            return [Respond(token, error)]
        if key not in self.entries:
            failure = Respond(token, StateOutcome(error=_NOT_WRITTEN))
            return [Write((), (Respond(token, StateOutcome()),), (failure,))]
        return [_write(StateRecord(key, None), token, StateOutcome())]

    def summarize(self, key: ShareKey, now_ms: int, token: Hashable) -> list[Effect]:
        """ReadShareGroupStateSummary."""
        error = self._unknown(key)
        if error is not None:
            return [Respond(token, StateSummary(error=error.error, message=error.message))]
        entry = self.entries.get(key)
        response = StateSummary()
        if entry is not None:
            state = entry.state
            response = StateSummary(
                state_epoch=state.state_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=state.start_offset,
                delivery_complete_count=state.delivery_complete_count,
            )
        return [Write((), (Respond(token, response),), (Respond(token, StateSummary(error=_NOT_WRITTEN)),))]

    def _unknown(self, key: ShareKey) -> StateOutcome | None:
        if key.partition < 0:
            return StateOutcome(error=ErrorCode.INVALID_REQUEST, message="The partition index cannot be negative.")
        counts = self._partition_counts or {}
        if key.partition >= counts.get(key.topic_id, 0):
            return StateOutcome(
                error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message="This broker does not know the partition."
            )
        return None

    def _record(
        self, key: ShareKey, entry: _Entry, change: StateWrite, now_ms: int, *, sets_leader_epoch: bool
    ) -> StateRecord:
        state = entry.state
        leader_epoch = change.leader_epoch if sets_leader_epoch else state.leader_epoch
        start_offset, complete_count = _outlook(state, change)
        if entry.updates < self.settings.updates_per_snapshot:
            update = Update(
                snapshot_epoch=state.snapshot_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=complete_count,
                batches=combined(change.batches, start_offset),
            )
            return StateRecord(key, update)
        snapshot = Snapshot(
            snapshot_epoch=state.snapshot_epoch + 1,
            state_epoch=state.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete_count,
            create_ms=now_ms,
            write_ms=now_ms,
            batches=combined((*state.batches, *change.batches), start_offset),
        )
        return StateRecord(key, snapshot)

    # Records

    def before_replay(self, base_offset: Offset) -> None:
        """The next record to be replayed is at this offset."""
        self._next_offset = base_offset

    def replay_all(self, records: Iterable[CoordinatorRecord], producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        """Applies records, in order."""
        for record in records:
            self.replay(record)

    def replay(self, record: CoordinatorRecord) -> bool:
        """Applies a record; false if its type is unknown."""
        offset, self._next_offset = self._next_offset, self._next_offset + 1
        decoded = decode(record)
        if decoded is None:
            return False
        key = decoded.key
        match decoded.value:
            case None:
                self.entries.pop(key, None)
            case Snapshot() as snapshot:
                self.entries[key] = _Entry(state=snapshot, updates=0, snapshot_offset=offset)
            case Update() as update:
                entry = self.entries.get(key)
                # An update without its snapshot is a remnant of a state that was deleted.
                if entry is not None:
                    entry.state = _updated(entry.state, update)
                    entry.updates += 1
        return True

    def on_marker(self, producer_id: ProducerId, *, commit: bool) -> None:
        """The topic has no transactions."""

    # Time and life cycle

    def on_loaded(self, now_ms: int) -> list[Effect]:
        """The whole partition was replayed."""
        self._next_prune_ms = now_ms + self.settings.prune_interval_ms
        return []

    def on_unloaded(self) -> list[Effect]:
        """Another broker leads the partition."""
        self._next_prune_ms = None
        return []

    def on_metadata(self, topics: Topics, now_ms: int) -> list[Effect]:
        """The cluster's topics have changed: the states of deleted ones are deleted."""
        self._partition_counts = {topic.topic_id: topic.partition_count for topic in topics.values()}
        gone = [key for key in self.entries if key.topic_id not in self._partition_counts]
        return [Write(tuple(encode(StateRecord(key, None)) for key in gone))] if gone else []

    def next_deadline(self) -> int | None:
        """When `on_tick` must be called next."""
        return self._next_prune_ms

    def on_clock_set(self, by_ms: int) -> None:
        """The clock was moved by this much."""
        if self._next_prune_ms is not None:
            self._next_prune_ms += by_ms

    def on_tick(self, now_ms: int) -> list[Effect | PruneLog]:
        """Writes the snapshots that are due, and prunes what no state needs."""
        if self._next_prune_ms is None or now_ms < self._next_prune_ms:
            return []
        self._next_prune_ms = now_ms + self.settings.prune_interval_ms
        effects: list[Effect | PruneLog] = []
        oldest = min((entry.snapshot_offset for entry in self.entries.values()), default=self._next_offset)
        if oldest > self._pruned_to:
            self._pruned_to = oldest
            effects.append(PruneLog(Offset(oldest)))
        is_quiet = all(entry.updates == 0 for entry in self.entries.values())
        cold = [
            encode(
                StateRecord(key, replace(entry.state, snapshot_epoch=entry.state.snapshot_epoch + 1, write_ms=now_ms))
            )
            for key, entry in self.entries.items()
            if not is_quiet and now_ms - entry.state.write_ms >= self.settings.cold_snapshot_interval_ms
        ]
        if cold:
            effects.append(Write(tuple(cold)))
        return effects

    def check(self) -> None:
        """Raises when an invariant does not hold."""
        for key, entry in self.entries.items():
            last_offset = entry.state.start_offset - 1
            for batch in entry.state.batches:
                if batch.first_offset <= last_offset or batch.last_offset < batch.first_offset:
                    violated(f"{key.text}: state batch {batch} overlaps what is before it")
                last_offset = batch.last_offset
            if entry.updates > self.settings.updates_per_snapshot:
                violated(f"{key.text}: {entry.updates} updates since the last snapshot")


def _write(record: StateRecord, token: Hashable, response: StateOutcome) -> Write:
    failure = Respond(token, StateOutcome(error=_NOT_WRITTEN))
    return Write((encode(record),), (Respond(token, response),), (failure,))


def _outlook(state: Snapshot, change: StateWrite) -> tuple[int, int]:
    """Start offset and delivery complete count after a change.

    A leader that did not get the answer to a write does not know that its start offset was stored, and sends an older
    one. The states of the records in between are dropped already: the start offset stays, or they would be delivered
    again. Of the records that the leader counts as complete, those before the start offset are left out.
    """
    behind = state.start_offset - change.start_offset
    if change.start_offset == NOT_SET or behind <= 0:
        return max(state.start_offset, change.start_offset), change.delivery_complete_count
    return state.start_offset, max(change.delivery_complete_count - behind, 0)


def _updated(state: Snapshot, update: Update) -> Snapshot:
    start_offset = max(state.start_offset, update.start_offset)
    return replace(
        state,
        leader_epoch=state.leader_epoch if update.leader_epoch == NOT_SET else update.leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=update.delivery_complete_count,
        batches=combined((*state.batches, *update.batches), start_offset),
    )
