"""Share groups over the wire: members, sessions, records that are acquired and acknowledged, and their limits."""

import time
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from ottla.records.builder import BatchBuilder
from tests.wire.exchange import RawConnection, every_version
from tests.wire.groups import unused_group
from tests.wire.share_member import ACCEPT, REJECT, RELEASE, RENEW, SOON, Member, set_up
from tests.wire.world import batch, create_topic, produce, unused_name

NOW = timedelta(0)


def test_a_member_acquires_and_acknowledges(connection: RawConnection) -> None:
    size = records_per_batch(connection)
    group_id, topic_id = set_up(connection, records=2)
    last = 2 * size - 1
    member = Member(connection, group_id, topic_id)
    assert [(0, last, 1)] == member.fetch()
    assert [] == member.fetch()
    assert [ErrorCode.none] == member.acknowledge((0, 0, [ACCEPT]), (1, 1, [RELEASE]))
    assert [(1, 1, 2)] == member.fetch((2, last, [ACCEPT]))
    assert [ErrorCode.none] == member.acknowledge((1, 1, [REJECT]))
    described = connection.ask_newest(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": [{"group_id": group_id, "topics": None}]}
    )
    (part,) = described.groups[0].topics[0].partitions
    assert (last + 1, 0) == (part.start_offset, part.lag)


def records_per_batch(connection: RawConnection) -> int:
    name = unused_name()
    topic_id = create_topic(connection, name)
    produce(connection, topic_id, batch())
    part = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    listed = connection.ask_newest(
        ApiKey.LIST_OFFSETS, {"replica_id": -1, "topics": [{"name": name, "partitions": [part]}]}
    )
    return int(listed.topics[0].partitions[0].offset)


def test_a_record_limit_is_kept_and_batches_are_not_split_without_it(connection: RawConnection) -> None:
    group_id, topic_id = set_up(connection, records=4)
    size = records_per_batch(connection)
    member = Member(connection, group_id, topic_id)
    assert [(0, 0, 1)] == member.fetch(max_records=1, share_acquire_mode=1)
    assert [(1, 1, 1)] == member.fetch(max_records=1, share_acquire_mode=1)
    ((first, last, _),) = member.fetch(max_records=1)
    assert 2 == first
    assert 0 == (last + 1) % size


def test_a_record_limit_is_for_all_partitions_which_take_turns(connection: RawConnection) -> None:
    group_id, topic_id = set_up(connection, records=1, partitions=2)
    member = Member(connection, group_id, topic_id)
    parts = [{"partition_index": index, "acknowledgement_batches": []} for index in range(2)]
    topics = [{"topic_id": topic_id, "partitions": parts}]
    acquired = [
        (part.partition_index, each.first_offset, each.last_offset)
        for _ in range(4)
        for topic in member.ask_fetch(max_records=1, share_acquire_mode=1, topics=topics).responses
        for part in topic.partitions
        for each in part.acquired_records
    ]
    first, second = acquired[0][0], acquired[1][0]
    assert {0, 1} == {first, second}
    assert [(first, 0, 0), (second, 0, 0), (first, 1, 1), (second, 1, 1)] == acquired


def test_large_records_are_fetched_together_although_small_ones_are_expected(connection: RawConnection) -> None:
    group_id, topic_id = set_up(connection, records=0)
    for _ in range(4):
        large = BatchBuilder()
        large.append(1_000_000, b"key", bytes(200_000))
        produce(connection, topic_id, bytes(large.build()))
    ((first, last, _),) = Member(connection, group_id, topic_id).fetch(max_records=4)
    assert (0, 3) == (first, last)


def test_the_start_offset_that_a_leader_chooses_is_stored_at_once(connection: RawConnection) -> None:
    """Another leader must not choose again, and skip what was produced in between."""
    group_id, topic_id = set_up(connection, records=1)
    summaries = []
    for _ in range(2):
        summary = ask_state(connection, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, group_id, topic_id)
        summaries.append((summary.start_offset, summary.delivery_complete_count))
        Member(connection, group_id, topic_id).fetch()
    assert [(-1, -1), (0, 0)] == summaries


