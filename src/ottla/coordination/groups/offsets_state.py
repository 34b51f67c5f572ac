"""The committed offsets of all groups of one partition, and those of open transactions.

Pure. Offsets change by `replay` only. Those of an open transaction are pending, by producer id, until `on_marker`
commits or drops them. Whether a member may commit, and which records are written, is decided in `group_shard_state.py`.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from ottla.coordination.groups.offset_records import OffsetRecords
from ottla.coordination.groups.offset_table import OffsetTable
from ottla.coordination.groups.records import CommittedOffset, OffsetKey, OffsetValue, offset_tombstone
from ottla.coordination.groups.requests import FetchedOffset, OffsetFetchRequest
from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import NO_PRODUCER_ID, ProducerId, TopicPartition
from ottla.model.invariants import violated

_Pending = dict[str, dict[TopicPartition, CommittedOffset]]
_NONE: Final = OffsetTable()
_NOTHING: Final[dict[TopicPartition, CommittedOffset]] = {}


class OffsetsState:
    """All committed offsets, by group and partition.

    Invariant: a group with pending offsets of a producer has that producer among its open transactions, and no group
    or producer has an empty entry.
    """

    def __init__(self) -> None:
        self._committed: dict[str, OffsetTable] = {}
        self._pending: dict[ProducerId, _Pending] = {}
        self._open: dict[str, dict[ProducerId, None]] = {}
        self.turn = 0
        """The number of records so far."""

    # Queries

    def get(self, group_id: str, partition: TopicPartition) -> OffsetValue | None:
        """The committed offset of one partition."""
        found = self._committed.get(group_id, _NONE).get(partition)
        return None if found is None else found.value

    def group_ids(self) -> list[str]:
        """The groups that have committed or pending offsets."""
        return list(dict.fromkeys([*self._committed, *self._open]))

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction may yet change this offset."""
        return any(
            partition in self._pending[producer_id].get(group_id, _NOTHING)
            for producer_id in self._open.get(group_id, ())
        )

    def partitions(self, group_id: str) -> list[TopicPartition]:
        """The partitions that the group has an offset of, committed or pending."""
        return list(dict.fromkeys(self._partitions(group_id)))

    def fetch(self, request: OffsetFetchRequest) -> tuple[FetchedOffset, ...]:
        """The requested offsets; with `require_stable` an unstable one is an error."""
        if request.partitions is None:
            wanted = sorted(self._committed.get(request.group_id, _NONE))
        else:
            wanted = [TopicPartition(*partition) for partition in request.partitions]
        return tuple(self._fetched(request, partition) for partition in wanted)

    def expired(
        self, group_id: str, *, empty_since_ms: int | None, retention_ms: int, now_ms: int
    ) -> list[TopicPartition]:
        """The partitions whose offset has expired; never one that an open transaction may yet change.

        The time runs from the commit, or from the moment the group became empty, whichever was later.
        """
        return [
            partition
            for partition, found in self._committed.get(group_id, _NONE).items()
            if _deadline(found.value, empty_since_ms, retention_ms) <= now_ms
            and not self.is_pending(group_id, partition)
        ]

    def topics(self) -> list[str]:
        """All topics with a committed or pending offset of any group."""
        return list(
            dict.fromkeys(partition.topic for group in self.group_ids() for partition in self.partitions(group))
        )

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """The tombstones of all offsets of a group, pending ones too."""
        return [offset_tombstone(group_id, *partition) for partition in self.partitions(group_id)]

    def tombstones_of_topic(self, topic: str) -> list[CoordinatorRecord]:
        """The tombstones of every group's offsets of a topic, pending ones too."""
        return [
            offset_tombstone(group_id, *partition)
            for group_id in self.group_ids()
            for partition in self.partitions(group_id)
            if partition.topic == topic
        ]

    # Changes

    def replay(self, key: OffsetKey, value: OffsetValue | None, producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        """Applies a record: an offset, one of an open transaction, or the deletion of both."""
        self.turn += 1
        partition = TopicPartition(key.topic, key.partition)
        if value is None:
            committed = self._committed.get(key.group_id)
            if committed is not None:
                committed.discard(partition)
                if not committed:
                    del self._committed[key.group_id]
            for open_id in list(self._open.get(key.group_id, ())):
                _remove(self._pending[open_id], key.group_id, partition)
                self._close_if_done(open_id, key.group_id)
        elif producer_id == NO_PRODUCER_ID:
            self._table(key.group_id)[partition] = CommittedOffset(value, self.turn)
        else:
            offsets = self._pending.setdefault(producer_id, {}).setdefault(key.group_id, {})
            offsets[partition] = CommittedOffset(value, self.turn)
            self._open.setdefault(key.group_id, {})[producer_id] = None

    def put(self, group_id: str, offsets: Sequence[tuple[TopicPartition, CommittedOffset]]) -> None:
        """Applies the records of many offsets of one group, with consecutive turns."""
        table = self._table(group_id)
        for partition, committed in offsets:
            table[partition] = committed
        self.turn += len(offsets)

    def put_all(self, records: OffsetRecords) -> None:
        """Applies the records of one commit."""
        table = self._committed.get(records.group_id) or self._table(records.group_id)
        for topic in records.topics:
            table.put(topic.topic, topic.topic_id, topic.rows, records.commit_ms, self.turn)
            self.turn += len(topic.rows)

    def _table(self, group_id: str) -> OffsetTable:
        table = self._committed.get(group_id)
        if table is None:
            table = self._committed[group_id] = OffsetTable()
        return table

    def on_marker(self, producer_id: ProducerId, *, commit: bool) -> None:
        """The producer's transaction has ended: its offsets are committed, or dropped."""
        for group_id, offsets in self._pending.pop(producer_id, {}).items():
            del self._open[group_id][producer_id]
            if not self._open[group_id]:
                del self._open[group_id]
            if not commit:
                continue
            table = self._table(group_id)
            for partition, pending in offsets.items():
                # A plain commit that was written after this one is newer, although it took effect before.
                committed = table.get(partition)
                if committed is None or committed.turn < pending.turn:
                    table[partition] = pending

    def check(self) -> None:
        """Raises when an invariant does not hold."""
        for group_id, table in self._committed.items():
            if not table:
                violated(f"group {group_id} has an empty table of committed offsets")
        for producer_id, groups in self._pending.items():
            for group_id, offsets in groups.items():
                if not offsets or producer_id not in self._open.get(group_id, ()):
                    violated(f"group {group_id} does not know of the pending offsets of producer {producer_id}")
        for group_id, producers in self._open.items():
            for producer_id in producers:
                if group_id not in self._pending.get(producer_id, ()):
                    violated(f"group {group_id} waits for producer {producer_id}, which has no pending offsets")

    def _fetched(self, request: OffsetFetchRequest, partition: TopicPartition) -> FetchedOffset:
        if request.require_stable and self.is_pending(request.group_id, partition):
            return FetchedOffset(*partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
        value = self.get(request.group_id, partition)
        if value is None:
            return FetchedOffset(*partition)
        return FetchedOffset(*partition, value.offset, value.leader_epoch, value.metadata)

    def _partitions(self, group_id: str) -> Iterator[TopicPartition]:
        yield from self._committed.get(group_id, _NONE)
        for producer_id in self._open.get(group_id, ()):
            yield from self._pending[producer_id].get(group_id, _NOTHING)

    def _close_if_done(self, producer_id: ProducerId, group_id: str) -> None:
        """Removes a transaction that has no pending offsets of the group left."""
        if group_id in self._pending[producer_id]:
            return
        del self._open[group_id][producer_id]
        if not self._open[group_id]:
            del self._open[group_id]
        if not self._pending[producer_id]:
            del self._pending[producer_id]


def _deadline(value: OffsetValue, empty_since_ms: int | None, retention_ms: int) -> int:
    if value.expire_ms is not None:
        return value.expire_ms
    begin_ms = value.commit_ms if empty_since_ms is None else max(value.commit_ms, empty_since_ms)
    return begin_ms + retention_ms


def _remove(offsets: _Pending, group_id: str, partition: TopicPartition) -> None:
    group = offsets.get(group_id)
    if group is not None:
        group.pop(partition, None)
        if not group:
            del offsets[group_id]
