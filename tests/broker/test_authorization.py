"""Every API against an authorizer that denies some operations: which error codes come back, and what is left out.

A real broker, real requests over a socket. Denials are written as `OPERATION TYPE name`, `*` for any name.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import HANDLERS
from ottla.metadata.image import ClusterImage
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import QUEUE_PRODUCER_BIT
from ottla.protocol.apis import SERVED, ApiKey
from ottla.security.connection_context import ConnectionContext
from ottla.security.resources import Operation, ResourceType
from tests.broker.inside import showing
from tests.broker.running_broker import serving_in_thread
from tests.documented import ROOT
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection, read_response, request_frame
from tests.wire.groups import wait_coordinator
from tests.wire.transactional_producer import find_coordinator, transactional_batch
from tests.wire.world import batch, create_topic, produce

TIMEOUT: Final = timedelta(seconds=20)
NO_SUCH_ID: Final = UUID(int=77)
T, G, C, X = 29, 30, 31, 53
"""The codes of a denied topic, group, cluster, transactional id."""
NOT_ALLOWED: Final = 64
"""The code of requests about delegation tokens on a connection without authentication."""


MISSING_INTERNAL_TOPICS: Final = 3
STREAMS_TOPOLOGY: Final[dict[str, Any]] = {
    "subtopologies": [
        {
            "subtopology_id": "0",
            "source_topics": ["open"],
            "state_changelog_topics": [{"name": "app-counts-changelog"}],
        }
    ]
}
STREAMS_JOIN: Final[dict[str, Any]] = {
    "group_id": "app",
    "member_id": "m",
    "rebalance_timeout": TIMEOUT,
    "topology": STREAMS_TOPOLOGY,
    "active_tasks": [],
    "standby_tasks": [],
    "warmup_tasks": [],
    "task_offsets": None,
    "task_end_offsets": None,
}


class Rules:
    """An authorizer that allows what is not listed in `denials`."""

    allows_all = False

    def __init__(self) -> None:
        self.version = 0
        self.denials: frozenset[tuple[str, str, str]] = frozenset()
        self.asked: list[tuple[str, str, str]] = []

    def deny(self, *lines: str) -> None:
        """Denies these operations from now on, and allows all others."""
        self.denials = frozenset((operation, kind, name) for operation, kind, name in map(str.split, lines))
        self.version += 1
        self.asked.clear()

    def allows(self, client: ConnectionContext, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        assert ("User:ANONYMOUS", "PLAINTEXT") == (str(client.principal), client.listener)
        self.asked.append((operation.name, resource_type.name, name))
        return not {(operation.name, resource_type.name, each) for each in (name, "*")} & self.denials

    def allows_any(self, client: ConnectionContext, operation: Operation, resource_type: ResourceType) -> bool:
        return (operation.name, resource_type.name, "*") not in self.denials


@dataclass(frozen=True, slots=True)
class Served:
    """A running broker with topics `open` and `shut` (records in both), group `g`, transactional id `x`."""

    rules: Rules
    connection: RawConnection
    ids: dict[str, UUID]
    broker: Broker

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.broker.port}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The test asks over a blocking socket."""
    rules = Rules()
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with (
        serving_in_thread(tmp_path_factory.mktemp("broker"), settings, authorizer=rules) as broker,
        RawConnection(f"127.0.0.1:{broker.port}") as connection,
    ):
        ids = {name: create_topic(connection, name) for name in ("open", "shut")}
        for topic_id in ids.values():
            produce(connection, topic_id, batch())
        wait_coordinator(connection, "g")
        find_coordinator(connection, "x", 1)
        ids["absent"] = NO_SUCH_ID
        served = Served(rules, connection, ids, broker)
        # Every case finds group g with an offset of `open`, whichever cases ran before it.
        rules.deny("READ TOPIC shut", "READ TOPIC absent")
        connection.ask(ApiKey.OFFSET_COMMIT, 9, COMMITTED(served))
        rules.deny()
        yield served


def codes(answer: Any) -> list[int]:
    """Every error code in an answer, in the order of the wire."""
    if isinstance(answer, KioErrorCode):
        return [answer.value]
    if isinstance(answer, tuple):
        return [code for each in answer for code in codes(each)]
    if is_dataclass(answer):
        return [code for field in fields(answer) for code in codes(getattr(answer, field.name))]
    return []


class Case(NamedTuple):
    """One request under denials, and what `shows` of the answer."""

    api_key: ApiKey
    values: Callable[[Served], dict[str, Any]] | dict[str, Any]
    denials: str
    expected: object
    shows: Callable[[Any], object] = codes
    version: int | None = None


def topics(*names: str, **partition: Any) -> Callable[[Served], dict[str, Any]]:
    """One partition of each topic, under the names that requests have for it."""

    def values(served: Served) -> dict[str, Any]:
        listed = [
            {
                "name": name,
                "topic": name,
                "topic_id": served.ids[name],
                "partitions": [partition],
                "partition_indexes": [0],
                "partition_data": [partition],
            }
            for name in names
        ]
        return {"topics": listed, "topic_data": listed}

    return values


def joined(*parts: Callable[[Served], dict[str, Any]], **more: Any) -> Callable[[Served], dict[str, Any]]:
    return lambda served: {key: value for part in parts for key, value in part(served).items()} | more


