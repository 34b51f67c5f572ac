"""The APIs of groups of Kafka Streams clients, whose tasks the broker assigns, in every version."""

from datetime import timedelta
from typing import Any, Final

import pytest
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from ottla.protocol.apis import ApiKey
from ottla.protocol.config_resources import ResourceType
from tests.wire.exchange import RawConnection, every_version, fill, message_class
from tests.wire.groups import SESSION, commit_errors, commit_values, join_alone, unused_group
from tests.wire.world import PARTITIONS, World, create_topic, unused_name

GROUP_OPERATIONS = sum(1 << bit for bit in (3, 6, 8, 10, 11))
NOT_ASKED = -(2**31)
AS_BEFORE = timedelta(milliseconds=-1)
MEMBER = "a-member"
SHORT_DELAY: Final = {"streams.initial.rebalance.delay.ms": "0", "streams.assignment.interval.ms": "0"}
MISSING_SOURCES, MISSING_INTERNALS, DELAYED = 1, 3, 5


def topology(world: World, app: str, **values: Any) -> dict[str, Any]:
    """Reads the world's topic, repartitions it, and keeps state with a changelog."""
    repartition, changelog = f"{app}-by-key-repartition", f"{app}-counts-changelog"
    return {
        "epoch": 0,
        "subtopologies": [
            {"subtopology_id": "0", "source_topics": [world.topic], "repartition_sink_topics": [repartition]},
            {
                "subtopology_id": "1",
                "repartition_source_topics": [
                    {"name": repartition, "topic_configs": [{"key": "cleanup.policy", "value": "delete"}]}
                ],
                "state_changelog_topics": [
                    {"name": changelog, "topic_configs": [{"key": "cleanup.policy", "value": "compact"}]}
                ],
                "copartition_groups": [{"repartition_source_topics": [0]}],
            },
        ],
        **values,
    }


def first_beat(world: World, group_id: str, **values: Any) -> dict[str, Any]:
    """Joins."""
    return {
        "group_id": group_id,
        "member_id": MEMBER,
        "member_epoch": 0,
        "rebalance_timeout": SESSION,
        "topology": topology(world, group_id),
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": "a-process",
        "user_endpoint": {"host": "app.example", "port": 50_000},
        "client_tags": [{"key": "zone", "value": "a"}],
        "task_offsets": None,
        "task_end_offsets": None,
        **values,
    }


def later_beat(group_id: str, epoch: int, **values: Any) -> dict[str, Any]:
    """Says nothing new."""
    return {
        "group_id": group_id,
        "member_id": MEMBER,
        "member_epoch": epoch,
        "rebalance_timeout": AS_BEFORE,
        "topology": None,
        "active_tasks": None,
        "standby_tasks": None,
        "warmup_tasks": None,
        "process_id": None,
        "user_endpoint": None,
        "client_tags": None,
        "task_offsets": None,
        "task_end_offsets": None,
        **values,
    }


def beat(connection: RawConnection, values: dict[str, Any], version: int = 0) -> Any:
    return connection.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, version, values)


def set_configs(connection: RawConnection, group_id: str, **configs: str) -> ErrorCode:
    """Sets configs of a group."""
    answer = connection.ask_newest(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        {
            "resources": [
                {
                    "resource_type": ResourceType.GROUP,
                    "resource_name": group_id,
                    "configs": [
                        {"name": name, "config_operation": 0, "value": value} for name, value in configs.items()
                    ],
                }
            ]
        },
    )
    return ErrorCode(answer.responses[0].error_code)


def new_group(connection: RawConnection) -> str:
    """An unused group whose members do not wait for each other."""
    group_id = unused_group(connection)
    assert ErrorCode.none is set_configs(connection, group_id, **SHORT_DELAY)
    return group_id


def tasks(role: Any) -> dict[str, tuple[int, ...]] | None:
    return None if role is None else {each.subtopology_id: each.partitions for each in role}


