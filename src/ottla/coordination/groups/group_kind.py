"""What the shard of a partition of `__consumer_offsets` needs from each kind of group.

A kind has all groups of one protocol: `classic/groups_state.py`, `consumer/groups_state.py`. The shard
(`group_shard_state.py`) has a table of kinds, finds the kind that has a group, and keeps the offsets, which all kinds
share. A new kind implements `GroupKind` and gets a row in that table; its own requests go to it directly.
"""

from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from ottla.coordination.groups.requests import (
    ListedGroup,
    OffsetCommitRequest,
    OffsetFetchRequest,
    TransactionalCommitRequest,
    WholeCommitRequest,
)
from ottla.coordination.runtime.effects import CoordinatorRecord, Effect
from ottla.model.error_codes import ErrorCode

Subscribes = Callable[[str], bool]
"""Whether a group consumes the topic."""

AnyCommit = OffsetCommitRequest | WholeCommitRequest | TransactionalCommitRequest


class Topic(NamedTuple):
    """What a group needs to know about a topic."""

    topic_id: UUID
    partition_count: int
    is_parking: bool = False
    """Whether only the broker consumes it: patterns do not match it."""


Topics = Mapping[str, Topic]
"""All topics of the cluster, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitVerdict:
    """Whether a member may commit: `error` for the whole request, `error_for` for one partition of it.

    An epoch older than the member's is still valid for a partition that the member has had since that epoch or before.
    """

    error: ErrorCode = ErrorCode.NONE
    received_epoch: int | None = None
    """Set if each partition must be judged by itself."""
    holdings: tuple[Mapping[UUID, Mapping[int, int]], ...] = ()
    """The member's partitions by topic id, each with the member epoch in which it was assigned."""
    stale: ErrorCode = ErrorCode.STALE_MEMBER_EPOCH

    def error_for(self, topic_id: UUID | None, partition: int) -> ErrorCode:
        """The verdict on one partition."""
        if self.error is not ErrorCode.NONE or self.received_epoch is None:
            return self.error
        for held in self.holdings:
            since = None if topic_id is None else held.get(topic_id, {}).get(partition)
            if since is not None:
                return ErrorCode.NONE if self.received_epoch >= since else self.stale
        return self.stale


ALLOWED: Final = CommitVerdict()


class ExpiringGroup(NamedTuple):
    """A group whose offsets may expire, except those of topics that it subscribes to."""

    group_id: str
    subscribes: Subscribes
    empty_since_ms: int | None
    """When its last member left; None if the age of each offset counts alone."""
    is_deletable: bool
    """Whether the group is deleted with its last offset."""


class GroupKind(Protocol):
    """All groups of one kind in a shard."""

    type: str
    """The group type in ListGroups."""
    record_types: frozenset[int]
    """The types of the records that it writes, and that no other kind does."""

    @property
    def groups(self) -> Mapping[str, object]:
        """The groups, by id."""

    # Offsets

    def commit_verdict(self, request: AnyCommit, *, is_transactional: bool) -> CommitVerdict:
        """Whether a member of one of these groups may commit."""

    def on_commit(self, group_id: str, member_id: str, now_ms: int) -> None:
        """A member commits; that may count as a sign of life."""

    def fetch_refusal(self, request: OffsetFetchRequest) -> ErrorCode:
        """Why offsets may not be fetched; NONE if they may."""

    def offset_delete_refusal(self, group_id: str) -> ErrorCode:
        """Why no offset can be deleted; NONE if those of unsubscribed topics can."""

    def subscription_of(self, group_id: str) -> Subscribes:
        """Which topics a group consumes."""

    def expiring_groups(self) -> Iterable[ExpiringGroup]:
        """The groups whose offsets may expire now."""

    # Groups

    def delete_refusal(self, group_id: str) -> ErrorCode:
        """Why a group cannot be deleted; NONE if it can."""

    def deletion_records(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        """The tombstones that delete a group, without those of its offsets."""

    def listed(self) -> list[ListedGroup]:
        """All groups, for ListGroups."""

    # Records, time and life cycle

    def replay(self, record: CoordinatorRecord) -> bool:
        """Applies a record; false if it belongs to another kind."""

    def on_loaded(self, now_ms: int) -> list[Effect]:
        """The whole partition was replayed: timers start."""

    def on_unloaded(self) -> list[Effect]:
        """Another broker leads the partition: everything that waits is answered."""

    def on_metadata(self, topics: Topics) -> None:
        """The cluster's topics have changed."""

    def next_deadline(self) -> int | None:
        """When `on_tick` must be called next."""

    @property
    def queued_deadlines(self) -> Sized:
        """Always the same object. While it is empty, `next_deadline` need not be called: it would return None."""

    def on_clock_set(self, by_ms: int) -> None:
        """The clock was moved by this much; all deadlines move with it."""

    def on_tick(self, now_ms: int) -> list[Effect]:
        """Does what is due."""

    def check(self) -> None:
        """Raises when an invariant does not hold."""