RECORDS = {"index": 0, "records": batch()}
PRODUCED = joined(topics("shut", "open", "absent", **RECORDS), acks=1, timeout=TIMEOUT)
DELIVERED = joined(topics("open", index=0, records=batch(QUEUE_PRODUCER_BIT | 7)), acks=-1, timeout=TIMEOUT)
DELIVERED_AGAIN = joined(topics("open", index=0, records=batch(QUEUE_PRODUCER_BIT | 9)), acks=-1, timeout=TIMEOUT)
FETCHED = joined(
    topics("shut", "open", "absent", partition=0, fetch_offset=0, partition_max_bytes=1000),
    max_bytes=1000,
    session_epoch=-1,
)
OFFSETS = topics("shut", "open", "absent", partition_index=0, timestamp=-1, partition=0, leader_epoch=0)
COMMITTED = joined(
    topics("shut", "open", "absent", partition_index=0, committed_offset=0, committed_metadata="m"),
    group_id="g",
    generation_id_or_member_epoch=-1,
)
IN_TRANSACTION = joined(
    topics("shut", "open", partition_index=0, committed_offset=0, committed_metadata="m"),
    transactional_id="x",
    producer_id=0,
    producer_epoch=0,
    group_id="g",
    generation_id=-1,
)
GROUP_OFFSETS = joined(
    lambda served: {
        "groups": [
            {
                "group_id": "g",
                "member_epoch": -1,
                "topics": [{"name": name, "partition_indexes": [0]} for name in ("shut", "open")],
            }
        ]
    }
)
NAMES = {"topics": [{"name": "shut"}, {"name": "open"}, {"name": "absent"}], "allow_auto_topic_creation": False}
CREATED = {
    "topics": [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("new", "other")],
    "timeout": TIMEOUT,
    "validate_only": True,
}
ADDED = {
    "v3_and_below_transactional_id": "x",
    "v3_and_below_producer_id": 0,
    "v3_and_below_producer_epoch": 0,
    "v3_and_below_topics": [{"name": "shut", "partitions": [0]}, {"name": "open", "partitions": [0]}],
}
MARKERS = {
    "markers": [
        {
            "producer_id": 1,
            "producer_epoch": 0,
            "coordinator_epoch": 0,
            "topics": [{"name": "open", "partition_indexes": [0]}],
        }
    ]
}
RESOURCES = {
    "resources": [
        {"resource_type": 2, "resource_name": "shut", "configuration_keys": None},
        {"resource_type": 2, "resource_name": "absent", "configuration_keys": None},
        {"resource_type": 4, "resource_name": "0", "configuration_keys": None},
        {"resource_type": 32, "resource_name": "g", "configuration_keys": None},
        {"resource_type": 2, "resource_name": "open", "configuration_keys": None},
    ]
}


SHARE_MEMBER = {"group_id": "s", "member_id": "m", "member_epoch": 0}
SHARE_FETCHED = joined(
    topics("shut", "open", "absent", partition_index=0, acknowledgement_batches=[]),
    group_id="s",
    member_id="m",
    share_session_epoch=0,
    max_bytes=1000,
    max_records=10,
    forgotten_topics_data=[],
)
STATES = joined(topics("open", partition=0, state_batches=[]), group_id="s")
SHARE_ALTERED = {
    "group_id": "s",
    "topics": [{"topic_name": "shut", "partitions": [{"partition_index": 0, "start_offset": 1}]}],
}
ACL = {
    "resource_type": 2,
    "resource_name": "open",
    "principal": "User:u",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
ACL_FILTER = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}


def listed_names(answer: Any) -> list[str]:
    return sorted(each.name for each in answer.topics if not each.name.startswith("__"))


def by_name(answer: Any) -> dict[str, tuple[int, UUID | None]]:
    return {each.name: (each.error_code.value, getattr(each, "topic_id", None)) for each in answer.topics}


def group_codes(answer: Any) -> tuple[int, list[int]]:
    (group,) = answer.groups
    return group.error_code.value, [part.error_code.value for topic in group.topics for part in topic.partitions]


def without_members(answer: Any) -> list[tuple[int, int]]:
    return [(group.error_code.value, len(group.members)) for group in answer.groups]