def settle(connection: RawConnection, group_id: str, answer: Any) -> Any:
    """Sends heartbeats until no status is left; Kafka creates internal topics some moments after it said so."""
    while answer.status:
        answer = beat(connection, later_beat(group_id, answer.member_epoch))
        assert ErrorCode.none is answer.error_code, answer.error_message
    return answer


def join_streams_group(connection: RawConnection, world: World, version: int = 0) -> tuple[str, int]:
    """A new group whose only member has all tasks: group and member epoch."""
    group_id = new_group(connection)
    answer = beat(connection, first_beat(world, group_id), version)
    assert (ErrorCode.none, None, MEMBER) == (answer.error_code, answer.error_message, answer.member_id)
    (missing,) = answer.status
    assert MISSING_INTERNALS == missing.status_code
    start, _, names = missing.status_detail.partition(": ")
    assert "Internal topics are missing" == start
    assert {f"{group_id}-by-key-repartition", f"{group_id}-counts-changelog"} == set(names.split(", "))
    assert ({}, {}, {}) == (tasks(answer.active_tasks), tasks(answer.standby_tasks), tasks(answer.warmup_tasks))
    answer = settle(connection, group_id, answer)
    everything = tuple(range(PARTITIONS))
    assert {"0": everything, "1": everything} == tasks(answer.active_tasks)
    return group_id, answer.member_epoch


@every_version(ApiKey.STREAMS_GROUP_HEARTBEAT)
def test_streams_group_heartbeat(connection: RawConnection, world: World, version: int) -> None:
    group_id, epoch = join_streams_group(connection, world, version)
    owned = [{"subtopology_id": each, "partitions": list(range(PARTITIONS))} for each in ("0", "1")]
    report = {"active_tasks": owned, "standby_tasks": [], "warmup_tasks": []}
    for values in (later_beat(group_id, epoch), later_beat(group_id, epoch, **report)):
        answer = beat(connection, values, version)
        assert (ErrorCode.none, MEMBER, epoch) == (answer.error_code, answer.member_id, answer.member_epoch)
        assert (None, None, None) == (answer.active_tasks, answer.standby_tasks, answer.warmup_tasks)
    left = beat(connection, later_beat(group_id, -1), version)
    assert (ErrorCode.none, MEMBER, -1) == (left.error_code, left.member_id, left.member_epoch)
    assert ErrorCode.unknown_member_id is beat(connection, later_beat(group_id, epoch), version).error_code


@every_version(ApiKey.STREAMS_GROUP_HEARTBEAT)
def test_endpoints_come_once(connection: RawConnection, world: World, version: int) -> None:
    group_id, epoch = join_streams_group(connection, world, version)
    answer = beat(connection, later_beat(group_id, epoch), version)
    (found,) = answer.partitions_by_user_endpoint
    assert ("app.example", 50_000) == (found.user_endpoint.host, found.user_endpoint.port)
    everything = tuple(range(PARTITIONS))
    assert {world.topic: everything, f"{group_id}-by-key-repartition": everything} == {
        each.topic: each.partitions for each in found.active_partitions
    }
    assert () == found.standby_partitions
    known = later_beat(group_id, epoch, endpoint_information_epoch=answer.endpoint_information_epoch)
    assert beat(connection, known, version).partitions_by_user_endpoint is None


