"""The APIs that describe a cluster and its topics, in every version."""

from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from ottla.model.error_codes import ErrorCode as OttlaErrorCode
from ottla.protocol.apis import ADVERTISED, SERVED, ApiKey
from tests.wire import (
    test_record_apis,
    test_security_apis,
    test_share_group_apis,
    test_telemetry_apis,
    test_topic_apis,
)
from tests.wire.exchange import TESTED, RawConnection, every_version
from tests.wire.world import PARTITIONS, World, create_topic, unused_name

NO_SUCH_ID = UUID(int=78)
NOT_ASKED = -(2**31)


@every_version(ApiKey.API_VERSIONS)
def test_api_versions(connection: RawConnection, version: int) -> None:
    software = {"client_software_name": "wire-test", "client_software_version": "1.0"}
    answer = connection.ask(ApiKey.API_VERSIONS, version, software)
    assert ErrorCode.none is answer.error_code
    listed = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert {key: tuple(versions) for key, versions in ADVERTISED.items()}.items() <= listed.items()
    if version >= 3:
        supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        finalized = {each.name: each.max_version_level for each in answer.finalized_features}
        assert ((7, 30), 30) == (supported["metadata.version"], finalized["metadata.version"])
        assert {"group.version": 1, "transaction.version": 2}.items() <= finalized.items()
        assert ((0, 2) if version >= 4 else None) == supported.get("transaction.version")
        assert answer.finalized_features_epoch >= 0
        assert not answer.zk_migration_ready


def test_api_versions_of_a_client_that_means_another_broker(connection: RawConnection, world: World) -> None:
    software = {"client_software_name": "wire-test", "client_software_version": "1.0"}
    found = [
        connection.ask(ApiKey.API_VERSIONS, 5, {**software, "cluster_id": cluster_id, "node_id": node_id}).error_code
        for cluster_id, node_id in (
            (world.cluster_id, world.broker_id),
            (world.cluster_id, world.broker_id + 1),
            ("another-cluster", world.broker_id),
            (None, world.broker_id),
        )
    ]
    stale = ErrorCode.rebootstrap_required
    assert [ErrorCode.none, stale, stale, ErrorCode.invalid_request] == found


@every_version(ApiKey.DESCRIBE_QUORUM)
def test_describe_quorum(connection: RawConnection, world: World, version: int) -> None:
    def ask(topic: str, index: int) -> Any:
        wanted = [{"topic_name": topic, "partitions": [{"partition_index": index}]}]
        answer = connection.ask(ApiKey.DESCRIBE_QUORUM, version, {"topics": wanted})
        assert ErrorCode.none is answer.error_code
        if version >= 2:
            (node,) = answer.nodes
            assert (world.broker_id, world.address) == (
                node.node_id,
                f"{node.listeners[0].host}:{node.listeners[0].port}",
            )
        return answer.topics[0].partitions[0]

    found = ask("__cluster_metadata", 0)
    assert (ErrorCode.none, world.broker_id, ()) == (found.error_code, found.leader_id, found.observers)
    assert [(world.broker_id, found.high_watermark)] == [
        (each.replica_id, each.log_end_offset) for each in found.current_voters
    ]
    assert found.leader_epoch > 0
    for topic, index in ((world.topic, 0), ("__cluster_metadata", 1)):
        assert ErrorCode.unknown_topic_or_partition is ask(topic, index).error_code


@every_version(ApiKey.UNREGISTER_BROKER)
def test_unregister_broker(connection: RawConnection, world: World, version: int) -> None:
    found = [connection.ask(ApiKey.UNREGISTER_BROKER, version, {"broker_id": each}) for each in (99, world.broker_id)]
    assert [ErrorCode.broker_id_not_registered, ErrorCode.invalid_request] == [each.error_code for each in found]
    assert all(each.error_message for each in found)


@every_version(ApiKey.ADD_RAFT_VOTER)
def test_add_raft_voter(connection: RawConnection, version: int) -> None:
    found = [
        connection.ask(ApiKey.ADD_RAFT_VOTER, version, {"cluster_id": each, "voter_id": 7}) for each in ("x", None)
    ]
    assert [ErrorCode.inconsistent_cluster_id, ErrorCode.unsupported_version] == [each.error_code for each in found]
    assert all(each.error_message for each in found)


@every_version(ApiKey.REMOVE_RAFT_VOTER)
def test_remove_raft_voter(connection: RawConnection, version: int) -> None:
    found = [
        connection.ask(ApiKey.REMOVE_RAFT_VOTER, version, {"cluster_id": each, "voter_id": 7}) for each in ("x", None)
    ]
    assert [ErrorCode.inconsistent_cluster_id, ErrorCode.unsupported_version] == [each.error_code for each in found]
    assert all(each.error_message for each in found)