CASES: Final = [
    Case(ApiKey.PRODUCE, PRODUCED, "WRITE TOPIC shut; WRITE TOPIC absent", [T, 0, T], version=9),
    Case(ApiKey.PRODUCE, PRODUCED, "WRITE TOPIC shut", [T, 0, 3], version=9),
    Case(ApiKey.PRODUCE, PRODUCED, "WRITE TOPIC shut; WRITE TOPIC absent", [T, 0, 100], version=13),
    Case(
        ApiKey.PRODUCE,
        joined(
            topics("open", "shut", index=0, records=transactional_batch(7, 0)),
            acks=-1,
            timeout=TIMEOUT,
            transactional_id="x",
        ),
        "WRITE TRANSACTIONAL_ID x; WRITE TOPIC shut",
        [X, X],
        version=9,
    ),
    Case(ApiKey.PRODUCE, DELIVERED, "CLUSTER_ACTION CLUSTER kafka-cluster", [49], version=9),
    Case(ApiKey.PRODUCE, DELIVERED, "CLUSTER_ACTION CLUSTER other", [0], version=9),
    Case(ApiKey.PRODUCE, DELIVERED_AGAIN, "WRITE TOPIC open", [0], version=9),
    Case(ApiKey.PRODUCE, DELIVERED, "WRITE TOPIC open; CLUSTER_ACTION CLUSTER *", [T], version=9),
    Case(
        ApiKey.PRODUCE,
        joined(
            topics("open", index=0, records=transactional_batch(QUEUE_PRODUCER_BIT | 8, 0, transactional=False)),
            acks=-1,
            timeout=TIMEOUT,
            transactional_id="x",
        ),
        "WRITE TOPIC shut",
        [49],
        version=9,
    ),
    Case(ApiKey.FETCH, FETCHED, "READ TOPIC shut; READ TOPIC absent", [0, T, 0, T], version=12),
    Case(ApiKey.FETCH, FETCHED, "READ TOPIC shut; READ TOPIC absent", [0, T, 0, 100], version=13),
    Case(ApiKey.FETCH, joined(FETCHED, replica_id=7), "CLUSTER_ACTION CLUSTER kafka-cluster", [0, T, T, T], version=12),
    Case(ApiKey.FETCH, joined(FETCHED, replica_id=7), "READ TOPIC *", [0, 0, 0, 3], version=12),
    Case(ApiKey.LIST_OFFSETS, OFFSETS, "DESCRIBE TOPIC shut; DESCRIBE TOPIC absent", [T, 0, T]),
    Case(ApiKey.OFFSET_FOR_LEADER_EPOCH, OFFSETS, "DESCRIBE TOPIC shut; DESCRIBE TOPIC absent", [0, 0, 3]),
    Case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        OFFSETS,
        "DESCRIBE TOPIC shut; DESCRIBE TOPIC absent; CLUSTER_ACTION CLUSTER kafka-cluster",
        [T, 0, T],
    ),
    Case(ApiKey.METADATA, {"topics": None}, "DESCRIBE TOPIC shut", ["open"], listed_names),
    Case(
        ApiKey.METADATA,
        NAMES,
        "DESCRIBE TOPIC shut; DESCRIBE TOPIC absent",
        {"shut": (T, None), "open": (0, "its id"), "absent": (T, None)},
        by_name,
    ),
    Case(
        ApiKey.METADATA,
        NAMES,
        "DESCRIBE TOPIC shut",
        {"shut": (T, None), "open": (0, "its id"), "absent": (3, None)},
        by_name,
    ),
    Case(
        ApiKey.METADATA,
        lambda served: {"topics": [{"name": None, "topic_id": served.ids[name]} for name in ("shut", "absent")]},
        "DESCRIBE TOPIC shut",
        {(T, None), (100, None)},
        lambda answer: {(each.error_code.value, each.name) for each in answer.topics},
    ),
    Case(
        ApiKey.METADATA,
        {"topics": [{"name": "made"}], "allow_auto_topic_creation": True},
        "CREATE CLUSTER kafka-cluster; CREATE TOPIC made",
        [T],
        lambda answer: codes(answer.topics),
    ),
    Case(
        ApiKey.METADATA,
        {"topics": [{"name": "open"}], "include_topic_authorized_operations": True},
        "WRITE TOPIC open; ALTER TOPIC open",
        [3576 - (1 << 4) - (1 << 7)],
        lambda answer: [each.topic_authorized_operations for each in answer.topics],
    ),
    Case(
        ApiKey.METADATA,
        {"topics": None, "include_cluster_authorized_operations": True},
        "DESCRIBE CLUSTER kafka-cluster",
        0,
        lambda answer: answer.cluster_authorized_operations,
        version=10,
    ),
    Case(
        ApiKey.METADATA,
        {"topics": None, "include_cluster_authorized_operations": True},
        "ALTER CLUSTER kafka-cluster",
        8096 - (1 << 7),
        lambda answer: answer.cluster_authorized_operations,
        version=10,
    ),
    Case(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        {"topics": [{"name": name} for name in ("absent", "open", "shut")], "response_partition_limit": 100},
        "DESCRIBE TOPIC shut; DESCRIBE TOPIC absent; ALTER TOPIC open",
        {"absent": (T, None, 0), "shut": (T, None, 0), "open": (0, "its id", 3576 - (1 << 7))},
        lambda answer: {
            each.name: (
                each.error_code.value,
                each.topic_id,
                each.topic_authorized_operations * (not each.error_code.value),
            )
            for each in answer.topics
        },
    ),
    Case(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        {"topics": [], "response_partition_limit": 1000},
        "DESCRIBE TOPIC shut",
        ["open"],
        listed_names,
    ),
    Case(ApiKey.OFFSET_COMMIT, COMMITTED, "READ GROUP g", [G, G, G], version=9),
    Case(ApiKey.OFFSET_COMMIT, COMMITTED, "READ TOPIC shut; READ TOPIC absent", [T, 0, T], version=9),
    Case(ApiKey.OFFSET_COMMIT, COMMITTED, "READ TOPIC shut; READ TOPIC absent", [T, 0, 100], version=10),
    Case(ApiKey.TXN_OFFSET_COMMIT, IN_TRANSACTION, "WRITE TRANSACTIONAL_ID x; READ GROUP g", [X, X]),
    Case(ApiKey.TXN_OFFSET_COMMIT, IN_TRANSACTION, "READ GROUP g; READ TOPIC shut", [G, G]),
    Case(
        ApiKey.TXN_OFFSET_COMMIT,
        IN_TRANSACTION,
        "READ TOPIC shut",
        [T, True],
        lambda answer: [codes(answer)[0], codes(answer)[1] != T],
    ),
    Case(ApiKey.OFFSET_FETCH, GROUP_OFFSETS, "DESCRIBE GROUP g", (G, []), group_codes, version=9),
    Case(ApiKey.OFFSET_FETCH, GROUP_OFFSETS, "DESCRIBE TOPIC shut", (0, [T, 0]), group_codes, version=9),
    Case(
        ApiKey.OFFSET_FETCH,
        {"groups": [{"group_id": "g", "member_epoch": -1, "topics": None}]},
        "DESCRIBE TOPIC open",
        [],
        lambda answer: [topic.name for topic in answer.groups[0].topics],
        version=9,
    ),
    Case(
        ApiKey.OFFSET_FETCH,
        lambda served: {
            "groups": [
                {
                    "group_id": "g",
                    "member_epoch": -1,
                    "topics": [
                        {"topic_id": served.ids[name], "partition_indexes": [0]} for name in ("shut", "open", "absent")
                    ],
                }
            ]
        },
        "DESCRIBE TOPIC shut",
        (0, [T, 0, 100]),
        group_codes,
        version=10,
    ),
    Case(ApiKey.OFFSET_DELETE, COMMITTED, "DELETE GROUP g", [G]),
    Case(ApiKey.OFFSET_DELETE, COMMITTED, "READ TOPIC shut; READ TOPIC absent", [0, T, 0, T]),
    Case(ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["g", "h"], "key_type": 0}, "DESCRIBE GROUP g", [G, 0]),
    Case(
        ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["x", "y"], "key_type": 1}, "DESCRIBE TRANSACTIONAL_ID x", [X, 0]
    ),
    Case(ApiKey.FIND_COORDINATOR, {"key": "g", "key_type": 0}, "DESCRIBE GROUP g", [G], version=3),
    Case(
        ApiKey.FIND_COORDINATOR,
        {"coordinator_keys": ["g:t:0"], "key_type": 2},
        "CLUSTER_ACTION CLUSTER *",
        [C],
        version=6,
    ),
    Case(
        ApiKey.FIND_COORDINATOR,
        {"coordinator_keys": ["g:t:0"], "key_type": 2},
        "CLUSTER_ACTION CLUSTER *",
        [42],
        version=5,
    ),
    Case(
        ApiKey.JOIN_GROUP,
        {"group_id": "g", "session_timeout": TIMEOUT, "rebalance_timeout": TIMEOUT},
        "READ GROUP g",
        [G],
    ),
    Case(
        ApiKey.SYNC_GROUP,
        {"group_id": "g", "protocol_type": "consumer", "protocol_name": "range"},
        "READ GROUP g",
        [G],
    ),
    Case(ApiKey.HEARTBEAT, {"group_id": "g"}, "READ GROUP g", [G]),
    Case(ApiKey.LEAVE_GROUP, {"group_id": "g", "members": [{"member_id": "m"}]}, "READ GROUP g", [G]),
    Case(
        ApiKey.LIST_GROUPS,
        {},
        "DESCRIBE CLUSTER kafka-cluster; DESCRIBE GROUP g",
        ([0], False),
        lambda answer: (codes(answer), "g" in {each.group_id for each in answer.groups}),
    ),
    Case(
        ApiKey.LIST_GROUPS,
        {},
        "DESCRIBE GROUP g",
        ([0], True),
        lambda answer: (codes(answer), "g" in {each.group_id for each in answer.groups}),
    ),
    Case(ApiKey.DESCRIBE_GROUPS, {"groups": ["g", "h"]}, "DESCRIBE GROUP g", [G, 69]),
    Case(
        ApiKey.DESCRIBE_GROUPS,
        {"groups": ["g"], "include_authorized_operations": True},
        "DELETE GROUP g",
        [sum(1 << bit for bit in (3, 8, 10, 11))],
        lambda answer: [each.authorized_operations for each in answer.groups],
    ),
    Case(ApiKey.DELETE_GROUPS, {"groups_names": ["g", "h"]}, "DELETE GROUP g", [G, 69]),
    Case(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        {"group_id": "c", "member_id": "m", "subscribed_topic_names": ["open"], "rebalance_timeout": TIMEOUT},
        "READ GROUP c",
        [G],
    ),
    Case(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        {"group_id": "c", "member_id": "m", "subscribed_topic_names": ["open", "shut"], "rebalance_timeout": TIMEOUT},
        "DESCRIBE TOPIC shut",
        [T],
    ),
    Case(ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": ["g", "h"]}, "DESCRIBE GROUP g", [G, 69]),
    Case(ApiKey.SHARE_GROUP_HEARTBEAT, SHARE_MEMBER | {"subscribed_topic_names": ["open"]}, "READ GROUP s", [G]),
    Case(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        SHARE_MEMBER | {"subscribed_topic_names": ["open", "shut"]},
        "DESCRIBE TOPIC shut",
        [T],
    ),
    Case(ApiKey.SHARE_GROUP_DESCRIBE, {"group_ids": ["g", "h"]}, "DESCRIBE GROUP g", [G, 69]),
    Case(ApiKey.SHARE_FETCH, SHARE_FETCHED, "READ GROUP s", [G]),
    Case(ApiKey.SHARE_FETCH, SHARE_FETCHED, "READ TOPIC shut; READ TOPIC open", [0, T, T, 100]),
    Case(ApiKey.SHARE_ACKNOWLEDGE, SHARE_MEMBER | {"share_session_epoch": 1, "topics": []}, "READ GROUP s", [G]),
    *(
        Case(api_key, STATES, denials, expected)
        for api_key in (
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        )
        # Without the permission it is denied; with it, the topic that has the state was not created yet.
        for denials, expected in (("CLUSTER_ACTION CLUSTER kafka-cluster", [C]), ("CLUSTER_ACTION CLUSTER x", [15]))
    ),
    Case(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        {"groups": [{"group_id": each, "topics": None} for each in ("g", "h")]},
        "DESCRIBE GROUP g",
        [G, 0],
    ),
    Case(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        {"groups": [{"group_id": "h", "topics": [{"topic_name": "shut", "partitions": [0]}]}]},
        "DESCRIBE TOPIC shut",
        [T, 0],
    ),
    Case(ApiKey.ALTER_SHARE_GROUP_OFFSETS, SHARE_ALTERED, "READ GROUP s", [G]),
    Case(ApiKey.ALTER_SHARE_GROUP_OFFSETS, SHARE_ALTERED, "READ TOPIC shut", [0, T]),
    Case(ApiKey.DELETE_SHARE_GROUP_OFFSETS, {"group_id": "s", "topics": []}, "DELETE GROUP s", [G]),
    Case(ApiKey.STREAMS_GROUP_HEARTBEAT, {"group_id": "app", "member_id": "m"}, "READ GROUP app", [G]),
    Case(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        {"group_id": "app", "member_id": "m", "topology": STREAMS_TOPOLOGY},
        "DESCRIBE TOPIC app-counts-changelog",
        [T],
    ),
    Case(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        STREAMS_JOIN,
        "CREATE CLUSTER kafka-cluster; CREATE TOPIC app-counts-changelog",
        ["Internal topics are missing: app-counts-changelog; Unauthorized to CREATE on topics app-counts-changelog."],
        lambda answer: [each.status_detail for each in answer.status if each.status_code == MISSING_INTERNAL_TOPICS],
    ),
    Case(ApiKey.STREAMS_GROUP_DESCRIBE, {"group_ids": ["g", "h"]}, "DESCRIBE GROUP g", [G, 69]),
    Case(
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
        {"group_id": "app", "member_id": "m"},
        "READ GROUP app",
        G,
        lambda answer: answer.error_code,
    ),
    Case(
        ApiKey.CREATE_TOPICS,
        CREATED,
        "CREATE CLUSTER kafka-cluster; CREATE TOPIC new",
        {"new": T, "other": 0},
        lambda answer: {each.name: each.error_code.value for each in answer.topics},
    ),
    Case(ApiKey.CREATE_TOPICS, CREATED, "CREATE TOPIC *", [0, 0]),
    Case(
        ApiKey.CREATE_TOPICS,
        CREATED,
        "DESCRIBE_CONFIGS TOPIC new",
        [("new", 0, T, -1, False), ("other", 0, 0, 1, True)],
        lambda answer: [
            (
                each.name,
                each.error_code.value,
                each.topic_config_error_code,
                each.num_partitions,
                len(each.configs) > 0,
            )
            for each in answer.topics
        ],
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        {"topics": [{"name": name} for name in ("shut", "absent")], "timeout": TIMEOUT},
        "DELETE CLUSTER kafka-cluster; DESCRIBE TOPIC *",
        [T, T],
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        {"topics": [{"name": "absent"}], "timeout": TIMEOUT},
        "DESCRIBE TOPIC *; DELETE TOPIC *",
        [3],
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        {"topics": [{"name": name} for name in ("shut", "absent")], "timeout": TIMEOUT},
        "DELETE CLUSTER kafka-cluster; DELETE TOPIC *",
        {"shut": T, "absent": 3},
        lambda answer: {each.name: each.error_code.value for each in answer.responses},
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        lambda served: {
            "topics": [{"name": None, "topic_id": served.ids[name]} for name in ("shut", "open", "absent")],
            "timeout": TIMEOUT,
        },
        "DELETE CLUSTER kafka-cluster; DELETE TOPIC *; DESCRIBE TOPIC shut",
        {(T, None), (T, "open"), (100, None)},
        lambda answer: {(each.error_code.value, each.name) for each in answer.responses},
    ),
    Case(
        ApiKey.CREATE_PARTITIONS,
        {
            "topics": [{"name": name, "count": 2, "assignments": None} for name in ("shut", "open", "absent")],
            "timeout": TIMEOUT,
            "validate_only": True,
        },
        "ALTER TOPIC shut; ALTER TOPIC absent",
        {"shut": T, "open": 0, "absent": T},
        lambda answer: {each.name: each.error_code.value for each in answer.results},
    ),
    Case(
        ApiKey.DELETE_RECORDS,
        joined(topics("shut", "open", "absent", partition_index=0, offset=0), timeout=TIMEOUT),
        "DELETE TOPIC shut; DELETE TOPIC absent",
        [T, 0, T],
    ),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        RESOURCES,
        "DESCRIBE_CONFIGS TOPIC shut; DESCRIBE_CONFIGS TOPIC absent; DESCRIBE_CONFIGS CLUSTER *;"
        " DESCRIBE_CONFIGS GROUP g",
        [T, T, C, G, 0],
    ),
    Case(
        ApiKey.ALTER_CONFIGS,
        RESOURCES | {"validate_only": True},
        "ALTER_CONFIGS TOPIC shut; ALTER_CONFIGS TOPIC absent; ALTER_CONFIGS CLUSTER *; ALTER_CONFIGS GROUP g",
        [T, T, C, G, 0],
    ),
    Case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        RESOURCES | {"validate_only": True},
        "ALTER_CONFIGS TOPIC shut; ALTER_CONFIGS TOPIC absent; ALTER_CONFIGS CLUSTER *; ALTER_CONFIGS GROUP g",
        [T, T, C, G, 0],
    ),
    Case(
        ApiKey.LIST_CONFIG_RESOURCES,
        {"resource_types": []},
        "DESCRIBE_CONFIGS CLUSTER kafka-cluster",
        ([C], 0),
        lambda answer: (codes(answer), len(answer.config_resources)),
    ),
    Case(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        {"topics": [{"name": "open", "partitions": [{"partition_index": 0, "replicas": None}]}], "timeout": TIMEOUT},
        "ALTER CLUSTER kafka-cluster",
        [C, C],
    ),
    Case(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None, "timeout": TIMEOUT}, "DESCRIBE CLUSTER kafka-cluster", [C]
    ),
    Case(
        ApiKey.ELECT_LEADERS,
        {"topic_partitions": [{"topic": "open", "partitions": [0]}], "timeout": TIMEOUT},
        "ALTER CLUSTER kafka-cluster",
        [C, C],
    ),
    Case(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        {"dirs": [{"path": "/elsewhere", "topics": [{"name": "open", "partitions": [0]}]}]},
        "ALTER CLUSTER kafka-cluster",
        [C],
    ),
    Case(ApiKey.UNREGISTER_BROKER, {"broker_id": 99}, "ALTER CLUSTER kafka-cluster", [C]),
    Case(ApiKey.ADD_RAFT_VOTER, {"voter_id": 99}, "ALTER CLUSTER kafka-cluster", [C]),
    Case(ApiKey.REMOVE_RAFT_VOTER, {"voter_id": 99}, "ALTER CLUSTER kafka-cluster", [C]),
    Case(
        ApiKey.UNREGISTER_CONTROLLER,
        {"controller_id": 99},
        "ALTER CLUSTER kafka-cluster",
        C,
        lambda answer: answer.error_code,
    ),
    Case(
        ApiKey.DESCRIBE_QUORUM,
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
        "DESCRIBE CLUSTER kafka-cluster",
        [C],
    ),
    Case(
        ApiKey.UPDATE_FEATURES,
        {"feature_updates": [{"feature": "group.version", "max_version_level": 1}]},
        "ALTER CLUSTER kafka-cluster",
        [C],
    ),
    Case(
        ApiKey.DESCRIBE_LOG_DIRS,
        {"topics": None},
        "DESCRIBE CLUSTER kafka-cluster",
        ([C], 0),
        lambda answer: (codes(answer), len(answer.results)),
    ),
    Case(
        ApiKey.INIT_PRODUCER_ID,
        {"transactional_id": "x", "transaction_timeout": TIMEOUT, "producer_id": -1, "producer_epoch": -1},
        "WRITE TRANSACTIONAL_ID x",
        [X],
    ),
    Case(
        ApiKey.INIT_PRODUCER_ID,
        {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
        "IDEMPOTENT_WRITE CLUSTER *; WRITE TOPIC *",
        [C],
    ),
    Case(
        ApiKey.INIT_PRODUCER_ID,
        {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
        "IDEMPOTENT_WRITE CLUSTER *",
        [0],
    ),
    Case(
        ApiKey.INIT_PRODUCER_ID,
        {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
        "WRITE TOPIC *",
        [0],
    ),
    Case(ApiKey.ADD_PARTITIONS_TO_TXN, ADDED, "WRITE TRANSACTIONAL_ID x; WRITE TOPIC shut", [X, X], version=3),
    Case(ApiKey.ADD_PARTITIONS_TO_TXN, ADDED, "WRITE TOPIC shut", [T, 55], version=3),
    Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        {
            "transactions": [
                {
                    "transactional_id": "x",
                    "producer_id": 0,
                    "producer_epoch": 0,
                    "verify_only": True,
                    "topics": [{"name": "open", "partitions": [0]}],
                }
            ]
        },
        "CLUSTER_ACTION CLUSTER *",
        [C],
    ),
    Case(
        ApiKey.ADD_OFFSETS_TO_TXN,
        {"transactional_id": "x", "group_id": "g"},
        "WRITE TRANSACTIONAL_ID x; READ GROUP g",
        [X],
    ),
    Case(ApiKey.ADD_OFFSETS_TO_TXN, {"transactional_id": "x", "group_id": "g"}, "READ GROUP g", [G]),
    Case(ApiKey.END_TXN, {"transactional_id": "x"}, "WRITE TRANSACTIONAL_ID x", [X]),
    Case(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": ["x"]}, "DESCRIBE TRANSACTIONAL_ID x", [X]),
    Case(ApiKey.DESCRIBE_PRODUCERS, topics("shut", "open", "absent"), "READ TOPIC shut; READ TOPIC absent", [T, 0, T]),
    Case(ApiKey.WRITE_TXN_MARKERS, MARKERS, "ALTER CLUSTER *; CLUSTER_ACTION CLUSTER *", [C]),
    Case(ApiKey.WRITE_TXN_MARKERS, MARKERS, "ALTER CLUSTER *", [0]),
    Case(
        ApiKey.DESCRIBE_CLUSTER,
        {"endpoint_type": 1, "include_cluster_authorized_operations": True},
        "DESCRIBE CLUSTER *",
        ([0], 0),
        lambda answer: (codes(answer), answer.cluster_authorized_operations),
    ),
    Case(ApiKey.CREATE_ACLS, {"creations": [ACL]}, "ALTER CLUSTER *", [C]),
    Case(ApiKey.DESCRIBE_ACLS, ACL_FILTER, "DESCRIBE CLUSTER *", [C]),
    Case(ApiKey.DELETE_ACLS, {"filters": [ACL_FILTER]}, "ALTER CLUSTER *", [C]),
    Case(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": [{"name": "u"}]}, "DESCRIBE CLUSTER *", [C, C]),
    Case(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        {"deletions": [{"name": "u", "mechanism": 1}, {"name": "v", "mechanism": 1}]},
        "ALTER CLUSTER *",
        [C, C],
    ),
    Case(ApiKey.DESCRIBE_CLIENT_QUOTAS, {}, "DESCRIBE_CONFIGS CLUSTER *", [C]),
    Case(
        ApiKey.ALTER_CLIENT_QUOTAS,
        {"entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": []}]},
        "ALTER_CONFIGS CLUSTER *",
        [C],
    ),
    Case(ApiKey.CREATE_DELEGATION_TOKEN, {}, "CREATE_TOKENS USER *", [NOT_ALLOWED]),
    Case(ApiKey.RENEW_DELEGATION_TOKEN, {}, "CREATE_TOKENS USER *", [NOT_ALLOWED]),
    Case(ApiKey.EXPIRE_DELEGATION_TOKEN, {}, "CREATE_TOKENS USER *", [NOT_ALLOWED]),
    Case(ApiKey.DESCRIBE_DELEGATION_TOKEN, {}, "DESCRIBE_TOKENS USER *", [NOT_ALLOWED]),
]


def resolved(served: Served, expected: Any) -> Any:
    """`its id` stands for the id of topic `open`."""
    if isinstance(expected, dict):
        return {key: resolved(served, value) for key, value in expected.items()}
    if isinstance(expected, tuple):
        return tuple(resolved(served, each) for each in expected)
    return served.ids["open"] if expected == "its id" else expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.api_key.name}-{case.denials.replace(' ', '_')}"[:80])