def test_a_fetch_waits_for_its_minimum_of_bytes(connection: RawConnection) -> None:
    group_id, topic_id = set_up(connection, records=1)
    member = Member(connection, group_id, topic_id)
    began = time.monotonic()
    assert 1 == len(member.fetch(max_wait=timedelta(milliseconds=300), min_bytes=1_000_000))
    assert time.monotonic() - began >= 0.3


def test_what_a_member_has_is_released_with_its_session(connection: RawConnection, address: str) -> None:
    group_id, topic_id = set_up(connection, records=1)
    first = Member(connection, group_id, topic_id, "one")
    ((begin, end, _),) = first.fetch()
    with RawConnection(address) as second_connection:
        second = Member(second_connection, group_id, topic_id, "two")
        assert [] == second.fetch(max_wait=SOON)
        assert [ErrorCode.none] == first.acknowledge((begin, begin, [ACCEPT]), share_session_epoch=-1)
        left = second.fetch(max_wait=timedelta(seconds=10))
        assert [(begin + 1, end, 2)] == left or (begin == end and [] == left)
    # The second member's connection is closed, and with it its session.
    third = Member(connection, group_id, topic_id, "three")
    left = third.fetch(max_wait=timedelta(seconds=10))
    assert [(begin + 1, end, 3)] == left or (begin == end and [] == left)


def test_wrong_epochs_and_sessions_are_refused(connection: RawConnection) -> None:
    group_id, topic_id = set_up(connection, records=1)
    member = Member(connection, group_id, topic_id)
    assert ErrorCode.share_session_not_found is member.ask_fetch(share_session_epoch=1).error_code
    assert [ErrorCode.share_session_not_found] == member.acknowledge((0, 0, [ACCEPT]), share_session_epoch=1)
    assert [ErrorCode.invalid_share_session_epoch] == member.acknowledge((0, 0, [ACCEPT]), share_session_epoch=0)
    member.fetch()
    assert ErrorCode.invalid_share_session_epoch is member.ask_fetch(share_session_epoch=7).error_code
    assert ErrorCode.invalid_request is member.ask_fetch((0, 0, [ACCEPT]), share_session_epoch=0).error_code
    assert ErrorCode.invalid_request is Member(connection, group_id, topic_id, "").ask_fetch().error_code
    assert ErrorCode.invalid_request is Member(connection, group_id, topic_id, "x" * 37).ask_fetch().error_code


def test_a_repeated_request_is_refused_and_changes_nothing(connection: RawConnection) -> None:
    """A client whose response was lost cannot tell what it got: it must open another session."""
    group_id, topic_id = set_up(connection, records=1)
    member = Member(connection, group_id, topic_id)
    ((_, last, _),) = member.fetch()
    assert [ErrorCode.none] == member.acknowledge((0, last, [RELEASE]))
    assert ErrorCode.invalid_share_session_epoch is member.ask_fetch(share_session_epoch=1).error_code
    assert [ErrorCode.invalid_share_session_epoch] == member.acknowledge((0, last, [ACCEPT]), share_session_epoch=1)
    assert [(0, last, 2)] == member.fetch(), "the session goes on with the epoch after the last request that counted"


def test_acknowledgements_that_do_not_fit_change_nothing(connection: RawConnection, address: str) -> None:
    group_id, topic_id = set_up(connection, records=2)
    member = Member(connection, group_id, topic_id)
    ((_, last, _),) = member.fetch()
    refused: list[tuple[list[tuple[int, int, list[int]]], ErrorCode]] = [
        ([(0, last + 1, [ACCEPT])], ErrorCode.invalid_request),
        ([(1, 0, [ACCEPT])], ErrorCode.invalid_request),
        ([(0, 0, [])], ErrorCode.invalid_request),
        ([(0, 1, [ACCEPT, ACCEPT, ACCEPT])], ErrorCode.invalid_request),
        ([(0, 0, [9])], ErrorCode.invalid_request),
        ([(0, 0, [RENEW])], ErrorCode.invalid_request),
        ([(1, 1, [ACCEPT]), (0, 0, [ACCEPT])], ErrorCode.invalid_request),
        ([(0, 2, [ACCEPT]), (1, 3, [ACCEPT])], ErrorCode.invalid_request),
        ([(0, 1, [ACCEPT]), (1, 2, [ACCEPT])], ErrorCode.invalid_record_state),
        ([(0, 2**62, [ACCEPT])], ErrorCode.invalid_request),
        ([(0, 2**62, [ACCEPT] * 20_000)], ErrorCode.invalid_request),
        ([(-2, 0, [ACCEPT])], ErrorCode.invalid_request),
        ([(0, 0, [-1])], ErrorCode.invalid_request),
    ]
    for batches, code in refused:
        assert [code] == member.acknowledge(*batches), batches
    with RawConnection(address) as other:
        thief = Member(other, group_id, topic_id, "thief")
        thief.fetch(max_wait=NOW)
        assert [ErrorCode.invalid_record_state] == thief.acknowledge((0, 0, [ACCEPT]))
    assert [ErrorCode.none] == member.acknowledge((0, last, [ACCEPT]))
    assert [ErrorCode.none] == member.acknowledge((0, 0, [ACCEPT]))


