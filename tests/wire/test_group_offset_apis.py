"""OffsetCommit, OffsetFetch and OffsetDelete, in every version."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection, every_version
from tests.wire.groups import commit_errors, commit_values, fetch_offsets, join_alone, unused_group
from tests.wire.world import PARTITIONS, World, create_topic, unused_name

NO_SUCH_ID = UUID(int=77)
METADATA_MAX = 4096

Fetched = tuple[int, int, int, str, ErrorCode]
"""Partition, offset, leader epoch, metadata, error."""


# OffsetCommit


@every_version(ApiKey.OFFSET_COMMIT)
def test_offset_commit(connection: RawConnection, world: World, version: int) -> None:
    """What exists is committed, whatever else the request names."""
    group_id = unused_group(connection)
    request = commit_values(world, group_id, {0: 5, 9: 1, -1: 1, 1: 7})
    request["topics"][0]["partitions"][3]["committed_metadata"] = None
    missing = {"name": "no-such", "topic_id": NO_SUCH_ID, "partitions": [{"partition_index": 0}]}
    request["topics"].append(missing)
    request["topics"].append({"name": world.topic, "topic_id": world.topic_id, "partitions": []})
    answer = connection.ask(ApiKey.OFFSET_COMMIT, version, request)
    known, unknown = (world.topic, "no-such") if version < 10 else (world.topic_id, NO_SUCH_ID)
    assert {
        (known, 0): ErrorCode.none,
        (known, 9): ErrorCode.unknown_topic_or_partition,
        (known, -1): ErrorCode.unknown_topic_or_partition,
        (known, 1): ErrorCode.none,
        (unknown, 0): ErrorCode.unknown_topic_or_partition if version < 10 else ErrorCode.unknown_topic_id,
    } == {
        (topic.name if version < 10 else topic.topic_id, part.partition_index): part.error_code
        for topic in answer.topics
        for part in topic.partitions
    }
    assert 2 == len(answer.topics)
    assert {(world.topic, 0): (5, "note"), (world.topic, 1): (7, "")} == fetch_offsets(connection, group_id)
    assert () == connection.ask(ApiKey.OFFSET_COMMIT, version, {**request, "topics": []}).topics


@every_version(ApiKey.OFFSET_COMMIT)
def test_offset_commit_beyond_the_last_partition(connection: RawConnection, world: World, version: int) -> None:
    group_id = unused_group(connection)
    answer = connection.ask(ApiKey.OFFSET_COMMIT, version, commit_values(world, group_id, {PARTITIONS: 1}))
    assert [ErrorCode.unknown_topic_or_partition] == commit_errors(answer)
    answer = connection.ask(ApiKey.OFFSET_COMMIT, version, commit_values(world, group_id, {PARTITIONS - 1: 1}))
    assert [ErrorCode.none] == commit_errors(answer)
    assert {(world.topic, PARTITIONS - 1): (1, "note")} == fetch_offsets(connection, group_id)


@every_version(ApiKey.OFFSET_COMMIT)
def test_offset_commit_by_a_member(connection: RawConnection, world: World, version: int) -> None:
    member = join_alone(connection)
    own = {"member_id": member.member_id, "generation_id_or_member_epoch": 1}
    wrong: list[tuple[dict[str, Any], ErrorCode]] = [
        ({}, ErrorCode.unknown_member_id),
        ({**own, "generation_id_or_member_epoch": 2}, ErrorCode.illegal_generation),
        ({**own, "generation_id_or_member_epoch": -1}, ErrorCode.illegal_generation),
        ({**own, "member_id": "nobody"}, ErrorCode.unknown_member_id),
    ]
    if version >= 7:
        wrong.append(({**own, "group_instance_id": "nobody's"}, ErrorCode.unknown_member_id))
    for who, error in wrong:
        answer = connection.ask(
            ApiKey.OFFSET_COMMIT, version, commit_values(world, member.group_id, {0: 1, 1: 1}, **who)
        )
        assert [error, error] == commit_errors(answer)
    assert {} == fetch_offsets(connection, member.group_id)
    answer = connection.ask(ApiKey.OFFSET_COMMIT, version, commit_values(world, member.group_id, {0: 3}, **own))
    assert [ErrorCode.none] == commit_errors(answer)
    assert {(world.topic, 0): (3, "note")} == fetch_offsets(connection, member.group_id)


@every_version(ApiKey.OFFSET_COMMIT)
def test_offset_commit_to_no_group(connection: RawConnection, world: World, version: int) -> None:
    """Who claims a generation of a group that is not there learns so, if its version knows how to say it."""
    group_id = unused_group(connection)
    request = commit_values(world, group_id, {0: 1}, member_id="me", generation_id_or_member_epoch=1)
    error = ErrorCode.group_id_not_found if version >= 9 else ErrorCode.illegal_generation
    assert [error] == commit_errors(connection.ask(ApiKey.OFFSET_COMMIT, version, request))
    assert {} == fetch_offsets(connection, group_id)


@every_version(ApiKey.OFFSET_COMMIT)
def test_offset_metadata_has_a_limit(connection: RawConnection, world: World, version: int) -> None:
    group_id = unused_group(connection)
    request = commit_values(world, group_id, {0: 1, 1: 1})
    for part, size in zip(request["topics"][0]["partitions"], (METADATA_MAX, METADATA_MAX + 1), strict=True):
        part["committed_metadata"] = "x" * size
    answer = connection.ask(ApiKey.OFFSET_COMMIT, version, request)
    assert [ErrorCode.none, ErrorCode.offset_metadata_too_large] == commit_errors(answer)
    assert {(world.topic, 0): (1, "x" * METADATA_MAX)} == fetch_offsets(connection, group_id)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_retention_of_its_own(connection: RawConnection, world: World, version: int) -> None:
    """Old versions say how long to keep an offset; it is there until somebody looks for old ones."""
    group_id = unused_group(connection)
    request = commit_values(world, group_id, {0: 1}, retention_time=timedelta(days=1))
    assert [ErrorCode.none] == commit_errors(connection.ask(ApiKey.OFFSET_COMMIT, version, request))
    assert {(world.topic, 0): (1, "note")} == fetch_offsets(connection, group_id)


# OffsetFetch


@every_version(ApiKey.OFFSET_FETCH)
def test_offset_fetch(connection: RawConnection, world: World, version: int) -> None:
    group_id = unused_group(connection)
    assert [ErrorCode.none] == commit_errors(
        connection.ask(ApiKey.OFFSET_COMMIT, 9, commit_values(world, group_id, {1: 7}))
    )
    epoch = 0 if version >= 5 else -1
    there: Fetched = (1, 7, epoch, "note", ErrorCode.none)
    nothing: Fetched = (2, -1, -1, "", ErrorCode.none)
    answer = fetch(connection, world, version, group_id, [1, 2])
    assert (ErrorCode.none, [there, nothing]) == answer
    if version >= 2:
        assert (ErrorCode.none, [there]) == fetch(connection, world, version, group_id, None)
    assert (ErrorCode.none, [nothing]) == fetch(connection, world, version, "no-such-group", [2])
    assert (ErrorCode.none, []) == fetch(connection, world, version, group_id, [])


def fetch(
    connection: RawConnection, world: World, version: int, group_id: str, indexes: list[int] | None
) -> tuple[ErrorCode, list[Fetched]]:
    """The group's error, and its offsets of the world's topic."""
    topics = None
    if indexes is not None:
        topics = [{"name": world.topic, "topic_id": world.topic_id, "partition_indexes": indexes}]
    group = {"group_id": group_id, "topics": topics}
    answer = connection.ask(ApiKey.OFFSET_FETCH, version, {**group, "groups": [group], "require_stable": True})
    found = answer
    if version >= 8:
        (found,) = answer.groups
        assert group_id == found.group_id
    for topic in found.topics:
        assert (world.topic_id if version >= 10 else world.topic) == (topic.topic_id if version >= 10 else topic.name)
    return (found.error_code if version >= 2 else ErrorCode.none), [
        (
            part.partition_index,
            part.committed_offset,
            part.committed_leader_epoch if version >= 5 else -1,
            part.metadata,
            part.error_code,
        )
        for topic in found.topics
        for part in topic.partitions
    ]


@pytest.mark.parametrize("version", [8, 9, 10])
def test_offset_fetch_of_several_groups(connection: RawConnection, world: World, version: int) -> None:
    first, second = unused_group(connection), unused_group(connection)
    for group_id, offset in ((first, 1), (second, 2)):
        connection.ask(ApiKey.OFFSET_COMMIT, 9, commit_values(world, group_id, {0: offset}))
    topics = [{"name": world.topic, "topic_id": world.topic_id, "partition_indexes": [0]}]
    groups: list[dict[str, Any]] = [
        {"group_id": first, "topics": topics},
        {"group_id": "no-such", "topics": None},
        {"group_id": second, "topics": None},
        {"group_id": first, "topics": topics},
    ]
    answer = connection.ask(ApiKey.OFFSET_FETCH, version, {"groups": groups})
    assert [(first, [1]), ("no-such", []), (second, [2]), (first, [1])] == [
        (group.group_id, [part.committed_offset for topic in group.topics for part in topic.partitions])
        for group in answer.groups
    ]
    assert () == connection.ask(ApiKey.OFFSET_FETCH, version, {"groups": []}).groups


def test_offset_fetch_of_unknown_ids(connection: RawConnection, world: World) -> None:
    """They have their place among the others, and their error."""
    group_id = unused_group(connection)
    connection.ask(ApiKey.OFFSET_COMMIT, 9, commit_values(world, group_id, {0: 4}))
    ids = [NO_SUCH_ID, world.topic_id, None]
    topics = [{"topic_id": topic_id, "partition_indexes": [0, 1]} for topic_id in ids]
    answer = connection.ask(ApiKey.OFFSET_FETCH, 10, {"groups": [{"group_id": group_id, "topics": topics}]})
    assert {
        (NO_SUCH_ID, 0, -1, ErrorCode.unknown_topic_id),
        (NO_SUCH_ID, 1, -1, ErrorCode.unknown_topic_id),
        (world.topic_id, 0, 4, ErrorCode.none),
        (world.topic_id, 1, -1, ErrorCode.none),
        (None, 0, -1, ErrorCode.unknown_topic_id),
        (None, 1, -1, ErrorCode.unknown_topic_id),
    } == {
        (topic.topic_id, part.partition_index, part.committed_offset, part.error_code)
        for topic in answer.groups[0].topics
        for part in topic.partitions
    }


def test_offsets_of_a_deleted_topic_are_gone(connection: RawConnection, world: World) -> None:
    group_id, name = unused_group(connection), unused_name()
    topic_id = create_topic(connection, name)
    topics = [{"topic_id": topic_id, "partitions": [{"partition_index": 0, "committed_offset": 2}]}]
    request = {"group_id": group_id, "generation_id_or_member_epoch": -1, "topics": topics}
    assert [ErrorCode.none] == commit_errors(connection.ask(ApiKey.OFFSET_COMMIT, 10, request))
    connection.ask(ApiKey.OFFSET_COMMIT, 9, commit_values(world, group_id, {0: 4}))
    connection.ask_newest(ApiKey.DELETE_TOPICS, {"topics": [{"name": name}], "timeout": timedelta(seconds=15)})
    wait_until(lambda: (name, 0) not in fetch_offsets(connection, group_id), "the topic's offset is gone")
    assert {(world.topic, 0): (4, "note")} == fetch_offsets(connection, group_id)


# OffsetDelete


@every_version(ApiKey.OFFSET_DELETE)
def test_offset_delete(connection: RawConnection, world: World, version: int) -> None:
    group_id = unused_group(connection)
    connection.ask(ApiKey.OFFSET_COMMIT, 9, commit_values(world, group_id, {0: 1, 1: 1}))
    error, outcomes = delete(connection, group_id, {world.topic: [0, 2, 9], "no-such": [0]})
    assert ErrorCode.none is error
    assert {
        (world.topic, 0): ErrorCode.none,
        (world.topic, 2): ErrorCode.none,
        (world.topic, 9): ErrorCode.unknown_topic_or_partition,
        ("no-such", 0): ErrorCode.unknown_topic_or_partition,
    } == outcomes
    assert {(world.topic, 1): (1, "note")} == fetch_offsets(connection, group_id)
    assert (ErrorCode.group_id_not_found, {}) == delete(connection, "no-such", {world.topic: [0]})
    assert (ErrorCode.invalid_group_id, {}) == delete(connection, "", {world.topic: [0]})


def test_offsets_of_subscribed_topics_stay(connection: RawConnection, world: World) -> None:
    member = join_alone(connection, world.topic)
    own = {"member_id": member.member_id, "generation_id_or_member_epoch": 1}
    connection.ask(ApiKey.OFFSET_COMMIT, 9, commit_values(world, member.group_id, {0: 1}, **own))
    error, outcomes = delete(connection, member.group_id, {world.topic: [0]})
    assert (ErrorCode.none, {(world.topic, 0): ErrorCode.group_subscribed_to_topic}) == (error, outcomes)
    assert {(world.topic, 0): (1, "note")} == fetch_offsets(connection, member.group_id)


def delete(
    connection: RawConnection, group_id: str, partitions: dict[str, list[int]]
) -> tuple[ErrorCode, dict[tuple[str, int], ErrorCode]]:
    topics = [
        {"name": name, "partitions": [{"partition_index": index} for index in indexes]}
        for name, indexes in partitions.items()
    ]
    answer = connection.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": group_id, "topics": topics})
    return answer.error_code, {
        (topic.name, part.partition_index): part.error_code for topic in answer.topics for part in topic.partitions
    }