@every_version(ApiKey.STREAMS_GROUP_HEARTBEAT)
def test_streams_group_heartbeat_refused(connection: RawConnection, world: World, version: int) -> None:
    group_id, epoch = join_streams_group(connection, world, version)
    one = [{"subtopology_id": "0", "partitions": [0]}]
    plain = {"subtopology_id": "0", "source_topics": [world.topic]}
    wrong: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"group_id": ""}, ErrorCode.invalid_request),
        ({"member_id": ""}, ErrorCode.invalid_request),
        ({"rack_id": ""}, ErrorCode.invalid_request),
        ({"instance_id": "i"}, ErrorCode.invalid_request),
        ({"rebalance_timeout": AS_BEFORE}, ErrorCode.invalid_request),
        ({"topology": None}, ErrorCode.invalid_request),
        ({"active_tasks": one}, ErrorCode.invalid_request),
        ({"standby_tasks": one}, ErrorCode.invalid_request),
        ({"warmup_tasks": one}, ErrorCode.invalid_request),
        ({"warmup_tasks": None}, ErrorCode.invalid_request),
        ({"task_offsets": []}, ErrorCode.invalid_request),
        ({"member_epoch": -3}, ErrorCode.invalid_request),
        ({"member_epoch": -2}, ErrorCode.invalid_request),
        ({"member_epoch": epoch}, ErrorCode.invalid_request),
        (
            {"topology": {"subtopologies": [{**plain, "source_topic_regex": ["a.*"]}]}},
            ErrorCode.invalid_request,
        ),
        (
            {"topology": {"subtopologies": [{**plain, "source_topics": ["__consumer_offsets"]}]}},
            ErrorCode.streams_invalid_topology,
        ),
        (
            {"topology": {"subtopologies": [{**plain, "source_topics": ["no/such"]}]}},
            ErrorCode.streams_invalid_topology,
        ),
        (
            {"topology": {"subtopologies": [{**plain, "state_changelog_topics": [{"name": "c", "partitions": 1}]}]}},
            ErrorCode.streams_invalid_topology,
        ),
        ({"topology": {"epoch": 1, "subtopologies": [plain]}}, ErrorCode.invalid_request),
        ({"topology": None, "member_epoch": epoch + 1}, ErrorCode.fenced_member_epoch),
        ({"topology": None, "member_id": "nobody", "member_epoch": epoch}, ErrorCode.unknown_member_id),
        ({"topology": None, "member_id": "nobody", "member_epoch": -1}, ErrorCode.unknown_member_id),
        ({"topology": None, "group_id": "no-such", "member_epoch": epoch}, ErrorCode.group_id_not_found),
    ]
    for changed, error in wrong:
        answer = beat(connection, {**first_beat(world, group_id), **changed}, version)
        assert (error, "", 0, None) == (
            answer.error_code,
            answer.member_id,
            answer.member_epoch,
            answer.active_tasks,
        ), changed
        assert answer.error_message
    unknown_task = [{"subtopology_id": "0", "partitions": [PARTITIONS]}]
    report = {"active_tasks": unknown_task, "standby_tasks": [], "warmup_tasks": []}
    assert ErrorCode.invalid_request is beat(connection, later_beat(group_id, epoch, **report), version).error_code
    answer = beat(connection, later_beat(group_id, epoch), version)
    assert (ErrorCode.none, epoch) == (answer.error_code, answer.member_epoch)


def test_a_malformed_topology_is_refused(connection: RawConnection, world: World) -> None:
    """Kafka answers all of these with UNKNOWN_SERVER_ERROR."""
    group_id = new_group(connection)
    plain = {"subtopology_id": "0", "source_topics": [world.topic]}
    malformed: list[dict[str, Any]] = [
        {"epoch": -1, "subtopologies": [plain]},
        {"subtopologies": [plain, plain]},
        {"subtopologies": [{"subtopology_id": "0"}]},
        {"subtopologies": [{**plain, "copartition_groups": [{"source_topics": [1]}]}]},
        {"subtopologies": [{**plain, "repartition_source_topics": [{"name": "r", "partitions": 2**31 - 1}]}]},
    ]
    for each in malformed:
        answer = beat(connection, first_beat(world, group_id, topology=each))
        assert ErrorCode.streams_invalid_topology is answer.error_code, each
        assert answer.error_message


