"""How far a group is in each partition, and by how much it lags."""

import pytest

from ottla.client.admin.group_offsets import CommittedOffset
from ottla.client.admin.group_requests import GroupDescription, GroupMember
from ottla.model.ids import TopicPartition
from ottla.operations.groups.offsets_by_type import GroupOffsets
from ottla.operations.groups.progress import PartitionProgress, by_topic, partitions_text, progress_of

E0, E1, E10 = (TopicPartition("events", index) for index in (0, 1, 10))
USERS = TopicPartition("users", 3)


def committed(offset: int) -> CommittedOffset:
    return CommittedOffset(offset=offset, leader_epoch=-1, metadata="")


def group(kind: str, *members: GroupMember) -> GroupDescription:
    return GroupDescription(
        group_id="g", type=kind, state="Stable", protocol_type="", assignor="", coordinator=1, members=members
    )


@pytest.mark.parametrize(
    ("offset", "end", "counted", "lag"),
    [
        (4, 10, None, 6),
        (10, 10, None, 0),
        (12, 10, None, 0),
        (None, 10, None, None),
        (4, None, None, None),
        (4, 10, 2, 2),
        (4, 10, 0, 0),
    ],
)
def test_the_lag(offset: int | None, end: int | None, counted: int | None, lag: int | None) -> None:
    place = None if offset is None else committed(offset)
    assert lag == PartitionProgress(partition=E0, committed=place, end=end, member=None, counted_lag=counted).lag


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_members_of_a_share_group_read_the_same_partitions(kind: str) -> None:
    member = GroupMember(member_id="m", instance_id=None, client_id="c", host="/h", assignment=(USERS, E1))
    stranger = GroupMember(member_id="n", instance_id=None, client_id="c", host="/h", assignment=None)
    offsets = GroupOffsets(offsets={E1: committed(4), E0: committed(2)}, lags={E0: 1})
    reader = None if kind == "share" else member
    assert [
        PartitionProgress(partition=E0, committed=committed(2), end=None, member=None, counted_lag=1),
        PartitionProgress(partition=E1, committed=committed(4), end=9, member=reader),
        PartitionProgress(partition=USERS, committed=None, end=0, member=reader),
    ] == progress_of(group(kind, member, stranger), offsets, {E1: 9, USERS: 0})


def test_partitions_as_arguments() -> None:
    assert {"events": [0, 1, 10], "users": [3]} == by_topic([E10, USERS, E1, E0])
    assert "events:0,1,10 users:3" == partitions_text([E10, USERS, E1, E0])
