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
from tests.hostile.group_requests import GROUP_APIS, group_values
from tests.wire.exchange import request_frame
from tests.wire.transactional_producer import transactional_batch

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
    if api_key in GROUP_APIS:
        return group_values(api_key, target.topic, target.topic_id, random)
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
    producer: dict[str, Any] = _producer(random) if random.random() < 0.5 else {"transactional_id": None}
    topics = []
    for topic in shared["topics"]:
        parts = topic["partitions"]
        if producer["transactional_id"] is not None:
            content = transactional_batch(producer["producer_id"], producer["producer_epoch"])
            parts = [{**part, "records": content} for part in parts]
        topics.append({**topic, "partition_data": parts})
    acks = random.choice((-1, 0, 1))
    return {"transactional_id": producer["transactional_id"], "acks": acks, "topic_data": topics}


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


def _producer(random: Random) -> dict[str, Any]:
    """One of a few transactional producers, mostly under an id and epoch that somebody has."""
    return {
        "transactional_id": f"hostile-{random.randrange(3)}",
        "producer_id": random.randrange(6),
        "producer_epoch": random.randrange(4),
    }


def _init_producer_id(target: Target, random: Random) -> dict[str, Any]:
    transactional_id = random.choice((None, _producer(random)["transactional_id"]))
    return {"transactional_id": transactional_id, "transaction_timeout": SPAN, "producer_id": -1, "producer_epoch": -1}


def _add_partitions(target: Target, random: Random) -> dict[str, Any]:
    topics = [{"name": target.topic, "partitions": random.sample(range(target.partitions), k=2)}]
    transaction = {**_producer(random), "topics": topics, "verify_only": random.random() < 0.3}
    old = {f"v3_and_below_{name}": value for name, value in transaction.items()}
    return {**old, "transactions": [transaction, {**transaction, **_producer(random)}]}


def _end_transaction(target: Target, random: Random) -> dict[str, Any]:
    return {**_producer(random), "committed": random.random() < 0.5, "group_id": "hostile"}


def _transaction_offsets(target: Target, random: Random) -> dict[str, Any]:
    parts = [{"partition_index": index, "committed_offset": 4, "committed_metadata": "m"} for index in (0, 9)]
    return {**_producer(random), "group_id": "hostile", "topics": [{"name": target.topic, "partitions": parts}]}


def _markers(target: Target, random: Random) -> dict[str, Any]:
    topics = [{"name": target.topic, "partition_indexes": [0, 1]}]
    marker = {"topics": topics, "coordinator_epoch": 0, "transaction_version": random.randrange(3)}
    return {"markers": [{**_producer(random), **marker, "transaction_result": random.random() < 0.5}]}


def _find_coordinator(target: Target, random: Random) -> dict[str, Any]:
    keys = [f"hostile-{number}" for number in range(3)]
    return {"key": keys[0], "key_type": random.randrange(2), "coordinator_keys": keys}


def _create_acls(target: Target, random: Random) -> dict[str, Any]:
    made = {
        "resource_type": random.randrange(2, 8),
        "resource_name": random.choice((target.topic, "kafka-cluster", "*")),
        "resource_pattern_type": random.choice((3, 4)),
        "principal": "User:nobody",
        "host": random.choice(("*", "10.1.2.3", "10.0.0.0/8")),
        "operation": random.randrange(2, 16),
        "permission_type": random.choice((2, 3)),
    }
    return {"creations": [made]}


def _acl_filters(target: Target, random: Random) -> dict[str, Any]:
    wanted = {
        "resource_type_filter": random.randrange(1, 8),
        "resource_name_filter": random.choice((None, target.topic)),
        "pattern_type_filter": random.randrange(1, 5),
        "principal_filter": random.choice((None, "User:nobody")),
        "host_filter": None,
        "operation": random.randrange(1, 16),
        "permission_type": random.randrange(1, 4),
    }
    return {**wanted, "filters": [wanted]}


def _quotas(target: Target, random: Random) -> dict[str, Any]:
    entity = [{"entity_type": random.choice(("user", "client-id")), "entity_name": random.choice((None, "nobody"))}]
    quota = random.choice(("producer_byte_rate", "request_percentage", "controller_mutation_rate"))
    change = {"key": quota, "value": float(2**40), "remove": random.random() < 0.5}
    match_type = random.randrange(3)
    components = [{"entity_type": "user", "match_type": match_type, "match": None if match_type else "nobody"}]
    return {"entries": [{"entity": entity, "ops": [change]}], "components": components, "validate_only": True}


def _scram(target: Target, random: Random) -> dict[str, Any]:
    user = {"name": "nobody", "mechanism": random.choice((1, 2))}
    if random.random() < 0.3:
        return {"users": [user], "deletions": [user]}
    password = {"iterations": 4096, "salt": random.randbytes(20), "salted_password": random.randbytes(32)}
    return {"users": [user], "upsertions": [{**user, **password}]}


def _tokens(target: Target, random: Random) -> dict[str, Any]:
    user = {"principal_type": "User", "principal_name": "nobody"}
    return {
        "owner_principal_type": "User",
        "owner_principal_name": random.choice((None, "nobody")),
        "renewers": [user],
        "owners": random.choice((None, [user])),
        "max_lifetime": SPAN,
        "hmac": random.randbytes(64),
        "renew_period": SPAN,
        "expiry_time_period": SPAN,
    }


SECURITY_FIELDS: Final[dict[ApiKey, Callable[[Target, Random], dict[str, Any]]]] = {
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DESCRIBE_ACLS: _acl_filters,
    ApiKey.DELETE_ACLS: _acl_filters,
    ApiKey.ALTER_CLIENT_QUOTAS: _quotas,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _scram,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _scram,
    ApiKey.CREATE_DELEGATION_TOKEN: _tokens,
    ApiKey.RENEW_DELEGATION_TOKEN: _tokens,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _tokens,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _tokens,
}

_FIELDS: Final[dict[ApiKey, Callable[[Target, Random], dict[str, Any]]]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.METADATA: _metadata,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: _end_transaction,
    ApiKey.END_TXN: _end_transaction,
    ApiKey.WRITE_TXN_MARKERS: _markers,
    ApiKey.TXN_OFFSET_COMMIT: _transaction_offsets,
    ApiKey.DESCRIBE_TRANSACTIONS: lambda target, random: {"transactional_ids": ["hostile-0", "hostile-1"]},
    ApiKey.LIST_TRANSACTIONS: lambda target, random: {"state_filters": ["Ongoing"], "duration_filter": -1},
    ApiKey.DESCRIBE_CONFIGS: _configs,
    ApiKey.ALTER_CONFIGS: _configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs,
    ApiKey.DESCRIBE_LOG_DIRS: _by_index,
    ApiKey.ELECT_LEADERS: _by_index,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassignments,
    ApiKey.DESCRIBE_PRODUCERS: lambda target, random: {"topics": [{"name": target.topic, "partition_indexes": [0, 1]}]},
    **SECURITY_FIELDS,
}
"""Where an API's fields are its own."""