@every_version(ApiKey.UNREGISTER_CONTROLLER)
def test_unregister_controller(connection: RawConnection, world: World, version: int) -> None:
    answer = connection.ask(ApiKey.UNREGISTER_CONTROLLER, version, {"controller_id": world.broker_id})
    assert OttlaErrorCode.CONTROLLER_ID_NOT_REGISTERED == answer.error_code
    assert answer.error_message


@every_version(ApiKey.UPDATE_FEATURES)
def test_update_features(connection: RawConnection, version: int) -> None:
    """Ends with the level that it found: other tests need it."""

    def update(level: int, upgrade_type: int = 1, **values: Any) -> Any:
        updates = [
            {
                "feature": "transaction.version",
                "max_version_level": level,
                "upgrade_type": upgrade_type,
                "allow_downgrade": upgrade_type > 1,
            }
        ]
        return connection.ask(ApiKey.UPDATE_FEATURES, version, {"feature_updates": updates, **values})

    def level() -> int | None:
        answer = connection.ask_newest(
            ApiKey.API_VERSIONS, {"client_software_name": "w", "client_software_version": "1"}
        )
        return {each.name: int(each.max_version_level) for each in answer.finalized_features}.get("transaction.version")

    refused = [update(9), update(-1), update(1)]
    assert [ErrorCode.invalid_update_version] * 3 == [each.error_code for each in refused]
    assert all(each.error_message for each in refused)
    assert 2 == level()
    if version >= 1:
        assert ErrorCode.none is update(1, 2, validate_only=True).error_code
        assert 2 == level()
    lowered = update(0, 2)
    assert (ErrorCode.none, None) == (lowered.error_code, lowered.error_message)
    if version <= 1:
        assert [("transaction.version", ErrorCode.none)] == [
            (each.feature, each.error_code) for each in lowered.results
        ]
    assert level() is None
    assert ErrorCode.none is update(2).error_code
    assert 2 == level()


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("name", ["", "two words", "-dash", "umlaut-ä"])
def test_api_versions_to_software_without_a_proper_name(connection: RawConnection, version: int, name: str) -> None:
    software = {"client_software_name": name, "client_software_version": "1.0"}
    answer = connection.ask(ApiKey.API_VERSIONS, version, software)
    assert (ErrorCode.invalid_request, ()) == (answer.error_code, answer.api_keys)


@every_version(ApiKey.METADATA)
def test_metadata(connection: RawConnection, world: World, version: int) -> None:
    request = {
        "topics": [{"name": world.topic}],
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }
    answer = connection.ask(ApiKey.METADATA, version, request)
    (broker,) = answer.brokers
    assert world.address == f"{broker.host}:{broker.port}"
    assert world.broker_id == broker.node_id
    (topic,) = answer.topics
    assert (ErrorCode.none, world.topic) == (topic.error_code, topic.name)
    assert list(range(PARTITIONS)) == sorted(part.partition_index for part in topic.partitions)
    for part in topic.partitions:
        assert (ErrorCode.none, world.broker_id) == (part.error_code, part.leader_id)
        assert ((world.broker_id,), (world.broker_id,)) == (part.replica_nodes, part.isr_nodes)
        if version >= 5:
            assert () == part.offline_replicas
        if version >= 7:
            assert 0 == part.leader_epoch
    if version >= 1:
        assert (world.broker_id, False) == (answer.controller_id, topic.is_internal)
    if version >= 2:
        assert world.cluster_id == answer.cluster_id
    if version >= 8:
        assert 3576 == topic.topic_authorized_operations
    if 8 <= version <= 10:
        assert 8096 == answer.cluster_authorized_operations
    if version >= 10:
        assert world.topic_id == topic.topic_id
    if version >= 13:
        assert ErrorCode.none is answer.error_code


@every_version(ApiKey.METADATA)
def test_metadata_of_all_topics_and_of_none(connection: RawConnection, world: World, version: int) -> None:
    everything = connection.ask(ApiKey.METADATA, version, {"topics": [] if version == 0 else None})
    topics = {topic.name: topic for topic in everything.topics}
    assert PARTITIONS == len(topics[world.topic].partitions)
    if version >= 8:
        assert NOT_ASKED == topics[world.topic].topic_authorized_operations
    if 8 <= version <= 10:
        assert NOT_ASKED == everything.cluster_authorized_operations
    if version >= 1:
        assert () == connection.ask(ApiKey.METADATA, version, {"topics": []}).topics