def test_acknowledgements_of_other_places_are_refused(connection: RawConnection) -> None:
    group_id, topic_id = set_up(connection, records=1)
    elsewhere = create_topic(connection, unused_name())
    member = Member(connection, group_id, topic_id)
    member.fetch()
    for place, code in (
        ((UUID(int=77), 0), ErrorCode.unknown_topic_id),
        ((topic_id, 5), ErrorCode.unknown_topic_or_partition),
        ((topic_id, -1), ErrorCode.unknown_topic_or_partition),
        ((elsewhere, 0), ErrorCode.unknown_topic_or_partition),
    ):
        batches = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [ACCEPT]}]
        part = {"partition_index": place[1], "acknowledgement_batches": batches}
        answer = member.ask_acknowledge(topics=[{"topic_id": place[0], "partitions": [part]}])
        assert [(code, -1, -1)] == [
            (part.error_code, part.current_leader.leader_id, part.current_leader.leader_epoch)
            for topic in answer.responses
            for part in topic.partitions
        ]
    # Nothing is answered for partitions of which nothing is said.
    assert [] == member.acknowledge()


def test_a_session_has_a_limit_of_partitions(connection: RawConnection) -> None:
    group_id, topic_id = set_up(connection, records=0)
    member = Member(connection, group_id, topic_id)
    parts = [{"partition_index": index, "acknowledgement_batches": []} for index in range(10_001)]
    answer = member.ask_fetch(topics=[{"topic_id": topic_id, "partitions": parts}])
    assert ErrorCode.invalid_request is answer.error_code
    assert [ErrorCode.share_session_not_found] == member.acknowledge(share_session_epoch=1)


def test_a_record_is_delivered_as_often_as_the_limit_says(connection: RawConnection) -> None:
    group_id, topic_id = set_up(connection, records=1, share_delivery_count_limit="2")
    member = Member(connection, group_id, topic_id)
    ((first, last, _),) = member.fetch()
    assert [(first, last, 2)] == member.fetch((first, last, [RELEASE]))
    assert [] == member.fetch((first, last, [RELEASE]))


def test_a_released_record_waits_for_its_backoff(connection: RawConnection) -> None:
    group_id, topic_id = set_up(connection, records=1, share_release_backoff_ms="3000")
    member = Member(connection, group_id, topic_id)
    ((first, last, _),) = member.fetch()
    assert [] == member.fetch((first, last, [RELEASE]), max_wait=NOW)
    assert [(first, last, 2)] == member.fetch(max_wait=timedelta(seconds=20))


def test_renewing_fetches_nothing(connection: RawConnection) -> None:
    group_id, topic_id = set_up(connection, records=1)
    member = Member(connection, group_id, topic_id)
    ((first, last, _),) = member.fetch()
    nothing: dict[str, Any] = {"max_wait": NOW, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "is_renew_ack": True}
    assert [] == member.fetch((first, last, [RENEW]), **nothing)
    answer = member.ask_fetch((first, last, [RENEW]), **{**nothing, "max_bytes": 1})
    assert ErrorCode.invalid_request is answer.error_code
    assert [ErrorCode.none] == member.acknowledge((first, last, [RENEW]), is_renew_ack=True)


