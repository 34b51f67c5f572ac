"""The APIs that make, change and remove topics, in every version."""

from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from tests.wire.exchange import RawConnection, every_version
from tests.wire.world import TIMEOUT, World, create_topic, unused_name

NO_SUCH_ID = UUID(int=77)


def topics_of(connection: RawConnection, *names: str) -> list[Any]:
    """What the metadata says of these topics."""
    request = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
    return list(connection.ask_newest(ApiKey.METADATA, request).topics)


@every_version(ApiKey.CREATE_TOPICS)
def test_create_topics(connection: RawConnection, version: int) -> None:
    name, twice = unused_name(), unused_name()
    configs = [{"name": "retention.ms", "value": "4000"}]
    wishes = [
        {"name": name, "num_partitions": 2, "replication_factor": 1, "configs": configs},
        {"name": twice, "num_partitions": 1, "replication_factor": 1},
        {"name": twice, "num_partitions": 2, "replication_factor": 1},
        {"name": "no topic", "num_partitions": 1, "replication_factor": 1},
        {"name": unused_name(), "num_partitions": 0, "replication_factor": 1},
        {"name": unused_name(), "num_partitions": 1, "replication_factor": 9},
        {"name": unused_name(), "num_partitions": 1, "replication_factor": 1, "configs": [{"name": "no.such"}]},
    ]
    answer = connection.ask(ApiKey.CREATE_TOPICS, version, {"topics": wishes, "timeout": TIMEOUT})
    found = {topic.name: topic for topic in answer.topics}
    assert {
        name: ErrorCode.none,
        twice: ErrorCode.invalid_request,
        "no topic": ErrorCode.invalid_topic_exception,
        wishes[4]["name"]: ErrorCode.invalid_partitions,
        wishes[5]["name"]: ErrorCode.invalid_replication_factor,
        wishes[6]["name"]: ErrorCode.invalid_config,
    } == {name: topic.error_code for name, topic in found.items()}
    assert found[name].error_message is None
    assert all(topic.error_message for other, topic in found.items() if other != name)
    (created,) = topics_of(connection, name)
    assert 2 == len(created.partitions)
    if version >= 5:
        assert (2, 1) == (found[name].num_partitions, found[name].replication_factor)
        config = {each.name: each for each in found[name].configs}
        assert ("4000", 1) == (config["retention.ms"].value, config["retention.ms"].config_source)
        assert ("1073741824", 5) == (config["segment.bytes"].value, config["segment.bytes"].config_source)
        assert (-1, -1) == (found["no topic"].num_partitions, found["no topic"].replication_factor)
    if version >= 7:
        assert created.topic_id == found[name].topic_id
        assert found["no topic"].topic_id is None


@every_version(ApiKey.CREATE_TOPICS)
def test_create_topics_that_exist_or_only_validate(connection: RawConnection, world: World, version: int) -> None:
    name = unused_name()
    wishes = [
        {"name": name, "num_partitions": 1, "replication_factor": 1},
        {"name": world.topic, "num_partitions": 1, "replication_factor": 1},
    ]
    request = {"topics": wishes, "timeout": TIMEOUT, "validate_only": True}
    answer = connection.ask(ApiKey.CREATE_TOPICS, version, request)
    found = {topic.name: topic.error_code for topic in answer.topics}
    assert {name: ErrorCode.none, world.topic: ErrorCode.topic_already_exists} == found
    assert ErrorCode.unknown_topic_or_partition is topics_of(connection, name)[0].error_code


@every_version(ApiKey.CREATE_TOPICS)
def test_create_topics_with_assignments(connection: RawConnection, world: World, version: int) -> None:
    def wish(*assignments: tuple[int, list[int]]) -> dict[str, Any]:
        parts = [{"partition_index": index, "broker_ids": brokers} for index, brokers in assignments]
        return {"name": unused_name(), "num_partitions": -1, "replication_factor": -1, "assignments": parts}

    wishes = [wish((1, [world.broker_id]), (0, [world.broker_id])), wish((0, [99])), wish((1, [world.broker_id]))]
    answer = connection.ask(ApiKey.CREATE_TOPICS, version, {"topics": wishes, "timeout": TIMEOUT})
    found = {topic.name: topic.error_code for topic in answer.topics}
    refused = ErrorCode.invalid_replica_assignment
    assert [ErrorCode.none, refused, refused] == [found[each["name"]] for each in wishes]
    assert 2 == len(topics_of(connection, wishes[0]["name"])[0].partitions)


@every_version(ApiKey.DELETE_TOPICS)
def test_delete_topics(connection: RawConnection, version: int) -> None:
    name, missing = unused_name(), unused_name()
    create_topic(connection, name)
    names = [name, missing]
    topics = [{"name": each} for each in names]
    request = {"timeout": TIMEOUT, "topic_names": names, "topics": topics}
    answer = connection.ask(ApiKey.DELETE_TOPICS, version, request)
    found = {topic.name: topic.error_code for topic in answer.responses}
    assert {name: ErrorCode.none, missing: ErrorCode.unknown_topic_or_partition} == found
    assert ErrorCode.unknown_topic_or_partition is topics_of(connection, name)[0].error_code