def test_a_missing_source_topic_is_told_until_it_exists(connection: RawConnection, world: World) -> None:
    group_id, source = new_group(connection), unused_name()
    plain = {"subtopologies": [{"subtopology_id": "0", "source_topics": [source]}]}
    answer = beat(connection, first_beat(world, group_id, topology=plain, user_endpoint=None))
    assert ErrorCode.none is answer.error_code, answer.error_message
    assert [(MISSING_SOURCES, f"Source topics {source} are missing.")] == [
        (each.status_code, each.status_detail) for each in answer.status
    ]
    create_topic(connection, source, 2)
    answer = settle(connection, group_id, answer)
    assert {"0": (0, 1)} == tasks(answer.active_tasks)


def test_a_new_group_waits_for_more_members(connection: RawConnection, world: World) -> None:
    group_id = unused_group(connection)
    answer = beat(connection, first_beat(world, group_id))
    assert {DELAYED, MISSING_INTERNALS} == {each.status_code for each in answer.status}
    assert timedelta(seconds=5) == answer.heartbeat_interval


def test_configs_of_a_group(connection: RawConnection, world: World) -> None:
    group_id = new_group(connection)
    assert ErrorCode.none is set_configs(connection, group_id, **{"streams.heartbeat.interval.ms": "7000"})
    refused = {
        "streams.heartbeat.interval.ms": "100",
        "streams.session.timeout.ms": "600000",
        "streams.num.standby.replicas": "3",
        "streams.assignment.interval.ms": "-1",
        "streams.no.such": "1",
    }
    for name, value in refused.items():
        assert ErrorCode.invalid_config is set_configs(connection, group_id, **{name: value}), name
    answer = beat(connection, first_beat(world, group_id))
    assert timedelta(seconds=7) == answer.heartbeat_interval
    wanted = {"resource_type": ResourceType.GROUP, "resource_name": group_id, "configuration_keys": None}
    described = connection.ask_newest(ApiKey.DESCRIBE_CONFIGS, {"resources": [wanted]})
    found = {each.name: (each.value, each.config_source) for each in described.results[0].configs}
    assert ("7000", 8) == found["streams.heartbeat.interval.ms"]
    assert ("45000", 5) == found["streams.session.timeout.ms"]
    listed = connection.ask_newest(ApiKey.LIST_CONFIG_RESOURCES, {"resource_types": [ResourceType.GROUP]})
    assert group_id in {each.resource_name for each in listed.config_resources}


@every_version(ApiKey.STREAMS_GROUP_DESCRIBE)
def test_streams_group_describe(connection: RawConnection, world: World, version: int) -> None:
    group_id, epoch = join_streams_group(connection, world)
    classic = join_alone(connection).group_id
    for asks in (False, True):
        request = {"group_ids": [group_id, "no-such", classic, ""], "include_authorized_operations": asks}
        answer = connection.ask(ApiKey.STREAMS_GROUP_DESCRIBE, version, request)
        groups = {group.group_id: group for group in answer.groups}
        group = groups[group_id]
        assert (ErrorCode.none, None, "Stable", epoch, epoch) == (
            group.error_code,
            group.error_message,
            group.group_state,
            group.group_epoch,
            group.assignment_epoch,
        )
        assert (GROUP_OPERATIONS if asks else NOT_ASKED) == group.authorized_operations
        first, second = group.topology.subtopologies
        repartition, changelog = f"{group_id}-by-key-repartition", f"{group_id}-counts-changelog"
        assert (0, "0", (world.topic,), (repartition,)) == (
            group.topology.epoch,
            first.subtopology_id,
            first.source_topics,
            first.repartition_sink_topics,
        )
        assert [(repartition, PARTITIONS)] == [
            (each.name, each.partitions) for each in second.repartition_source_topics
        ]
        assert [(changelog, PARTITIONS, [("cleanup.policy", "compact")])] == [
            (each.name, each.partitions, [(config.key, config.value) for config in each.topic_configs])
            for each in second.state_changelog_topics
        ]
        (member,) = group.members
        assert (MEMBER, epoch, None, None, "wire", "/127.0.0.1", 0, "a-process", False) == (
            member.member_id,
            member.member_epoch,
            member.instance_id,
            member.rack_id,
            member.client_id,
            member.client_host,
            member.topology_epoch,
            member.process_id,
            member.is_classic,
        )
        assert ("app.example", 50_000) == (member.user_endpoint.host, member.user_endpoint.port)
        assert [("zone", "a")] == [(tag.key, tag.value) for tag in member.client_tags]
        everything = {"0": tuple(range(PARTITIONS)), "1": tuple(range(PARTITIONS))}
        assert everything == tasks(member.assignment.active_tasks) == tasks(member.target_assignment.active_tasks)
        for other in ("no-such", classic):
            refused = groups[other]
            assert (ErrorCode.group_id_not_found, None, ()) == (refused.error_code, refused.topology, refused.members)
        assert ErrorCode.invalid_group_id is groups[""].error_code