def test_a_group_is_described_listed_and_deleted(connection: RawConnection) -> None:
    group_id, _ = set_up(connection, records=1)
    described = connection.ask_newest(ApiKey.SHARE_GROUP_DESCRIBE, {"group_ids": [group_id, "missing"]})
    assert [("Stable", 1), ("", 0)] == [(group.group_state, len(group.members)) for group in described.groups]
    listed = connection.ask_newest(ApiKey.LIST_GROUPS, {"types_filter": ["share"]})
    assert ("share", "share", "Stable") in [
        (group.protocol_type, group.group_type, group.group_state)
        for group in listed.groups
        if group.group_id == group_id
    ]

    def delete() -> ErrorCode:
        answer = connection.ask_newest(ApiKey.DELETE_GROUPS, {"groups_names": [group_id]})
        return ErrorCode(answer.results[0].error_code)

    assert ErrorCode.non_empty_group is delete()
    connection.ask_newest(ApiKey.SHARE_GROUP_HEARTBEAT, {"group_id": group_id, "member_id": "m", "member_epoch": -1})
    assert ErrorCode.none is delete()
    assert ErrorCode.group_id_not_found is delete()


def test_start_offsets_are_altered_and_deleted(connection: RawConnection) -> None:
    group_id, topic_id = set_up(connection, records=3)
    described = connection.ask_newest(ApiKey.SHARE_GROUP_DESCRIBE, {"group_ids": [group_id]})
    name = described.groups[0].members[0].subscribed_topic_names[0]

    def alter(offset: int) -> Any:
        part = {"partition_index": 0, "start_offset": offset}
        wish = {"group_id": group_id, "topics": [{"topic_name": name, "partitions": [part]}]}
        return connection.ask_newest(ApiKey.ALTER_SHARE_GROUP_OFFSETS, wish)

    assert ErrorCode.non_empty_group is alter(2).error_code
    connection.ask_newest(ApiKey.SHARE_GROUP_HEARTBEAT, {"group_id": group_id, "member_id": "m", "member_epoch": -1})
    altered = alter(2)
    assert [ErrorCode.none] == [part.error_code for topic in altered.responses for part in topic.partitions]
    member = Member(connection, group_id, topic_id)
    assert 2 == member.fetch()[0][0]
    wish = {"group_id": group_id, "topics": [{"topic_name": name}, {"topic_name": "missing"}]}
    deleted = connection.ask_newest(ApiKey.DELETE_SHARE_GROUP_OFFSETS, wish)
    assert {name: ErrorCode.none, "missing": ErrorCode.unknown_topic_or_partition} == {
        topic.topic_name: topic.error_code for topic in deleted.responses
    }
    # The leader notices with its next write that its state is gone.
    assert [ErrorCode.none] != member.acknowledge((2, 2, [ACCEPT]))