def test_denied(served: Served, case: Case) -> None:
    version = SERVED[case.api_key].highest if case.version is None else case.version
    values = case.values(served) if callable(case.values) else case.values
    served.rules.deny(*(line.strip() for line in case.denials.split(";")))
    try:
        answer = served.connection.ask(case.api_key, version, values)
    finally:
        served.rules.deny()
    assert resolved(served, case.expected) == case.shows(answer)


def test_every_api_has_a_case() -> None:
    no_permission_needed = {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }
    assert set(SERVED) - no_permission_needed == {case.api_key for case in CASES} | {ApiKey.LIST_TRANSACTIONS}
    assert set(HANDLERS) <= set(SERVED)


WITHOUT_EFFECT: Final = {
    # Only shown, among the operations that a client is authorized for:
    (ApiKey.METADATA, "T Write"),
    (ApiKey.METADATA, "T Alter"),
    (ApiKey.METADATA, "C Alter"),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, "T Alter"),
    (ApiKey.DESCRIBE_GROUPS, "G Delete"),
    # Denied in the cases because nothing is needed:
    (ApiKey.RENEW_DELEGATION_TOKEN, "U CreateTokens"),
    (ApiKey.EXPIRE_DELEGATION_TOKEN, "U CreateTokens"),
    # Records that brokers deliver to each other:
    (ApiKey.PRODUCE, "C ClusterAction"),
}
"""Denials of the cases that are not about what a client needs."""


