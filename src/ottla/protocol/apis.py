"""Which APIs and versions exist here: all those of a Kafka 4.4 broker, with its ranges.

Clients and tools guess the version of a broker from them. So APIs of a KRaft quorum, which Ottla does not have, are
listed too, and answered as by a Kafka whose voters cannot be changed.

An API that is not in the table is not advertised, and a request for it closes the connection, as Kafka does.
"""

from enum import IntEnum
from typing import Final, NamedTuple


class ApiKey(IntEnum):
    """Kafka's number of each request that brokers serve or clients send."""

    # An enumeration hashes its member's name, in Python; every request looks several up.
    __hash__ = int.__hash__

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94


class Versions(NamedTuple):
    """A range of versions, both ends included."""

    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest


SERVED: Final[dict[ApiKey, Versions]] = {
    ApiKey.PRODUCE: Versions(3, 13),
    ApiKey.FETCH: Versions(4, 18),
    ApiKey.LIST_OFFSETS: Versions(1, 11),
    ApiKey.METADATA: Versions(0, 13),
    ApiKey.OFFSET_COMMIT: Versions(2, 10),
    ApiKey.OFFSET_FETCH: Versions(1, 10),
    ApiKey.FIND_COORDINATOR: Versions(0, 6),
    ApiKey.JOIN_GROUP: Versions(0, 9),
    ApiKey.HEARTBEAT: Versions(0, 4),
    ApiKey.LEAVE_GROUP: Versions(0, 5),
    ApiKey.SYNC_GROUP: Versions(0, 5),
    ApiKey.DESCRIBE_GROUPS: Versions(0, 6),
    ApiKey.LIST_GROUPS: Versions(0, 5),
    ApiKey.SASL_HANDSHAKE: Versions(0, 1),
    ApiKey.API_VERSIONS: Versions(0, 5),
    ApiKey.CREATE_TOPICS: Versions(2, 7),
    ApiKey.DELETE_TOPICS: Versions(1, 6),
    ApiKey.DELETE_RECORDS: Versions(0, 2),
    ApiKey.INIT_PRODUCER_ID: Versions(0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Versions(2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: Versions(0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: Versions(0, 4),
    ApiKey.END_TXN: Versions(0, 5),
    ApiKey.WRITE_TXN_MARKERS: Versions(1, 2),
    ApiKey.TXN_OFFSET_COMMIT: Versions(0, 6),
    ApiKey.DESCRIBE_ACLS: Versions(1, 3),
    ApiKey.CREATE_ACLS: Versions(1, 3),
    ApiKey.DELETE_ACLS: Versions(1, 3),
    ApiKey.DESCRIBE_CONFIGS: Versions(1, 4),
    ApiKey.ALTER_CONFIGS: Versions(0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Versions(1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: Versions(1, 5),
    ApiKey.SASL_AUTHENTICATE: Versions(0, 2),
    ApiKey.CREATE_PARTITIONS: Versions(0, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: Versions(1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: Versions(1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Versions(1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Versions(1, 3),
    ApiKey.DELETE_GROUPS: Versions(0, 3),
    ApiKey.ELECT_LEADERS: Versions(0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Versions(0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Versions(0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Versions(0, 0),
    ApiKey.OFFSET_DELETE: Versions(0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Versions(0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: Versions(0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Versions(0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Versions(0, 0),
    ApiKey.DESCRIBE_QUORUM: Versions(0, 2),
    ApiKey.UPDATE_FEATURES: Versions(0, 2),
    ApiKey.DESCRIBE_CLUSTER: Versions(0, 2),
    ApiKey.DESCRIBE_PRODUCERS: Versions(0, 0),
    ApiKey.UNREGISTER_BROKER: Versions(0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: Versions(0, 0),
    ApiKey.LIST_TRANSACTIONS: Versions(0, 2),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Versions(0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Versions(0, 1),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Versions(0, 0),
    ApiKey.PUSH_TELEMETRY: Versions(0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: Versions(0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Versions(0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: Versions(1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: Versions(1, 1),
    ApiKey.SHARE_FETCH: Versions(1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: Versions(1, 2),
    ApiKey.ADD_RAFT_VOTER: Versions(0, 1),
    ApiKey.REMOVE_RAFT_VOTER: Versions(0, 0),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Versions(0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: Versions(0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: Versions(0, 1),
    ApiKey.DELETE_SHARE_GROUP_STATE: Versions(0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Versions(0, 1),
    ApiKey.STREAMS_GROUP_HEARTBEAT: Versions(0, 1),
    ApiKey.STREAMS_GROUP_DESCRIBE: Versions(0, 1),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Versions(0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Versions(0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Versions(0, 0),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: Versions(0, 0),
    ApiKey.UNREGISTER_CONTROLLER: Versions(0, 0),
}
"""What is understood. What is advertised differs in `ADVERTISED` and `TELEMETRY_APIS`."""

ADVERTISED: Final[dict[ApiKey, Versions]] = {**SERVED, ApiKey.PRODUCE: Versions(0, 13)}
"""Kafka lists Produce from 0 although it refuses 0 to 2, or librdkafka would not compress; so do we."""

TELEMETRY_APIS: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""Advertised only where client metrics are shown: clients send telemetry as soon as they see these."""

LAST_BY_NAME: Final[dict[ApiKey, int]] = {
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.TXN_OFFSET_COMMIT: 5,
}
"""The last version that names topics, where later ones have only their ids. Neither can be made of the other, so
messages up to that version come in its class, and later ones in the newest's."""

NEWER_THAN_KIO: Final[dict[ApiKey, int]] = {
    ApiKey.API_VERSIONS: 5,
    ApiKey.TXN_OFFSET_COMMIT: 6,
    ApiKey.DELETE_GROUPS: 3,
    ApiKey.STREAMS_GROUP_HEARTBEAT: 1,
    ApiKey.STREAMS_GROUP_DESCRIBE: 1,
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: 0,
    ApiKey.UNREGISTER_CONTROLLER: 0,
}
"""The first version of an API that `newer_messages.py` or `newer_streams_messages.py` has instead of kio."""