def test_delete_topics_by_id(connection: RawConnection) -> None:
    name, twice = unused_name(), unused_name()
    topic_id, twice_id = create_topic(connection, name), create_topic(connection, twice)
    wishes = [{"topic_id": topic_id}, {"topic_id": NO_SUCH_ID}, {"topic_id": twice_id}, {"topic_id": twice_id}, {}]
    request = {"timeout": TIMEOUT, "topics": [{"name": None, **wish} for wish in wishes]}
    answer = connection.ask_newest(ApiKey.DELETE_TOPICS, request)
    found = {topic.topic_id: (topic.name, topic.error_code) for topic in answer.responses}
    assert {
        topic_id: (name, ErrorCode.none),
        NO_SUCH_ID: (None, ErrorCode.unknown_topic_id),
        twice_id: (None, ErrorCode.invalid_request),
        None: (None, ErrorCode.invalid_request),
    } == found
    both = {"timeout": TIMEOUT, "topics": [{"name": twice, "topic_id": twice_id}]}
    (refused,) = connection.ask_newest(ApiKey.DELETE_TOPICS, both).responses
    assert ErrorCode.invalid_request is refused.error_code
    assert ErrorCode.none is topics_of(connection, twice)[0].error_code


@every_version(ApiKey.CREATE_PARTITIONS)
def test_create_partitions(connection: RawConnection, world: World, version: int) -> None:
    name = unused_name()
    create_topic(connection, name, 2)

    def ask(*wishes: tuple[str, int, list[list[int]] | None], validate_only: bool = False) -> list[Any]:
        topics = [
            {
                "name": topic,
                "count": count,
                "assignments": None if brokers is None else [{"broker_ids": each} for each in brokers],
            }
            for topic, count, brokers in wishes
        ]
        request = {"topics": topics, "timeout": TIMEOUT, "validate_only": validate_only}
        results = connection.ask(ApiKey.CREATE_PARTITIONS, version, request).results
        return [(result.name, result.error_code) for result in results]

    assert [(name, ErrorCode.none)] == ask((name, 5, None), validate_only=True)
    assert [(name, ErrorCode.none)] == ask((name, 3, None))
    assert [(name, ErrorCode.none)] == ask((name, 4, [[world.broker_id]]))
    assert [(name, ErrorCode.invalid_partitions)] == ask((name, 4, None))
    assert [(name, ErrorCode.invalid_partitions)] == ask((name, 1, None))
    assert [(name, ErrorCode.invalid_replica_assignment)] == ask((name, 6, [[world.broker_id]]))
    assert [(name, ErrorCode.invalid_replica_assignment)] == ask((name, 5, [[99]]))
    assert [(name, ErrorCode.invalid_request)] == ask((name, 5, None), (name, 6, None))
    assert [("no-such", ErrorCode.unknown_topic_or_partition)] == ask(("no-such", 6, None))
    assert 4 == len(topics_of(connection, name)[0].partitions)


@every_version(ApiKey.DESCRIBE_CONFIGS)
def test_describe_configs(connection: RawConnection, world: World, version: int) -> None:
    resources = [
        {"resource_type": 2, "resource_name": world.topic, "configuration_keys": None},
        {"resource_type": 4, "resource_name": str(world.broker_id), "configuration_keys": ["num.partitions"]},
        {"resource_type": 2, "resource_name": "no-such", "configuration_keys": None},
    ]
    request = {"resources": resources, "include_synonyms": True, "include_documentation": True}
    topic, broker, missing = connection.ask(ApiKey.DESCRIBE_CONFIGS, version, request).results
    assert ErrorCode.none is topic.error_code
    configs = {config.name: config for config in topic.configs}
    assert ("-1", 1) == (configs["retention.ms"].value, configs["retention.ms"].config_source)
    assert ("1073741824", 5) == (configs["segment.bytes"].value, configs["segment.bytes"].config_source)
    assert "retention.ms" == configs["retention.ms"].synonyms[0].name
    if version >= 3:
        assert 5 == configs["retention.ms"].config_type
        assert configs["retention.ms"].documentation
    assert ["num.partitions"] == [config.name for config in broker.configs]
    assert ErrorCode.unknown_topic_or_partition is missing.error_code


@every_version(ApiKey.ALTER_CONFIGS)
def test_alter_configs(connection: RawConnection, version: int) -> None:
    name = unused_name()
    create_topic(connection, name, 1, retention_ms="4000")
    resource = {"resource_type": 2, "resource_name": name}
    for value, error in (("5000", ErrorCode.none), ("soon", ErrorCode.invalid_config)):
        configs = [{"name": "segment.ms", "value": value}]
        request = {"resources": [{**resource, "configs": configs}]}
        (changed,) = connection.ask(ApiKey.ALTER_CONFIGS, version, request).responses
        assert (error, 2, name) == (changed.error_code, changed.resource_type, changed.resource_name)
    assert {"segment.ms": "5000"} == own_configs(connection, name)


@every_version(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def test_incremental_alter_configs(connection: RawConnection, version: int) -> None:
    name = unused_name()
    create_topic(connection, name, 1, retention_ms="4000", segment_ms="4000")
    configs = [
        {"name": "retention.ms", "config_operation": 0, "value": "5000"},
        {"name": "segment.ms", "config_operation": 1, "value": None},
        {"name": "cleanup.policy", "config_operation": 2, "value": "compact"},
    ]
    request = {"resources": [{"resource_type": 2, "resource_name": name, "configs": configs}]}
    (changed,) = connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, request).responses
    assert (ErrorCode.none, 2, name) == (changed.error_code, changed.resource_type, changed.resource_name)
    assert {"retention.ms": "5000", "cleanup.policy": "delete,compact"} == own_configs(connection, name)


def own_configs(connection: RawConnection, topic: str) -> dict[str, str]:
    """The configs that were set on a topic."""
    resources = [{"resource_type": 2, "resource_name": topic, "configuration_keys": None}]
    (found,) = connection.ask_newest(ApiKey.DESCRIBE_CONFIGS, {"resources": resources}).results
    return {config.name: config.value for config in found.configs if config.config_source == 1}
