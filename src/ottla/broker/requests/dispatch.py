"""Which function of `handlers/` serves which API.

A handler is imported at its API's first request, and may be a plain function or a coroutine function.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.metadata.image import NO_LEADER, ClusterImage
from ottla.protocol.apis import SERVED, ApiKey

Handler = Callable[[Services, RequestContext, Any], Any]

HANDLERS: Final[dict[ApiKey, str]] = {
    ApiKey.LIST_OFFSETS: "records.offsets:list_offsets",
    ApiKey.METADATA: "topics.metadata:metadata",
    ApiKey.OFFSET_COMMIT: "groups.group_offsets:offset_commit",
    ApiKey.OFFSET_FETCH: "groups.group_offsets:offset_fetch",
    ApiKey.FIND_COORDINATOR: "groups.coordinators:find_coordinator",
    ApiKey.JOIN_GROUP: "groups.group_members:join_group",
    ApiKey.HEARTBEAT: "groups.group_members:heartbeat",
    ApiKey.LEAVE_GROUP: "groups.group_members:leave_group",
    ApiKey.SYNC_GROUP: "groups.group_members:sync_group",
    ApiKey.DESCRIBE_GROUPS: "groups.group_admin:describe_groups",
    ApiKey.LIST_GROUPS: "groups.group_admin:list_groups",
    ApiKey.SASL_HANDSHAKE: "security.sasl:sasl_handshake",
    ApiKey.CREATE_TOPICS: "topics.topics:create_topics",
    ApiKey.DELETE_TOPICS: "topics.topics:delete_topics",
    ApiKey.DELETE_RECORDS: "records.delete_records:delete_records",
    ApiKey.INIT_PRODUCER_ID: "records.producers:init_producer_id",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "records.offsets:offset_for_leader_epoch",
    ApiKey.ADD_PARTITIONS_TO_TXN: "transactions.transactions:add_partitions_to_txn",
    ApiKey.ADD_OFFSETS_TO_TXN: "transactions.transactions:add_offsets_to_txn",
    ApiKey.END_TXN: "transactions.transactions:end_txn",
    ApiKey.WRITE_TXN_MARKERS: "transactions.transaction_admin:write_txn_markers",
    ApiKey.TXN_OFFSET_COMMIT: "transactions.transaction_offsets:txn_offset_commit",
    ApiKey.DESCRIBE_ACLS: "security.acls:describe_acls",
    ApiKey.CREATE_ACLS: "security.acls:create_acls",
    ApiKey.DELETE_ACLS: "security.acls:delete_acls",
    ApiKey.DESCRIBE_CONFIGS: "topics.configs:describe_configs",
    ApiKey.ALTER_CONFIGS: "topics.configs:alter_configs",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "cluster.log_dirs:alter_replica_log_dirs",
    ApiKey.DESCRIBE_LOG_DIRS: "cluster.log_dirs:describe_log_dirs",
    ApiKey.SASL_AUTHENTICATE: "security.sasl:sasl_authenticate",
    ApiKey.CREATE_PARTITIONS: "topics.topics:create_partitions",
    ApiKey.CREATE_DELEGATION_TOKEN: "security.delegation_tokens:create_delegation_token",
    ApiKey.RENEW_DELEGATION_TOKEN: "security.delegation_tokens:renew_delegation_token",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "security.delegation_tokens:expire_delegation_token",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "security.delegation_tokens:describe_delegation_token",
    ApiKey.DELETE_GROUPS: "groups.group_admin:delete_groups",
    ApiKey.ELECT_LEADERS: "cluster.elections:elect_leaders",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "topics.configs:incremental_alter_configs",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "cluster.elections:alter_partition_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "cluster.elections:list_partition_reassignments",
    ApiKey.OFFSET_DELETE: "groups.group_offsets:offset_delete",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "security.client_quotas:describe_client_quotas",
    ApiKey.ALTER_CLIENT_QUOTAS: "security.client_quotas:alter_client_quotas",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "security.scram_credentials:describe_user_scram_credentials",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "security.scram_credentials:alter_user_scram_credentials",
    ApiKey.DESCRIBE_QUORUM: "cluster.quorum:describe_quorum",
    ApiKey.UPDATE_FEATURES: "cluster.features:update_features",
    ApiKey.DESCRIBE_CLUSTER: "cluster.cluster:describe_cluster",
    ApiKey.DESCRIBE_PRODUCERS: "records.producers:describe_producers",
    ApiKey.UNREGISTER_BROKER: "cluster.quorum:unregister_broker",
    ApiKey.DESCRIBE_TRANSACTIONS: "transactions.transaction_admin:describe_transactions",
    ApiKey.LIST_TRANSACTIONS: "transactions.transaction_admin:list_transactions",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "groups.consumer_groups:consumer_group_heartbeat",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "groups.consumer_groups:consumer_group_describe",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "cluster.telemetry:get_telemetry_subscriptions",
    ApiKey.PUSH_TELEMETRY: "cluster.telemetry:push_telemetry",
    ApiKey.LIST_CONFIG_RESOURCES: "topics.configs:list_config_resources",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "topics.topic_partitions:describe_topic_partitions",
    ApiKey.SHARE_GROUP_HEARTBEAT: "groups.share_groups:share_group_heartbeat",
    ApiKey.SHARE_GROUP_DESCRIBE: "groups.share_groups:share_group_describe",
    ApiKey.SHARE_FETCH: "groups.share_fetch:share_fetch",
    ApiKey.SHARE_ACKNOWLEDGE: "groups.share_fetch:share_acknowledge",
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: "groups.share_coordination:initialize_share_group_state",
    ApiKey.READ_SHARE_GROUP_STATE: "groups.share_coordination:read_share_group_state",
    ApiKey.WRITE_SHARE_GROUP_STATE: "groups.share_coordination:write_share_group_state",
    ApiKey.DELETE_SHARE_GROUP_STATE: "groups.share_coordination:delete_share_group_state",
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "groups.share_coordination:read_share_group_state_summary",
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "groups.share_offsets:describe_share_group_offsets",
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: "groups.share_offsets:alter_share_group_offsets",
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: "groups.share_offsets:delete_share_group_offsets",
    ApiKey.STREAMS_GROUP_HEARTBEAT: "groups.streams_groups:streams_group_heartbeat",
    ApiKey.STREAMS_GROUP_DESCRIBE: "groups.streams_groups:streams_group_describe",
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: "groups.streams_topologies:update_topology_description",
    ApiKey.ADD_RAFT_VOTER: "cluster.quorum:add_raft_voter",
    ApiKey.REMOVE_RAFT_VOTER: "cluster.quorum:remove_raft_voter",
    ApiKey.UNREGISTER_CONTROLLER: "cluster.quorum:unregister_controller",
}
"""Module and function in `handlers/`; Produce, Fetch and ApiVersions have their own entry points in `pipeline.py`."""

EAGER: Final = frozenset(
    {
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
    }
)
"""Frequent requests whose handlers rarely wait: they start without a task, and get one only if they have to wait."""


@cache
def handler_of(api_key: ApiKey) -> Handler:
    """The function that serves an API."""
    # kio must come in through our messages, which keep its slow part out.
    import_module("ottla.protocol.messages")
    module, _, name = HANDLERS[api_key].partition(":")
    handler: Handler = getattr(import_module(f"ottla.broker.handlers.{module}"), name)
    return handler


def warm_up() -> None:
    """Imports what the first request of every client needs."""
    handler_of(ApiKey.METADATA)
    from ottla.broker.handlers.versions import answer_api_versions

    answer_api_versions(0, 0, memoryview(b""), ClusterImage(), NO_LEADER)


API_KEYS: Final[dict[tuple[int, int], ApiKey]] = {
    (api_key, version): api_key
    for api_key in HANDLERS
    for version in range(SERVED[api_key].lowest, SERVED[api_key].highest + 1)
}
"""The APIs that a handler serves, by their number and version."""