def test_listed_and_deleted_as_a_streams_group(connection: RawConnection, world: World) -> None:
    group_id, _ = join_streams_group(connection, world)
    listed = connection.ask_newest(ApiKey.LIST_GROUPS, {"states_filter": ["stable"], "types_filter": ["streams"]})
    found = {each.group_id: each for each in listed.groups}
    assert ("streams", "streams", "Stable") == (
        found[group_id].protocol_type,
        found[group_id].group_type,
        found[group_id].group_state,
    )

    def delete() -> ErrorCode:
        answer = connection.ask_newest(ApiKey.DELETE_GROUPS, {"groups_names": [group_id]})
        return ErrorCode(answer.results[0].error_code)

    assert ErrorCode.non_empty_group is delete()
    assert ErrorCode.none is beat(connection, later_beat(group_id, -1)).error_code
    assert ErrorCode.none is delete()
    assert ErrorCode.group_id_not_found is beat(connection, later_beat(group_id, 1)).error_code


def test_offsets_are_committed_with_the_member_epoch(connection: RawConnection, world: World) -> None:
    group_id, epoch = join_streams_group(connection, world)
    for generation, error in ((epoch, ErrorCode.none), (epoch + 1, ErrorCode.stale_member_epoch)):
        values = commit_values(world, group_id, {0: 1}, member_id=MEMBER, generation_id_or_member_epoch=generation)
        assert [error] == commit_errors(connection.ask_newest(ApiKey.OFFSET_COMMIT, values))