def test_the_document_has_every_api_with_the_permissions_that_it_needs() -> None:
    """Each API that is served is in one row of docs/security.md; what is denied in the cases above is what it names."""
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    table = text.partition("### What each API needs\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| ")][1:]
    listed = [(name.strip(), needs) for names, needs in rows for name in names.split(",")]
    served_names = {"".join(word.capitalize() for word in key.name.split("_")): key for key in SERVED}
    assert sorted(served_names) == sorted(name for name, _ in listed)
    documented = {served_names[name]: needs for name, needs in listed}
    letters = {
        "TOPIC": "T",
        "GROUP": "G",
        "CLUSTER": "C",
        "TRANSACTIONAL_ID": "X",
        "DELEGATION_TOKEN": "DT",
        "USER": "U",
    }
    for case in CASES:
        for denial in case.denials.split(";"):
            operation, resource, _ = denial.split()
            needed = f"{letters[resource]} {''.join(word.capitalize() for word in operation.split('_'))}"
            if (case.api_key, needed) not in WITHOUT_EFFECT:
                # As a word: Describe is not DescribeConfigs.
                assert re.search(rf"\b{needed}\b", documented[case.api_key]), case


def test_telemetry_needs_no_permission(served: Served) -> None:
    """As in Kafka: any client that may connect may push."""
    served.rules.deny(
        *(f"{each.name} CLUSTER *" for each in Operation), *(f"{each.name} TOPIC *" for each in Operation)
    )
    try:
        found = served.connection.ask_newest(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, {})
        push = {"client_instance_id": found.client_instance_id, "subscription_id": found.subscription_id}
        assert [0] == codes(served.connection.ask_newest(ApiKey.PUSH_TELEMETRY, push))
    finally:
        served.rules.deny()