@every_version(ApiKey.METADATA)
def test_metadata_of_what_is_not_there(connection: RawConnection, version: int) -> None:
    missing = unused_name()
    names = ["no topic", *([missing] if version >= 4 else [])]
    request = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
    answer = connection.ask(ApiKey.METADATA, version, request)
    found = {topic.name: (topic.error_code, topic.partitions) for topic in answer.topics}
    assert (ErrorCode.invalid_topic_exception, ()) == found["no topic"]
    if version >= 4:
        assert (ErrorCode.unknown_topic_or_partition, ()) == found[missing]


@every_version(ApiKey.METADATA)
def test_metadata_makes_topics(connection: RawConnection, version: int) -> None:
    """Before version 4 whoever asks agrees; Kafka and we differ only in how soon the topic shows."""
    name = unused_name()
    request = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
    for _ in range(1000):
        (topic,) = connection.ask(ApiKey.METADATA, version, request).topics
        if topic.error_code is ErrorCode.none:
            break
        assert topic.error_code in (ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available)
    assert (ErrorCode.none, name, 1) == (topic.error_code, topic.name, len(topic.partitions))


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_by_id(connection: RawConnection, world: World, version: int) -> None:
    wanted = [{"name": None, "topic_id": NO_SUCH_ID}, {"name": None, "topic_id": world.topic_id}]
    answer = connection.ask(ApiKey.METADATA, version, {"topics": wanted})
    found = {topic.topic_id: (topic.name, topic.error_code) for topic in answer.topics}
    assert {
        NO_SUCH_ID: (None, ErrorCode.unknown_topic_id),
        world.topic_id: (world.topic, ErrorCode.none),
    } == found


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("wanted", [{"name": None}, {"name": "x", "topic_id": NO_SUCH_ID}])
def test_metadata_by_id_before_its_time(connection: RawConnection, version: int, wanted: dict[str, Any]) -> None:
    answer = connection.ask(ApiKey.METADATA, version, {"topics": [wanted]})
    assert [ErrorCode.invalid_request] == [topic.error_code for topic in answer.topics]


@every_version(ApiKey.DESCRIBE_CLUSTER)
def test_describe_cluster(connection: RawConnection, world: World, version: int) -> None:
    request = {"include_cluster_authorized_operations": True, "include_fenced_brokers": True}
    answer = connection.ask(ApiKey.DESCRIBE_CLUSTER, version, request)
    (broker,) = answer.brokers
    assert (ErrorCode.none, None, 8096) == (
        answer.error_code,
        answer.error_message,
        answer.cluster_authorized_operations,
    )
    assert (world.cluster_id, world.broker_id) == (answer.cluster_id, answer.controller_id)
    assert (world.broker_id, world.address) == (broker.broker_id, f"{broker.host}:{broker.port}")
    if version >= 1:
        assert 1 == answer.endpoint_type
        for endpoint_type, error in (
            (2, ErrorCode.mismatched_endpoint_type),
            (9, ErrorCode.unsupported_endpoint_type),
        ):
            refused = connection.ask(ApiKey.DESCRIBE_CLUSTER, version, {"endpoint_type": endpoint_type})
            assert (error, ()) == (refused.error_code, refused.brokers)
    if version >= 2:
        assert not broker.is_fenced


