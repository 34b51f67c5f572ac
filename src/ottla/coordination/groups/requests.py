"""Requests and responses of the group coordinator: plain data, independent of the wire protocol.

There are no versions: where they change the meaning, a request has a field for that.
`TransactionalWrite` is the one effect that only groups have. The decisions are in `group_shard_state.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Struct

from ottla.coordination.runtime.effects import Effect, TransactionalWrite
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import ProducerEpoch, ProducerId
from ottla.protocol.offset_commits import CommitRows, PartitionCommit

NO_MEMBER_ID: Final = ""
"""The member id of a client that has none yet."""
NO_GENERATION: Final = -1
"""The generation of a consumer that commits without being a member."""
NO_RETENTION: Final = -1
"""Keep a committed offset as long as the broker is configured to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The group configs of a broker, with Kafka's defaults."""

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    group_size_max: int = 2**31 - 1
    new_member_timeout_ms: int = 300_000
    offset_metadata_size_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_check_interval_ms: int = 600_000


# Membership


class MemberProtocol(NamedTuple):
    """A protocol that a member supports, and its metadata for it, which is opaque here."""

    name: str
    metadata: bytes


class JoinRequest(Struct, frozen=True, kw_only=True):
    """JoinGroup. The protocols are in the order of preference.

    `requires_member_id` (version 4 and up): a client without an id gets one and must join again with it.
    `can_skip_assignment` (version 9 and up): a returning static leader may be told not to assign.
    """

    group_id: str
    member_id: str = NO_MEMBER_ID
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    requires_member_id: bool = True
    can_skip_assignment: bool = True
    reason: str | None = None


class JoinedMember(NamedTuple):
    """A member as the leader gets it; the leader itself is among them."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResponse(Struct, frozen=True, kw_only=True):
    """A place in a generation, or an error. Only the leader is told the members."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


MemberAssignment = tuple[str, bytes]
"""A member id, and what the leader assigns to that member; opaque here."""


class SyncRequest(Struct, frozen=True, kw_only=True):
    """Asks for the assignment; the leader brings all of them. Protocols are None where the version has none."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[MemberAssignment, ...] = ()


class SyncResponse(Struct, frozen=True, kw_only=True):
    """The member's own assignment, or an error."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class HeartbeatRequest(Struct, frozen=True, kw_only=True):
    """The member lives, and asks whether its generation still does."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


class HeartbeatResponse(Struct, frozen=True, kw_only=True):
    """Go on, or the reason why not."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """A member by its id; or by its instance id alone, as an operator removes it."""

    member_id: str = NO_MEMBER_ID
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequest:
    """These members go, at once."""

    group_id: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftMember:
    """What became of one of them."""

    member_id: str
    instance_id: str | None = None
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveResponse:
    """One outcome for each member, in their order; or an error for all, and then no members."""

    error: ErrorCode = ErrorCode.NONE
    members: tuple[LeftMember, ...] = ()


# Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOffset:
    """An offset to commit. Whether the partition exists was checked before it came here."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequest:
    """Commits as a member, or with no generation as a consumer that is not one.

    `knows_group_not_found` (version 9 and up): a missing group is GROUP_ID_NOT_FOUND, not ILLEGAL_GENERATION.
    """

    group_id: str
    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    instance_id: str | None = None
    retention_ms: int = NO_RETENTION
    offsets: tuple[NewOffset, ...]
    knows_group_not_found: bool = True


class TopicOffsets(NamedTuple):
    """Offsets to commit of one topic, as rows: partition, offset, leader epoch, metadata."""

    topic: str
    topic_id: UUID | None
    rows: CommitRows | Sequence[PartitionCommit]


class WholeCommitRequest(Struct, frozen=True, kw_only=True):
    """`OffsetCommitRequest` in bulk. `metadata_bytes_max` is the size of the longest metadata, encoded."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    retention_ms: int
    topics: tuple[TopicOffsets, ...]
    metadata_bytes_max: int
    knows_group_not_found: bool

    def one_by_one(self) -> OffsetCommitRequest:
        """The same request with one value for each offset."""
        return OffsetCommitRequest(
            group_id=self.group_id,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
            retention_ms=self.retention_ms,
            offsets=tuple(
                NewOffset(
                    topic=topic.topic,
                    partition=partition,
                    offset=offset,
                    leader_epoch=leader_epoch,
                    metadata=metadata,
                    topic_id=topic.topic_id,
                )
                for topic in self.topics
                for partition, offset, leader_epoch, metadata in topic.rows
            ),
            knows_group_not_found=self.knows_group_not_found,
        )


@dataclass(frozen=True, slots=True)
class WholeCommitResponse:
    """The outcome of all offsets alike."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalCommitRequest:
    """Commits within a transaction: the offsets wait for its marker. `knows_group_not_found` from version 6 on."""

    group_id: str
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    instance_id: str | None = None
    offsets: tuple[NewOffset, ...]
    knows_group_not_found: bool = False


class PartitionOutcome(NamedTuple):
    """The outcome of one partition of a request."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponse:
    """One outcome for each offset, in their order."""

    partitions: tuple[PartitionOutcome, ...]


class WantedPartition(NamedTuple):
    """A partition whose committed offset is asked for, or is to be deleted."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequest:
    """Which committed offsets; None for all. `require_stable` refuses those that a transaction may yet change.

    A member of a consumer group sends its id and epoch; for a classic group they are ignored.
    """

    group_id: str
    partitions: tuple[WantedPartition, ...] | None = None
    require_stable: bool = False
    member_id: str | None = None
    member_epoch: int = -1


class FetchedOffset(NamedTuple):
    """A committed offset; -1 if there is none, which is not an error."""

    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponse:
    """The offsets, in the order in which they were asked for; those of one topic stand together when all were."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    offsets: tuple[FetchedOffset, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteRequest:
    """Deletes the committed offsets of these partitions."""

    group_id: str
    partitions: tuple[WantedPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResponse:
    """One outcome for each partition, in their order; or an error for all, and then no partitions."""

    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionOutcome, ...] = ()


# Looking at groups, and deleting them


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member, for DescribeGroups; its metadata only while the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """A group, for DescribeGroups. One that does not exist is Dead with GROUP_ID_NOT_FOUND, which old versions hide."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


class ListedGroup(NamedTuple):
    """A group, for ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupRequest:
    """Deletes a group without members, and its offsets."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupResponse:
    """The outcome of a deletion."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE


GroupEffect = Effect | TransactionalWrite
