"""A valid request of every API in every version that is served, about topics that exist: what mutations start from.

Fields are given under every name that any version has for them; `tests.wire.exchange` takes those that a version knows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any, Final
from uuid import UUID

from ottla.protocol.apis import SERVED, ApiKey
from tests.hostile.batches import small_batch
from tests.wire.exchange import request_frame

SPAN: Final = timedelta(milliseconds=200)
NO_WAIT: Final = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the requests are about."""

    topic: str
    topic_id: UUID
    partitions: int = 3
    broker_id: int = 0


def every_version() -> Iterator[tuple[ApiKey, int]]:
    """Each API with each version."""
    for api_key, versions in SERVED.items():
        for version in range(versions.lowest, versions.highest + 1):
            yield api_key, version


def valid_frame(api_key: ApiKey, version: int, target: Target, random: Random) -> bytes:
    """A whole request that the broker understands, though it may refuse what it asks for."""
    return request_frame(api_key, version, _values(api_key, target, random), correlation_id=random.getrandbits(31))


def _values(api_key: ApiKey, target: Target, random: Random) -> dict[str, Any]:
    values = _FIELDS.get(api_key)
    return {"timeout": SPAN, **(_shared(target, random) if values is None else values(target, random))}


def _shared(target: Target, random: Random) -> dict[str, Any]:
    """Topics with their partitions as the APIs have them that only ask."""
    indexes = random.sample(range(target.partitions + 1), k=random.randint(1, target.partitions))
    parts = [
        {
            "partition": index,
            "partition_index": index,
            "index": index,
            "timestamp": random.choice((-1, -2, -3, 0, 2**40)),
            "offset": 0,
            "fetch_offset": 0,
            "partition_max_bytes": 1000,
            "leader_epoch": 0,
            "current_leader_epoch": random.choice((-1, 0)),
            "records": small_batch(random),
        }
        for index in indexes
    ]
    named = {"name": target.topic, "topic": target.topic, "topic_name": target.topic, "topic_id": target.topic_id}
    return {
        "replica_id": -1,
        "topics": [{**named, "partitions": parts, "partition_indexes": indexes}],
        "max_wait": NO_WAIT,
        "max_bytes": 10_000,
        "session_epoch": -1,
        "client_software_name": "hostile",
        "client_software_version": "1.0",
        "response_partition_limit": 10,
        "resource_types": [2, 4],
    }


def _produce(target: Target, random: Random) -> dict[str, Any]:
    shared = _shared(target, random)
    topics = [{**topic, "partition_data": topic["partitions"]} for topic in shared["topics"]]
    return {"acks": random.choice((-1, 0, 1)), "topic_data": topics}


def _metadata(target: Target, random: Random) -> dict[str, Any]:
    return {"topics": [{"name": target.topic, "topic_id": None}], "allow_auto_topic_creation": False}


def _create_topics(target: Target, random: Random) -> dict[str, Any]:
    configs = [{"name": "retention.ms", "value": "60000"}]
    wish = {"name": f"made-{random.getrandbits(20)}", "num_partitions": 1, "replication_factor": 1, "configs": configs}
    return {"topics": [wish], "validate_only": True}


def _delete_topics(target: Target, random: Random) -> dict[str, Any]:
    name = f"unmade-{random.getrandbits(20)}"
    return {"topic_names": [name], "topics": [{"name": name, "topic_id": None}]}


def _by_index(target: Target, random: Random) -> dict[str, Any]:
    wanted = [{"topic": target.topic, "partitions": [0, 1]}]
    return {"topics": wanted, "topic_partitions": wanted}


def _configs(target: Target, random: Random) -> dict[str, Any]:
    configs = [{"name": "segment.ms", "value": "600000", "config_operation": 0}]
    resource = {"resource_type": 2, "resource_name": target.topic, "configuration_keys": None, "configs": configs}
    return {"resources": [resource], "validate_only": True}


def _create_partitions(target: Target, random: Random) -> dict[str, Any]:
    return {"topics": [{"name": target.topic, "count": 5, "assignments": None}], "validate_only": True}


def _reassignments(target: Target, random: Random) -> dict[str, Any]:
    part = {"partition_index": 0, "replicas": [target.broker_id]}
    return {"topics": [{"name": target.topic, "partitions": [part]}]}


_FIELDS: Final[dict[ApiKey, Callable[[Target, Random], dict[str, Any]]]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.METADATA: _metadata,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.INIT_PRODUCER_ID: lambda target, random: {"transaction_timeout": SPAN, "producer_id": -1},
    ApiKey.DESCRIBE_CONFIGS: _configs,
    ApiKey.ALTER_CONFIGS: _configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs,
    ApiKey.DESCRIBE_LOG_DIRS: _by_index,
    ApiKey.ELECT_LEADERS: _by_index,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassignments,
    ApiKey.DESCRIBE_PRODUCERS: lambda target, random: {"topics": [{"name": target.topic, "partition_indexes": [0, 1]}]},
}
"""Where an API's fields are its own."""
