"""How far a group has come, and how it is shown where something is missing."""

import pytest

from ottla.cli.groups.views import Views, group_document, partitions_text, print_group, progress_of
from ottla.client.admin.group_offsets import CommittedOffset
from ottla.client.admin.group_requests import GroupDescription, GroupMember
from ottla.model.ids import TopicPartition

FIRST, SECOND, GONE = TopicPartition("events", 0), TopicPartition("events", 1), TopicPartition("gone", 0)


def member(member_id: str, assignment: tuple[TopicPartition, ...] | None) -> GroupMember:
    return GroupMember(member_id=member_id, instance_id=None, client_id="c", host="/h", assignment=assignment)


def group(*members: GroupMember, protocol_type: str = "consumer") -> GroupDescription:
    return GroupDescription(
        group_id="g",
        type="classic",
        state="Stable",
        protocol_type=protocol_type,
        assignor="range",
        coordinator=0,
        members=members,
    )


def committed(offset: int) -> CommittedOffset:
    return CommittedOffset(offset=offset, leader_epoch=-1, metadata="")


def test_every_partition_that_is_assigned_or_committed_has_a_line() -> None:
    reader = member("m", (SECOND,))
    found = progress_of(group(reader), {FIRST: committed(4), GONE: committed(1)}, {FIRST: 10, SECOND: 7})
    assert [(FIRST, 6, None), (SECOND, None, reader), (GONE, None, None)] == [
        (each.partition, each.lag, each.member) for each in found
    ]


def test_a_group_ahead_of_the_end_lags_by_nothing() -> None:
    """A topic that was made anew is shorter than what was committed of the old one."""
    (found,) = progress_of(group(), {FIRST: committed(40)}, {FIRST: 10})
    assert 0 == found.lag


def test_a_member_whose_assignment_only_it_can_read(capsys: pytest.CaptureFixture[str]) -> None:
    connect = group(member("worker", None), protocol_type="connect")
    print_group(connect, [], Views(members=True, offsets=False))
    shown = capsys.readouterr().out
    assert "type         classic, connect\n" in shown
    assert ["worker", "c", "/h", "-", "-", "unreadable"] in map(str.split, shown.splitlines())
    document = group_document(connect, [], Views(members=True, offsets=True))
    assert (None, [], 0) == (document["members"][0]["assignment"], document["offsets"], document["lag"])


def test_partitions_are_said_as_the_option_takes_them() -> None:
    assert "events:0,1 gone:0" == partitions_text([GONE, SECOND, FIRST])
