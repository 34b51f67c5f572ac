"""How far a group has come, and how it is shown where something is missing."""

from dataclasses import replace

import pytest

from ottla.cli.groups.views import Views, group_document, print_group
from ottla.client.admin.group_offsets import CommittedOffset
from ottla.client.admin.group_requests import GroupDescription, GroupMember
from ottla.client.admin.streams_group_requests import StreamsGroupDescription, StreamsGroupMember, Subtopology
from ottla.model.ids import TopicPartition
from ottla.operations.groups.offsets_by_type import GroupOffsets
from ottla.operations.groups.progress import partitions_text, progress_of

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


def offsets(found: dict[TopicPartition, CommittedOffset]) -> GroupOffsets:
    return GroupOffsets(offsets=found)


def test_every_partition_that_is_assigned_or_committed_has_a_line() -> None:
    reader = member("m", (SECOND,))
    found = progress_of(group(reader), offsets({FIRST: committed(4), GONE: committed(1)}), {FIRST: 10, SECOND: 7})
    assert [(FIRST, 6, None), (SECOND, None, reader), (GONE, None, None)] == [
        (each.partition, each.lag, each.member) for each in found
    ]


def test_a_group_ahead_of_the_end_lags_by_nothing() -> None:
    """A topic that was made anew is shorter than what was committed of the old one."""
    (found,) = progress_of(group(), offsets({FIRST: committed(40)}), {FIRST: 10})
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


def test_a_share_group_has_start_offsets_and_the_lag_that_its_coordinator_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    share = replace(group(member("m", (FIRST,)), member("n", (FIRST,))), type="share", protocol_type="share")
    found = GroupOffsets(offsets={FIRST: committed(4)}, lags={FIRST: 2})
    progress = progress_of(share, found, {FIRST: 10})
    print_group(share, progress, Views(members=False, offsets=True))
    lines = [each.split() for each in capsys.readouterr().out.splitlines()]
    assert ["type", "share"] in lines
    assert ["TOPIC", "PARTITION", "START", "END", "LAG"] in lines
    assert ["events", "0", "4", "10", "2"] in lines
    expected = {
        "topic": "events",
        "partition": 0,
        "start_offset": 4,
        "leader_epoch": None,
        "end_offset": 10,
        "lag": 2,
    }
    document = group_document(share, progress, Views(members=False, offsets=True))
    assert ([expected], 2) == (document["offsets"], document["lag"])


def test_a_streams_group_has_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    reader = StreamsGroupMember(
        member_id="m",
        instance_id=None,
        client_id="c",
        host="/h",
        assignment=(FIRST,),
        process_id="p",
        topology_epoch=1,
        active_tasks={"0": (0, 2), "1": (1,)},
        standby_tasks={},
        warmup_tasks={"0": (1,)},
    )
    part = Subtopology(
        subtopology_id="0",
        source_topics=("events",),
        repartition_source_topics=(),
        repartition_sink_topics=(),
        state_changelog_topics=("store",),
    )
    streams = StreamsGroupDescription(
        group_id="g",
        type="streams",
        state="Stable",
        protocol_type="streams",
        assignor="",
        coordinator=0,
        members=(reader,),
        topology_epoch=1,
        subtopologies=(part,),
    )
    print_group(streams, [], Views(members=True, offsets=False))
    lines = [each.split() for each in capsys.readouterr().out.splitlines()]
    assert ["m", "c", "/h", "p", "0:0,2", "1:1", "-", "0:1"] in lines
    document = group_document(streams, [], Views(members=True, offsets=False))
    assert (1, "0", {"0": (0, 2), "1": (1,)}) == (
        document["topology_epoch"],
        document["subtopologies"][0]["subtopology_id"],
        document["members"][0]["active_tasks"],
    )