def test_groups_of_other_kinds_keep_their_ids(connection: RawConnection, world: World) -> None:
    classic = join_alone(connection).group_id
    answer = beat(connection, first_beat(world, classic))
    assert (ErrorCode.group_id_not_found, f"Group {classic} is not a streams group.") == (
        answer.error_code,
        answer.error_message,
    )
    group_id, _ = join_streams_group(connection, world)
    consumer = {
        "group_id": group_id,
        "member_id": "m",
        "rebalance_timeout": SESSION,
        "subscribed_topic_names": [world.topic],
        "topic_partitions": [],
    }
    assert ErrorCode.group_id_not_found is connection.ask_newest(ApiKey.CONSUMER_GROUP_HEARTBEAT, consumer).error_code
    joining = {
        "group_id": group_id,
        "session_timeout": SESSION,
        "rebalance_timeout": SESSION,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    answer = connection.ask_newest(ApiKey.JOIN_GROUP, joining)
    assert ErrorCode.inconsistent_group_protocol is answer.error_code
    # Without members the id is free for another kind.
    assert ErrorCode.none is beat(connection, later_beat(group_id, -1)).error_code
    assert ErrorCode.member_id_required is connection.ask_newest(ApiKey.JOIN_GROUP, joining).error_code


@pytest.mark.parametrize("name", ["group.streams.session.timeout.ms", "group.streams.max.standby.replicas"])
def test_broker_configs_are_described(connection: RawConnection, world: World, name: str) -> None:
    wanted = {
        "resource_type": ResourceType.BROKER,
        "resource_name": str(world.broker_id),
        "configuration_keys": [name],
    }
    described = connection.ask_newest(ApiKey.DESCRIBE_CONFIGS, {"resources": [wanted]})
    assert [name] == [each.name for each in described.results[0].configs]


def description(world: World, *, node_type: int = 1) -> dict[str, Any]:
    source = {
        "name": "KSTREAM-SOURCE-0000000000",
        "node_type": node_type,
        "source_topics": [world.topic],
        "successors": ["KSTREAM-AGGREGATE-0000000001"],
    }
    processor = {
        "name": "KSTREAM-AGGREGATE-0000000001",
        "node_type": 2,
        "stores": ["counts"],
        "successors": ["KSTREAM-SINK-0000000002"],
    }
    sink = {"name": "KSTREAM-SINK-0000000002", "node_type": 3, "sink_topic": "totals"}
    return {
        "subtopologies": [{"subtopology_id": "0", "nodes": [source, processor, sink]}],
        "global_stores": [{"source": source, "processor": processor}],
    }


@every_version(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE)
def test_a_description_is_asked_for_once_kept_and_shown(connection: RawConnection, world: World, version: int) -> None:
    def describe(**values: Any) -> Any:
        (group,) = connection.ask_newest(ApiKey.STREAMS_GROUP_DESCRIBE, {"group_ids": [group_id], **values}).groups
        return group

    def update(**values: Any) -> int:
        identity = {"group_id": group_id, "member_id": MEMBER, "topology_description": description(world)}
        key = ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE
        return int(connection.ask(key, version, identity | values).error_code)

    group_id, epoch = join_streams_group(connection, world, 0)
    beats = [beat(connection, later_beat(group_id, epoch), 1) for _ in range(3)]
    assert [True, False, False] == [each.topology_description_required for each in beats]
    assert [-1] * 3 == [each.acceptable_recovery_lag for each in beats]
    shown = describe(include_topology_description=True)
    assert (1, None, "sticky") == (shown.topology_description_status, shown.topology_description, shown.assignor_name)
    for values, error in (
        ({"group_id": "no-such"}, ErrorCode.group_id_not_found),
        ({"member_id": "nobody"}, ErrorCode.unknown_member_id),
        ({"member_id": ""}, ErrorCode.invalid_request),
        ({"topology_epoch": 1}, ErrorCode.invalid_request),
        ({"topology_description": description(world, node_type=4)}, ErrorCode.invalid_request),
    ):
        assert error == update(**values), values
    sample = description(world)
    assert 135 == update(topology_description={**sample, "subtopologies": sample["subtopologies"] * 1_000})
    assert 1 == describe(include_topology_description=True).topology_description_status
    assert ErrorCode.none == update()
    assert (0, None) == (describe().topology_description_status, describe().topology_description)
    shown = describe(include_topology_description=True)
    sent = described_as(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, version, description(world))
    assert (3, sent) == (shown.topology_description_status, shown.topology_description)
    # One group, however often it is named: a few bytes must not be answered with a megabyte each.
    describe(include_topology_description=True, group_ids=[group_id] * 3)
    beat(connection, later_beat(group_id, -1), 1)
    assert 3 == describe(include_topology_description=True).topology_description_status
    deleted = connection.ask_newest(ApiKey.DELETE_GROUPS, {"groups_names": [group_id]})
    assert ErrorCode.none is deleted.results[0].error_code
    gone = describe(include_topology_description=True)
    assert (ErrorCode.group_id_not_found, 0, None) == (
        gone.error_code,
        gone.topology_description_status,
        gone.assignor_name,
    )


def described_as(api_key: ApiKey, version: int, values: dict[str, Any]) -> Any:
    """A description as the class of the request."""
    request = fill(message_class(api_key, version, EntityType.request), {"topology_description": values})
    return request.topology_description  # type: ignore[attr-defined]