@every_version(ApiKey.DESCRIBE_LOG_DIRS)
def test_describe_log_dirs(connection: RawConnection, world: World, version: int) -> None:
    request = {"topics": [{"topic": world.topic, "partitions": [1, 0, 9]}, {"topic": "no-such", "partitions": [0]}]}
    answer = connection.ask(ApiKey.DESCRIBE_LOG_DIRS, version, request)
    (folder,) = answer.results
    assert (ErrorCode.none, [world.topic]) == (folder.error_code, [topic.name for topic in folder.topics])
    sizes = {part.partition_index: part.partition_size for part in folder.topics[0].partitions}
    assert 0 == sizes.pop(1)
    assert [True] == [size > 0 for size in sizes.values()]
    assert {(0, False)} == {(part.offset_lag, part.is_future_key) for part in folder.topics[0].partitions}
    if version >= 3:
        assert ErrorCode.none is answer.error_code
    if version >= 4:
        assert folder.total_bytes >= folder.usable_bytes > 0
    everything = connection.ask(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": None})
    partitions = {topic.name: len(topic.partitions) for topic in everything.results[0].topics}
    assert PARTITIONS == partitions[world.topic]
    assert () == connection.ask(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": []}).results[0].topics


@every_version(ApiKey.ALTER_REPLICA_LOG_DIRS)
def test_alter_replica_log_dirs(connection: RawConnection, world: World, version: int) -> None:
    """The broker has one data dir, where all partitions are."""
    (folder,) = connection.ask_newest(ApiKey.DESCRIBE_LOG_DIRS, {"topics": []}).results

    def alter(path: str, topic: str, *indexes: int) -> list[tuple[str, int, ErrorCode]]:
        wanted = [{"path": path, "topics": [{"name": topic, "partitions": list(indexes)}]}]
        answer = connection.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, version, {"dirs": wanted})
        return [
            (each.topic_name, part.partition_index, part.error_code)
            for each in answer.results
            for part in each.partitions
        ]

    found = alter(folder.log_dir, world.topic, 0, 9)
    assert [(world.topic, 0, ErrorCode.none), (world.topic, 9, ErrorCode.unknown_topic_or_partition)] == found
    assert [("no-such", 0, ErrorCode.unknown_topic_or_partition)] == alter(folder.log_dir, "no-such", 0)
    assert [(world.topic, 0, ErrorCode.log_dir_not_found)] == alter("/no/such/folder", world.topic, 0)


@every_version(ApiKey.ELECT_LEADERS)
def test_elect_leaders(connection: RawConnection, world: World, version: int) -> None:
    wanted = [{"topic": world.topic, "partitions": [0, 9]}]
    answer = connection.ask(ApiKey.ELECT_LEADERS, version, {"topic_partitions": wanted})
    (topic,) = answer.replica_election_results
    found = {part.partition_id: part.error_code for part in topic.partition_result}
    assert {0: ErrorCode.election_not_needed, 9: ErrorCode.unknown_topic_or_partition} == found
    if version >= 1:
        assert ErrorCode.none is answer.error_code
        request = {"topic_partitions": wanted, "election_type": 7}
        assert ErrorCode.invalid_request is connection.ask(ApiKey.ELECT_LEADERS, version, request).error_code
    everywhere = connection.ask(ApiKey.ELECT_LEADERS, version, {"topic_partitions": None})
    assert [()] * len(everywhere.replica_election_results) == [
        topic.partition_result for topic in everywhere.replica_election_results
    ]


@every_version(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
def test_alter_partition_reassignments(connection: RawConnection, world: World, version: int) -> None:
    cases = {
        (0, (world.broker_id,)): ErrorCode.none,
        (0, None): ErrorCode.no_reassignment_in_progress,
        (0, (99,)): ErrorCode.invalid_replica_assignment,
        (0, ()): ErrorCode.invalid_replica_assignment,
        (9, (world.broker_id,)): ErrorCode.unknown_topic_or_partition,
    }
    for (index, replicas), expected in cases.items():
        topics = world.wanted(partition_index=index, replicas=replicas)
        answer = connection.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, {"topics": topics})
        (topic,) = answer.responses
        (found,) = topic.partitions
        assert ErrorCode.none is answer.error_code
        assert (world.topic, index, expected) == (topic.name, found.partition_index, found.error_code)


@every_version(ApiKey.LIST_PARTITION_REASSIGNMENTS)
def test_list_partition_reassignments(connection: RawConnection, world: World, version: int) -> None:
    for topics in (None, [{"name": world.topic, "partition_indexes": [0, 9]}]):
        answer = connection.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, version, {"topics": topics})
        assert (ErrorCode.none, ()) == (answer.error_code, answer.topics)


@every_version(ApiKey.LIST_CONFIG_RESOURCES)
def test_list_config_resources(connection: RawConnection, world: World, version: int) -> None:
    answer = connection.ask(ApiKey.LIST_CONFIG_RESOURCES, version, {"resource_types": [2]})
    assert ErrorCode.none is answer.error_code
    found = {resource.resource_name for resource in answer.config_resources}
    assert (version >= 1) == (world.topic in found)


@every_version(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def test_describe_topic_partitions(connection: RawConnection, version: int) -> None:
    first, second = sorted((unused_name(), unused_name()))
    create_topic(connection, second)
    topic_id = create_topic(connection, first, 3)
    topics = [{"name": second}, {"name": first}]
    page = connection.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, version, {"topics": topics, "response_partition_limit": 2})
    (topic,) = page.topics
    assert (ErrorCode.none, first, topic_id, 3576) == (
        topic.error_code,
        topic.name,
        topic.topic_id,
        topic.topic_authorized_operations,
    )
    assert [0, 1] == [part.partition_index for part in topic.partitions]
    assert (first, 2) == (page.next_cursor.topic_name, page.next_cursor.partition_index)
    request = {"topics": topics, "cursor": {"topic_name": first, "partition_index": 2}}
    rest = connection.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, version, request)
    assert [(first, [2]), (second, [0])] == [
        (topic.name, [part.partition_index for part in topic.partitions]) for topic in rest.topics
    ]
    assert rest.next_cursor is None


def test_no_api_was_forgotten() -> None:
    """Each module notes what it goes through when it is imported."""
    assert all((test_record_apis, test_security_apis, test_share_group_apis, test_telemetry_apis, test_topic_apis))
    assert set(SERVED) == TESTED