def test_a_share_group_is_no_other_group(connection: RawConnection) -> None:
    group_id, _ = set_up(connection, records=1)
    member = {"group_id": group_id, "member_id": "c", "subscribed_topic_names": ["t"], "topic_partitions": []}
    beat = {**member, "rebalance_timeout": timedelta(seconds=30)}
    answer = connection.ask_newest(ApiKey.CONSUMER_GROUP_HEARTBEAT, beat)
    assert ErrorCode.group_id_not_found is answer.error_code
    join = {
        "group_id": group_id,
        "session_timeout": timedelta(seconds=30),
        "rebalance_timeout": timedelta(seconds=30),
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    assert ErrorCode.inconsistent_group_protocol is connection.ask_newest(ApiKey.JOIN_GROUP, join).error_code


# Every version of every API


@every_version(ApiKey.SHARE_GROUP_HEARTBEAT)
def test_a_member_joins_and_leaves(connection: RawConnection, version: int) -> None:
    group_id, name = unused_group(connection), unused_name()
    create_topic(connection, name)
    member = {"group_id": group_id, "member_id": "m"}
    joined = connection.ask(
        ApiKey.SHARE_GROUP_HEARTBEAT, version, {**member, "member_epoch": 0, "subscribed_topic_names": [name]}
    )
    assert (ErrorCode.none, "m", timedelta(seconds=5)) == (
        joined.error_code,
        joined.member_id,
        joined.heartbeat_interval,
    )
    assert joined.member_epoch > 0
    assert joined.assignment is not None
    fenced = connection.ask(ApiKey.SHARE_GROUP_HEARTBEAT, version, {**member, "member_epoch": 99})
    assert ErrorCode.fenced_member_epoch is fenced.error_code
    left = connection.ask(ApiKey.SHARE_GROUP_HEARTBEAT, version, {**member, "member_epoch": -1})
    assert (ErrorCode.none, -1) == (left.error_code, left.member_epoch)
    gone = connection.ask(ApiKey.SHARE_GROUP_HEARTBEAT, version, {**member, "member_epoch": 5})
    assert ErrorCode.unknown_member_id is gone.error_code
    without_topics = {**member, "member_epoch": 0, "subscribed_topic_names": []}
    assert ErrorCode.invalid_request is connection.ask(ApiKey.SHARE_GROUP_HEARTBEAT, version, without_topics).error_code


@every_version(ApiKey.SHARE_GROUP_DESCRIBE)
def test_a_missing_group_is_not_found(connection: RawConnection, version: int) -> None:
    answer = connection.ask(ApiKey.SHARE_GROUP_DESCRIBE, version, {"group_ids": [unused_group(connection)]})
    assert [ErrorCode.group_id_not_found] == [group.error_code for group in answer.groups]


@every_version(ApiKey.SHARE_FETCH)
def test_records_are_fetched(connection: RawConnection, version: int) -> None:
    group_id, topic_id = set_up(connection, records=1)
    member = Member(connection, group_id, topic_id)
    answer = member.ask_fetch(version=version)
    (part,) = answer.responses[0].partitions
    assert (ErrorCode.none, 0) == (part.error_code, part.acquired_records[0].first_offset)
    assert timedelta(seconds=30) == answer.acquisition_lock_timeout
    assert part.records


@every_version(ApiKey.SHARE_ACKNOWLEDGE)
def test_records_are_acknowledged(connection: RawConnection, version: int) -> None:
    group_id, topic_id = set_up(connection, records=1)
    member = Member(connection, group_id, topic_id)
    ((first, last, _),) = member.fetch()
    batches = [{"first_offset": first, "last_offset": last, "acknowledge_types": [ACCEPT]}]
    part = {"partition_index": 0, "acknowledgement_batches": batches}
    values = {
        "group_id": group_id,
        "member_id": "m",
        "share_session_epoch": member.epoch,
        "topics": [{"topic_id": topic_id, "partitions": [part]}],
    }
    answer = connection.ask(ApiKey.SHARE_ACKNOWLEDGE, version, values)
    assert [ErrorCode.none] == [each.error_code for topic in answer.responses for each in topic.partitions]


def ask_state(
    connection: RawConnection, api_key: ApiKey, version: int, group_id: str, topic_id: UUID, **part: Any
) -> Any:
    """The result of one share-partition at the share coordinator."""
    topics = [{"topic_id": topic_id, "partitions": [{"partition": 0, **part}]}]
    answer = connection.ask(api_key, version, {"group_id": group_id, "topics": topics})
    return answer.results[0].partitions[0]


@every_version(ApiKey.INITIALIZE_SHARE_GROUP_STATE)
def test_an_older_state_epoch_is_fenced(connection: RawConnection, version: int) -> None:
    group_id, topic_id = set_up(connection, records=0)
    for epoch, code in ((100, ErrorCode.none), (99, ErrorCode.fenced_state_epoch)):
        part = {"state_epoch": epoch, "start_offset": 0}
        result = ask_state(connection, ApiKey.INITIALIZE_SHARE_GROUP_STATE, version, group_id, topic_id, **part)
        assert code is result.error_code


@every_version(ApiKey.READ_SHARE_GROUP_STATE)
def test_an_older_leader_epoch_is_fenced(connection: RawConnection, version: int) -> None:
    group_id, topic_id = set_up(connection, records=0)
    for epoch, code in ((7, ErrorCode.none), (6, ErrorCode.fenced_leader_epoch)):
        result = ask_state(connection, ApiKey.READ_SHARE_GROUP_STATE, version, group_id, topic_id, leader_epoch=epoch)
        assert code is result.error_code
    missing = ask_state(connection, ApiKey.READ_SHARE_GROUP_STATE, version, "missing", topic_id, leader_epoch=0)
    assert ErrorCode.invalid_request is missing.error_code


@every_version(ApiKey.WRITE_SHARE_GROUP_STATE)
def test_what_is_written_is_read(connection: RawConnection, version: int) -> None:
    group_id, topic_id = set_up(connection, records=0)
    batches = [{"first_offset": 5, "last_offset": 6, "delivery_state": 2, "delivery_count": 1}]
    part = {"state_epoch": 100, "leader_epoch": 100, "start_offset": 3, "state_batches": batches}
    assert (
        ErrorCode.none
        is ask_state(connection, ApiKey.WRITE_SHARE_GROUP_STATE, version, group_id, topic_id, **part).error_code
    )
    read = ask_state(connection, ApiKey.READ_SHARE_GROUP_STATE, 0, group_id, topic_id, leader_epoch=100)
    assert (3, [(5, 6, 2, 1)]) == (
        read.start_offset,
        [
            (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in read.state_batches
        ],
    )


@pytest.mark.parametrize(
    ("later", "stored"),
    [((9, 1), (9, 1)), ((4, 3), (4, 3)), ((3, 3), (4, 2)), ((0, 9), (4, 5)), ((0, 3), (4, 0)), ((-1, 3), (4, 3))],
)
def test_a_start_offset_never_goes_back(
    connection: RawConnection, later: tuple[int, int], stored: tuple[int, int]
) -> None:
    """A leader that did not get a response writes an older one, with a count from there on of complete records."""
    group_id, topic_id = set_up(connection, records=0)
    for start_offset, complete in ((4, 2), later):
        part = {"state_epoch": 100, "leader_epoch": 100, "start_offset": start_offset, "state_batches": []}
        written = ask_state(
            connection, ApiKey.WRITE_SHARE_GROUP_STATE, 1, group_id, topic_id, delivery_complete_count=complete, **part
        )
        assert ErrorCode.none is written.error_code
    summary = ask_state(connection, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, group_id, topic_id)
    assert stored == (summary.start_offset, summary.delivery_complete_count)


@every_version(ApiKey.DELETE_SHARE_GROUP_STATE)
def test_a_deleted_state_is_not_there(connection: RawConnection, version: int) -> None:
    group_id, topic_id = set_up(connection, records=0)
    for _ in range(2):
        result = ask_state(connection, ApiKey.DELETE_SHARE_GROUP_STATE, version, group_id, topic_id)
        assert ErrorCode.none is result.error_code
    read = ask_state(connection, ApiKey.READ_SHARE_GROUP_STATE, 0, group_id, topic_id, leader_epoch=0)
    assert ErrorCode.invalid_request is read.error_code


@every_version(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY)
def test_a_summary_has_the_start_offset(connection: RawConnection, version: int) -> None:
    group_id, topic_id = set_up(connection, records=0)
    part = {"state_epoch": 100, "start_offset": 4}
    ask_state(connection, ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, group_id, topic_id, **part)
    summary = ask_state(connection, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, version, group_id, topic_id)
    assert (ErrorCode.none, 100, 4) == (summary.error_code, summary.state_epoch, summary.start_offset)
    absent = ask_state(connection, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, version, "missing", topic_id)
    assert (ErrorCode.none, -1) == (absent.error_code, absent.start_offset)


@every_version(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
def test_what_does_not_exist_has_no_offset(connection: RawConnection, version: int) -> None:
    wish = {"group_id": unused_group(connection), "topics": [{"topic_name": "missing", "partitions": [0]}]}
    answer = connection.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, {"groups": [wish]})
    (part,) = answer.groups[0].topics[0].partitions
    assert (ErrorCode.none, -1) == (part.error_code, part.start_offset)


@every_version(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
def test_offsets_of_missing_topics_are_not_altered(connection: RawConnection, version: int) -> None:
    part = {"partition_index": 0, "start_offset": 1}
    wish = {"group_id": unused_group(connection), "topics": [{"topic_name": "missing", "partitions": [part]}]}
    answer = connection.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, version, wish)
    assert [ErrorCode.unknown_topic_or_partition] == [
        each.error_code for topic in answer.responses for each in topic.partitions
    ]


@every_version(ApiKey.DELETE_SHARE_GROUP_OFFSETS)
def test_offsets_of_missing_groups_are_not_deleted(connection: RawConnection, version: int) -> None:
    wish = {"group_id": unused_group(connection), "topics": []}
    answer = connection.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, version, wish)
    assert ErrorCode.group_id_not_found is answer.error_code