def test_transactions_are_filtered(served: Served) -> None:
    """Transactional ids that the client may not describe are left out, and topics of those that it may."""
    init = {"transaction_timeout": TIMEOUT, "producer_id": -1, "producer_epoch": -1}
    made = served.connection.ask_newest(ApiKey.INIT_PRODUCER_ID, {"transactional_id": "x", **init})
    identity = {"v3_and_below_producer_id": made.producer_id, "v3_and_below_producer_epoch": made.producer_epoch}
    assert [0, 0] == codes(served.connection.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, ADDED | identity))
    served.rules.deny("DESCRIBE TOPIC shut")
    (described,) = served.connection.ask_newest(
        ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": ["x"]}
    ).transaction_states
    assert ["open"] == [topic.topic for topic in described.topics]
    served.rules.deny("DESCRIBE TRANSACTIONAL_ID x")
    listing = {"duration_filter": -1}
    assert () == served.connection.ask_newest(ApiKey.LIST_TRANSACTIONS, listing).transaction_states
    served.rules.deny()
    (listed,) = served.connection.ask_newest(ApiKey.LIST_TRANSACTIONS, listing).transaction_states
    assert "x" == listed.transactional_id


def test_a_group_with_a_topic_that_may_not_be_described_shows_no_members(served: Served) -> None:
    member = {"group_id": "c", "member_id": "m", "subscribed_topic_names": ["open"], "rebalance_timeout": TIMEOUT}
    joining = served.connection.ask_newest(ApiKey.CONSUMER_GROUP_HEARTBEAT, member | {"topic_partitions": []})
    assert [0] == codes(joining)
    served.rules.deny("DESCRIBE TOPIC open")
    described = served.connection.ask_newest(ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": ["c"]})
    assert [(T, 0)] == without_members(described)
    served.rules.deny()
    described = served.connection.ask_newest(ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": ["c"]})
    assert [(0, 1)] == without_members(described)


def test_a_streams_group_with_a_topic_that_may_not_be_described_shows_no_members(served: Served) -> None:
    joining = STREAMS_JOIN | {"group_id": "t"}
    assert [0] == codes(served.connection.ask_newest(ApiKey.STREAMS_GROUP_HEARTBEAT, joining))
    for denial, expected in (("DESCRIBE TOPIC open", (T, 0)), ("DESCRIBE TOPIC shut", (0, 1))):
        served.rules.deny(denial)
        described = served.connection.ask_newest(ApiKey.STREAMS_GROUP_DESCRIBE, {"group_ids": ["t"]})
        served.rules.deny()
        assert [expected] == without_members(described)


def test_a_description_with_a_topic_that_may_not_be_described_is_not_shown(served: Served) -> None:
    served.rules.deny()
    joining = STREAMS_JOIN | {
        "group_id": "d",
        "topology": {"subtopologies": [{"subtopology_id": "0", "source_topics": ["open"]}]},
    }
    assert [0] == codes(served.connection.ask_newest(ApiKey.STREAMS_GROUP_HEARTBEAT, joining))
    sink = {"name": "n", "node_type": 3, "sink_topic": "shut"}
    graph = {"subtopologies": [{"subtopology_id": "0", "nodes": [sink]}]}
    update = {"group_id": "d", "member_id": "m", "topology_description": graph}
    assert 0 == served.connection.ask_newest(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, update).error_code
    served.rules.deny("DESCRIBE TOPIC shut")
    asked = {"group_ids": ["d"], "include_topology_description": True}
    (hidden,) = served.connection.ask_newest(ApiKey.STREAMS_GROUP_DESCRIBE, asked).groups
    (plain,) = served.connection.ask_newest(ApiKey.STREAMS_GROUP_DESCRIBE, {"group_ids": ["d"]}).groups
    served.rules.deny()
    assert (T, None, 0) == (int(hidden.error_code), hidden.topology_description, int(plain.error_code))


def test_topics_that_a_pattern_matches_are_dropped_if_they_may_not_be_described(served: Served) -> None:
    member: dict[str, Any] = {
        "group_id": "r",
        "member_id": "m",
        "subscribed_topic_names": None,
        "subscribed_topic_regex": "open|shut",
        "rebalance_timeout": TIMEOUT,
        "topic_partitions": [],
    }
    served.rules.deny("DESCRIBE TOPIC shut")
    answer = served.connection.ask_newest(ApiKey.CONSUMER_GROUP_HEARTBEAT, member)
    assert ([0], [served.ids["open"]]) == (
        codes(answer),
        [each.topic_id for each in answer.assignment.topic_partitions],
    )
    served.rules.deny()


def test_permission_is_asked_once_for_each_topic_of_a_connection(served: Served) -> None:
    served.rules.deny()
    for _ in range(3):
        served.connection.ask(ApiKey.PRODUCE, 9, PRODUCED(served))
        served.connection.ask(ApiKey.FETCH, 12, FETCHED(served))
    names = ("shut", "open", "absent")
    assert [("WRITE", "TOPIC", name) for name in names] + [
        ("READ", "TOPIC", name) for name in names
    ] == served.rules.asked
    served.rules.deny("WRITE TOPIC open")
    assert [0, T, 3] == codes(served.connection.ask(ApiKey.PRODUCE, 9, PRODUCED(served)))
    served.rules.deny()


def test_a_permission_that_is_withdrawn_while_a_fetch_waits_counts(served: Served) -> None:
    """Whatever wakes the fetch, its response has no records of the topic."""
    served.rules.deny()
    end = {"partition": 0, "fetch_offset": 1_000_000, "partition_max_bytes": 1000}
    latest = served.connection.ask_newest(
        ApiKey.LIST_OFFSETS,
        {"replica_id": -1, "topics": [{"name": "shut", "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
    )
    end["fetch_offset"] = latest.topics[0].partitions[0].offset
    wanted = {
        "max_bytes": 1000,
        "min_bytes": 1,
        "max_wait": TIMEOUT,
        "session_epoch": -1,
        "topics": [{"topic_id": served.ids["shut"], "partitions": [end]}],
    }
    with RawConnection(served.address) as consumer:
        consumer.send(request_frame(ApiKey.FETCH, 13, wanted))
        wait_until(lambda: ("READ", "TOPIC", "shut") in served.rules.asked, "the fetch waits")
        served.rules.deny("READ TOPIC shut")
        produce(served.connection, served.ids["shut"], batch())
        _, answer = read_response(ApiKey.FETCH, 13, consumer.receive())
    served.rules.deny()
    assert [0, T] == codes(answer)


def test_a_corrupt_batch_under_a_denied_transactional_id_gets_an_answer(served: Served) -> None:
    """It is not transactional, since it cannot be read: the partition says what is wrong with it."""
    broken = joined(topics("open", index=0, records=b"\0" * 70), acks=-1, timeout=TIMEOUT, transactional_id="x")
    served.rules.deny("WRITE TRANSACTIONAL_ID x")
    try:
        answer = served.connection.ask(ApiKey.PRODUCE, 9, broken(served))
    finally:
        served.rules.deny()
    assert [int(ErrorCode.CORRUPT_MESSAGE)] == codes(answer)


def test_a_topic_id_that_the_image_does_not_have_yet_is_unknown(served: Served) -> None:
    """Partitions are served a moment before the image shows their topic: without its name, nothing is permitted."""
    served.rules.deny("READ TOPIC shut", "WRITE TOPIC shut")
    with showing(served.broker, ClusterImage()):
        fetched = served.connection.ask(ApiKey.FETCH, 13, FETCHED(served))
        produced = served.connection.ask(ApiKey.PRODUCE, 13, PRODUCED(served))
    served.rules.deny()
    assert ([0, 100, 100, 100], [100, 100, 100]) == (codes(fetched), codes(produced))
