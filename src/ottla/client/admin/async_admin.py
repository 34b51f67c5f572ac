"""The admin client for asyncio: every administrative operation of a cluster as a method.

The methods check their arguments and call the functions of the `*_requests.py` modules, `group_offsets.py` and
`hanging_transactions.py`, which build the requests and read the responses. `blocking_admin.py` offers the same methods
without an event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from types import TracebackType
from typing import Final, Self, TypeVar, Unpack

from ottla.client.admin.acl_requests import create_acls, delete_acls, describe_acls
from ottla.client.admin.acls import ACL, ACLFilter
from ottla.client.admin.config_requests import (
    ConfigEntry,
    Resource,
    ResourceType,
    alter_configs,
    describe_configs,
    list_config_resources,
)
from ottla.client.admin.feature_requests import FeatureMetadata, describe_features, update_features
from ottla.client.admin.group_offsets import commit_offsets, committed_offsets, delete_offsets
from ottla.client.admin.group_requests import (
    GroupDescription,
    GroupListing,
    delete_group,
    describe_group,
    list_groups,
    remove_members,
)
from ottla.client.admin.hanging_transactions import OpenTransaction, find_hanging
from ottla.client.admin.options import AdminConfig, AdminOptions
from ottla.client.admin.quorum_requests import QuorumInfo, describe_quorum, unregister_broker
from ottla.client.admin.quota_requests import alter_client_quotas, describe_client_quotas
from ottla.client.admin.replica_requests import (
    ElectionType,
    PartitionReassignment,
    alter_reassignments,
    elect_leaders,
    list_reassignments,
)
from ottla.client.admin.share_group_requests import (
    ShareGroupOffset,
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group,
    share_group_offsets,
)
from ottla.client.admin.streams_group_requests import StreamsGroupDescription, describe_streams_group
from ottla.client.admin.token_requests import (
    DelegationToken,
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from ottla.client.admin.topic_requests import (
    FINISH_TIMEOUT_MS,
    ClusterDescription,
    CreatedTopic,
    LogDir,
    add_partitions,
    alter_replica_log_dirs,
    create_topic,
    delete_records_of,
    delete_topic,
    describe_cluster,
    describe_log_dirs,
    wait_for_topics,
)
from ottla.client.admin.transaction_requests import (
    ActiveProducer,
    TransactionDescription,
    TransactionListing,
    abort_transaction,
    describe_producers,
    describe_transaction,
    list_transactions,
    open_transaction_at,
)
from ottla.client.admin.user_requests import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
    alter_user_scram_credentials,
    describe_user_scram_credentials,
)
from ottla.client.admin.values import ConfigResource, MemberToRemove, NewPartitions, NewTopic, Outcomes
from ottla.client.arguments import checks_arguments
from ottla.client.errors import CannotConnectError, answer_error
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import TopicView
from ottla.client.network.list_offsets import END, MAX_TIMESTAMP, START, list_offsets
from ottla.client.options import configured
from ottla.client.values import OffsetAndMetadata, OffsetAndTimestamp
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.upgrade_type import UpgradeType
from ottla.protocol.fetch_frames import READ_COMMITTED, READ_UNCOMMITTED
from ottla.security.quota_entity import QuotaEntity

K = TypeVar("K")
V = TypeVar("V")

_REQUESTS_AT_ONCE_MAX: Final = 32
_FIRST_COORDINATOR_EPOCH: Final = 0
"""The epoch of a coordinator that has not written a marker to the partition yet."""


class OffsetSpec(IntEnum):
    """What `list_offsets` can look up besides a timestamp in milliseconds."""

    EARLIEST = START
    """The log start offset."""
    LATEST = END
    """The offset after the last record that consumers can read."""
    MAX_TIMESTAMP = MAX_TIMESTAMP
    """The offset of the record with the largest timestamp."""


@checks_arguments()
class AsyncAdmin:
    """Administers a cluster. An async context manager; it connects at the first call.

    Retriable errors are retried for `request_timeout_ms`. A method that takes several items returns `Outcomes`, one for
    each item. If some items fail it raises, after all were tried: the item's error if there was one item,
    `PartlyFailedError` otherwise. With `raise_errors=False` it returns the errors in the `Outcomes` instead.

    Every method raises `AnswerError` if a broker refuses, `CannotConnectError` if no broker can be reached,
    `DeadlineError` if retrying took too long, `ArgumentError` for an argument of the wrong type, and `MisuseError`
    after `close`.
    """

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        self.config = configured(AdminConfig, "Admin", options)
        self._cluster = self.config.cluster()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def cluster(self) -> Cluster:
        """The connections and metadata that all methods use. Raises `MisuseError` after `close`."""
        if self._is_closed:
            raise admin_closed()
        return self._cluster

    async def close(self) -> None:
        """Closes all connections. Calling it again does nothing."""
        self._is_closed = True
        await self._cluster.close()

    # The cluster

    async def describe_cluster(self) -> ClusterDescription:
        """The brokers and the controller."""
        return await describe_cluster(self.cluster)

    async def describe_quorum(self) -> QuorumInfo:
        """Which broker or controller writes the cluster's metadata, and how far the others have followed."""
        return await describe_quorum(self.cluster)

    async def unregister_broker(self, broker: int) -> None:
        """Unregisters a broker that will not come back. Stop it, and move its replicas to other brokers, first."""
        await unregister_broker(self.cluster, broker)

    async def describe_features(self) -> FeatureMetadata:
        """The features of the cluster: the finalized levels, and those that a broker supports."""
        return await describe_features(self.cluster)

    async def update_features(
        self,
        levels: Mapping[str, int],
        upgrade_type: UpgradeType = UpgradeType.UPGRADE,
        timeout_ms: int | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Sets the finalized levels of features, all or none; 0 disables a feature. Lower levels need a downgrade as
        `upgrade_type`. With `validate_only`, only checks whether the levels could be set."""
        await update_features(
            self.cluster, levels, upgrade_type, validate_only=validate_only, timeout_ms=_or_default(timeout_ms)
        )

    async def describe_log_dirs(
        self,
        brokers: Collection[int] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        raise_errors: bool = True,
    ) -> Outcomes[int, list[LogDir]]:
        """The log directories of brokers, with the replicas in them. By default of all brokers and partitions."""
        if brokers is None:
            brokers = sorted((await self.cluster.retry(lambda: self.cluster.refresh([]))).brokers)
        asked = None if partitions is None else list(partitions)
        return await self._each(brokers, lambda at: describe_log_dirs(self.cluster, at, asked), raise_errors)

    async def alter_replica_log_dirs(
        self, broker: int, moves: Mapping[TopicPartition, str], *, raise_errors: bool = True
    ) -> Outcomes[TopicPartition, None]:
        """Begins to move replicas of a broker to other log directories of that broker, by path.

        `describe_log_dirs` shows the progress: the copy of a replica is its future replica, until it has caught up and
        takes its place. A replica that the broker gets later is created there; until then this raises
        REPLICA_NOT_AVAILABLE.
        """
        refused = await alter_replica_log_dirs(self.cluster, broker, moves)
        return _outcomes(moves, refused, raise_errors)

    # Topics

    async def create_topics(
        self,
        new_topics: Iterable[NewTopic],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        *,
        raise_errors: bool = True,
        wait_for_metadata: bool = False,
    ) -> Outcomes[str, CreatedTopic]:
        """Creates topics; with `validate_only`, only checks whether they could be created.

        Brokers other than the controller know a new topic a moment later. With `wait_for_metadata` the method returns
        when every partition has a leader. Raises `MisuseError` if a topic is listed twice.
        """
        topics = list(new_topics)
        by_name = {each.name: each for each in topics}
        if len(by_name) < len(topics):
            raise MisuseError("create_topics: new_topics lists a topic twice; list each topic once")

        async def create(name: str) -> CreatedTopic:
            topic = by_name[name]
            return await create_topic(
                self.cluster,
                name,
                partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                configs=topic.topic_configs,
                assignments=topic.replica_assignments,
                validate_only=validate_only,
                timeout_ms=_or_default(timeout_ms),
            )

        created = await self._each(by_name, create, raise_errors=False)
        if wait_for_metadata and not validate_only:
            await self.wait_for_topics(list(created), timeout_ms=_or_default(timeout_ms))
        return created.checked() if raise_errors else created

    async def wait_for_topics(self, topics: Collection[str], timeout_ms: int = FINISH_TIMEOUT_MS) -> None:
        """Returns when every partition of these topics has a leader.

        Raises what is missing (UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE) after `timeout_ms`.
        """
        if topics:
            await wait_for_topics(self.cluster, topics, timeout_ms=timeout_ms)

    async def delete_topics(
        self, topics: Iterable[str], timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> Outcomes[str, None]:
        """Deletes topics with all their records."""
        return await self._each(
            topics, lambda name: delete_topic(self.cluster, name, timeout_ms=_or_default(timeout_ms)), raise_errors
        )

    async def create_partitions(
        self,
        topic_partitions: Mapping[str, NewPartitions | int],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        *,
        raise_errors: bool = True,
    ) -> Outcomes[str, None]:
        """Adds partitions to topics, given the new total by topic. Later records of a key may go to another partition.

        With `validate_only`, only checks whether the partitions could be added.
        """

        async def grow(name: str) -> None:
            given = topic_partitions[name]
            wanted = NewPartitions(given) if isinstance(given, int) else given
            await add_partitions(
                self.cluster,
                name,
                wanted.total_count,
                assignments=wanted.new_assignments,
                validate_only=validate_only,
                timeout_ms=_or_default(timeout_ms),
            )

        return await self._each(topic_partitions, grow, raise_errors)

    async def list_topics(self) -> list[str]:
        """The names of all topics, sorted; internal topics included."""
        return sorted((await self.cluster.retry(self.cluster.refresh)).topics)

    async def describe_topics(
        self, topics: Collection[str] | None = None, *, raise_errors: bool = True
    ) -> Outcomes[str, TopicView]:
        """Partitions, leaders and replicas of topics; by default of all topics."""
        view = await self.cluster.retry(lambda: self.cluster.refresh(topics))
        wanted = sorted(view.topics) if topics is None else list(dict.fromkeys(topics))
        found = {name: view.topics[name] for name in wanted if name in view.topics}
        missing = [name for name in wanted if name not in view.topics]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        errors = {name: answer_error(view.errors.get(name, unknown), f"topic {name}") for name in missing}
        outcomes: Outcomes[str, TopicView] = Outcomes(found, errors)
        return outcomes.checked() if raise_errors else outcomes

    # Configs

    async def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        include_documentation: bool = False,
        *,
        raise_errors: bool = True,
    ) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
        """The configs of each resource by name: those that the resource lists, or all."""

        async def describe(resource: ConfigResource) -> dict[str, ConfigEntry]:
            entries = await describe_configs(
                self.cluster, _resource(resource), resource.names, documentation=include_documentation
            )
            return {entry.name: entry for entry in entries}

        return await self._each(config_resources, describe, raise_errors)

    async def alter_configs(
        self, config_resources: Iterable[ConfigResource], validate_only: bool = False, *, raise_errors: bool = True
    ) -> Outcomes[ConfigResource, None]:
        """Sets the configs that each resource lists and leaves all others as they are; None removes an override."""

        async def alter(resource: ConfigResource) -> None:
            await alter_configs(self.cluster, _resource(resource), resource.changes, validate_only=validate_only)

        return await self._each(config_resources, alter, raise_errors)

    async def list_config_resources(self, resource_types: Collection[ResourceType] = ()) -> list[ConfigResource]:
        """The resources that have configs of their own: of these types, or of all types that the broker knows."""
        return [
            ConfigResource(each.type, each.name) for each in await list_config_resources(self.cluster, resource_types)
        ]

    # Records and offsets

    async def delete_records(
        self, records_to_delete: Mapping[TopicPartition, int], *, raise_errors: bool = True
    ) -> Outcomes[TopicPartition, int]:
        """Deletes the records below an offset, by partition; -1 deletes all. Returns the new log start offsets."""
        return await self._each(
            records_to_delete, lambda at: delete_records_of(self.cluster, at, records_to_delete[at]), raise_errors
        )

    async def list_offsets(
        self,
        topic_partitions: Mapping[TopicPartition, OffsetSpec | int],
        *,
        read_committed: bool = False,
        raise_errors: bool = True,
    ) -> Outcomes[TopicPartition, OffsetAndTimestamp]:
        """Looks up offsets: the first one at or after a timestamp in milliseconds, or what an `OffsetSpec` names.

        Offset and timestamp are -1 if there is no such record. With `read_committed`, `OffsetSpec.LATEST` is the last
        stable offset.
        """
        missing = await self._missing(topic_partitions)
        isolation = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        existing = {each: int(spec) for each, spec in topic_partitions.items() if each not in missing}
        answers = await list_offsets(self.cluster, existing, isolation_level=isolation) if existing else {}
        found = {each: OffsetAndTimestamp(answers[each].offset, answers[each].timestamp) for each in existing}
        outcomes = Outcomes(found, missing)
        return outcomes.checked() if raise_errors else outcomes

    async def _missing(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OttlaError]:
        """The partitions that do not exist, so that they are not retried."""
        names = {each.topic for each in partitions}
        view = await self.cluster.retry(lambda: self.cluster.refresh(names))
        counts = {name: len(view.topics[name].partitions) if name in view.topics else 0 for name in names}
        return {
            each: answer_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {each}")
            for each in partitions
            if not 0 <= each.partition < counts[each.topic]
        }

    # Leaders and replicas

    async def elect_leaders(
        self,
        election_type: ElectionType = ElectionType.PREFERRED,
        topic_partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> Outcomes[TopicPartition, None]:
        """Elects leaders of these partitions; by default of all partitions that need an election."""
        elected, refused = await elect_leaders(
            self.cluster, election_type, topic_partitions, timeout_ms=_or_default(timeout_ms)
        )
        return _outcomes(elected, refused, raise_errors)

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        timeout_ms: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> Outcomes[TopicPartition, None]:
        """Starts to move partitions to these brokers, the preferred leader first; None cancels a reassignment."""
        refused = await alter_reassignments(self.cluster, reassignments, timeout_ms=_or_default(timeout_ms))
        return _outcomes(reassignments, refused, raise_errors)

    async def list_partition_reassignments(
        self, topic_partitions: Iterable[TopicPartition] | None = None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments in progress: of these partitions, or all."""
        return await list_reassignments(self.cluster, topic_partitions, timeout_ms=_or_default(timeout_ms))

    # Groups

    async def list_consumer_groups(
        self, states_filter: Collection[str] = (), types_filter: Collection[str] = ()
    ) -> list[GroupListing]:
        """The groups of all brokers, sorted by id; optionally only those in some states or of some types.

        Types are "classic", "consumer", "share" and "streams". Case does not matter.
        """
        return await list_groups(self.cluster, states=states_filter, types=types_filter)

    async def describe_consumer_groups(
        self, group_ids: Iterable[str], *, raise_errors: bool = True
    ) -> Outcomes[str, GroupDescription]:
        """State, members and assignments of groups."""
        return await self._each(group_ids, lambda name: describe_group(self.cluster, name), raise_errors)

    async def delete_consumer_groups(
        self, group_ids: Iterable[str], *, raise_errors: bool = True
    ) -> Outcomes[str, None]:
        """Deletes groups and their committed offsets. A group with members is refused with NON_EMPTY_GROUP."""
        return await self._each(group_ids, lambda name: delete_group(self.cluster, name), raise_errors)

    async def remove_consumer_group_members(
        self,
        group_id: str,
        members: Iterable[MemberToRemove] | None = None,
        *,
        reason: str | None = None,
        raise_errors: bool = True,
    ) -> Outcomes[MemberToRemove, None]:
        """Removes members from a classic group; by default all. A member that is still running joins again."""
        if members is None:
            described = await describe_group(self.cluster, group_id)
            members = [MemberToRemove(each.member_id, each.instance_id) for each in described.members]
        by_id = {(each.member_id, each.group_instance_id): each for each in members}
        if not by_id:
            return Outcomes({})
        refused = await remove_members(self.cluster, group_id, list(by_id), reason=reason)
        return _outcomes(by_id.values(), {by_id[key]: error for key, error in refused.items()}, raise_errors)

    async def list_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group: for these partitions, or all. Partitions without one are left out."""
        found = await committed_offsets(self.cluster, group_id)
        wanted = found if partitions is None else [each for each in partitions if each in found]
        return {
            each: OffsetAndMetadata(found[each].offset, found[each].metadata, found[each].leader_epoch)
            for each in wanted
        }

    async def alter_consumer_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], *, raise_errors: bool = True
    ) -> Outcomes[TopicPartition, None]:
        """Commits offsets for a group without members; creates the group if it does not exist."""
        refused = await commit_offsets(self.cluster, group_id, offsets)
        return _outcomes(offsets, refused, raise_errors)

    async def delete_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, raise_errors: bool = True
    ) -> Outcomes[TopicPartition, None]:
        """Deletes committed offsets of a group. A topic that a member is subscribed to is refused."""
        asked = list(dict.fromkeys(partitions))
        refused = await delete_offsets(self.cluster, group_id, asked)
        return _outcomes(asked, refused, raise_errors)

    # Share groups and streams groups

    async def list_groups(
        self, states_filter: Collection[str] = (), types_filter: Collection[str] = ()
    ) -> list[GroupListing]:
        """The same as `list_consumer_groups`, as Java's admin client calls it for groups of all types."""
        return await list_groups(self.cluster, states=states_filter, types=types_filter)

    async def describe_share_groups(
        self, group_ids: Iterable[str], *, raise_errors: bool = True
    ) -> Outcomes[str, GroupDescription]:
        """State, members and assignments of share groups."""
        return await self._each(group_ids, lambda name: describe_share_group(self.cluster, name), raise_errors)

    async def list_share_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, ShareGroupOffset]:
        """Start offset and lag of a share group: for these partitions, or all. Partitions without one are left out."""
        return await share_group_offsets(self.cluster, group_id, partitions)

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, raise_errors: bool = True
    ) -> Outcomes[TopicPartition, None]:
        """Sets the start offsets of a share group without members: records from there on are delivered again."""
        return _outcomes(offsets, await alter_share_group_offsets(self.cluster, group_id, offsets), raise_errors)

    async def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str], *, raise_errors: bool = True
    ) -> Outcomes[str, None]:
        """Deletes the offsets of a share group without members in these topics."""
        asked = list(dict.fromkeys(topics))
        return _outcomes(asked, await delete_share_group_offsets(self.cluster, group_id, asked), raise_errors)

    async def delete_share_groups(self, group_ids: Iterable[str], *, raise_errors: bool = True) -> Outcomes[str, None]:
        """Deletes share groups and their offsets. A group with members is refused with NON_EMPTY_GROUP."""
        return await self._each(group_ids, lambda name: delete_group(self.cluster, name), raise_errors)

    async def describe_streams_groups(
        self, group_ids: Iterable[str], *, raise_errors: bool = True
    ) -> Outcomes[str, StreamsGroupDescription]:
        """State, topology, members and tasks of streams groups."""
        return await self._each(group_ids, lambda name: describe_streams_group(self.cluster, name), raise_errors)

    # Transactions

    async def list_transactions(
        self,
        state_filters: Collection[str] = (),
        producer_id_filters: Collection[int] = (),
        duration_filter_ms: int = -1,
        transactional_id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all brokers that pass every filter, sorted.

        `duration_filter_ms` keeps transactions that have been open for longer; -1 keeps all.
        """
        return await list_transactions(
            self.cluster,
            states=state_filters,
            producer_ids=producer_id_filters,
            duration_ms=duration_filter_ms,
            pattern=transactional_id_pattern,
        )

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, raise_errors: bool = True
    ) -> Outcomes[str, TransactionDescription]:
        """State, producer and partitions of transactional ids."""
        return await self._each(transactional_ids, lambda name: describe_transaction(self.cluster, name), raise_errors)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None, *, raise_errors: bool = True
    ) -> Outcomes[TopicPartition, tuple[ActiveProducer, ...]]:
        """The active producers of partitions, as known by the leader or by the replica on `broker_id`."""

        async def describe(partition: TopicPartition) -> tuple[ActiveProducer, ...]:
            return (await describe_producers(self.cluster, [partition], broker=broker_id)).get(partition, ())

        return await self._each(partitions, describe, raise_errors)

    async def find_hanging_transactions(
        self, partitions: Sequence[TopicPartition] | None = None, max_transaction_timeout_ms: int = 900_000
    ) -> list[OpenTransaction]:
        """The transactions that are open in these partitions, or in all, and that no coordinator will end."""
        if partitions is None:
            view = await self.cluster.retry(self.cluster.refresh)
            partitions = [
                TopicPartition(name, each.index) for name, topic in view.topics.items() for each in topic.partitions
            ]
        return await find_hanging(self.cluster, partitions, timeout_ms=max_transaction_timeout_ms)

    async def abort_transaction(self, partition: TopicPartition, start_offset: int) -> None:
        """Aborts the transaction that starts at this offset, in this partition only; for hanging transactions.

        A producer that is still running is fenced at its next request. Raises `NoOpenTransactionError` if no open
        transaction starts there.
        """
        producer = await open_transaction_at(self.cluster, partition, start_offset)
        await abort_transaction(
            self.cluster,
            partition,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=producer.coordinator_epoch or _FIRST_COORDINATOR_EPOCH,
        )

    # ACLs

    async def create_acls(self, acls: Iterable[ACL], *, raise_errors: bool = True) -> Outcomes[ACL, None]:
        """Creates ACLs; one that exists already is a success. The cluster needs an authorizer."""
        wanted = list(dict.fromkeys(acls))
        refused = await create_acls(self.cluster, wanted) if wanted else {}
        return _outcomes(wanted, refused, raise_errors)

    async def describe_acls(self, acl_filter: ACLFilter | None = None) -> list[ACL]:
        """The ACLs that a filter selects, or all."""
        return await describe_acls(self.cluster, ACLFilter() if acl_filter is None else acl_filter)

    async def delete_acls(
        self, acl_filters: Iterable[ACLFilter], *, raise_errors: bool = True
    ) -> Outcomes[ACLFilter, list[ACL]]:
        """Deletes every ACL that a filter selects; returns the deleted ones by filter."""
        wanted = list(dict.fromkeys(acl_filters))
        deleted, failed = await delete_acls(self.cluster, wanted) if wanted else ({}, {})
        outcomes = Outcomes(deleted, failed)
        return outcomes.checked() if raise_errors else outcomes

    # Users

    async def describe_user_scram_credentials(
        self, users: Collection[str] | None = None, *, raise_errors: bool = True
    ) -> Outcomes[str, tuple[ScramCredentialInfo, ...]]:
        """The SCRAM mechanisms that users have a password for; by default of all users."""
        outcomes = Outcomes(*await describe_user_scram_credentials(self.cluster, users))
        return outcomes.checked() if raise_errors else outcomes

    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
        *,
        raise_errors: bool = True,
    ) -> Outcomes[str, None]:
        """Sets and deletes the passwords of users. The broker gets a salted hash, never the password."""
        altered, refused = await alter_user_scram_credentials(self.cluster, list(alterations))
        return _outcomes([*altered, *refused], refused, raise_errors)

    # Quotas

    async def describe_client_quotas(
        self, components: Mapping[str, str | None] | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of all entities, or of those that have all these components.

        A component is `user`, `client_id` or `ip`, with a name, "" for the default entity, or None for any. With
        `strict`, entities that have other components as well are left out.
        """
        return await describe_client_quotas(self.cluster, components or {}, strict=strict)

    async def alter_client_quotas(
        self,
        alterations: Mapping[QuotaEntity, Mapping[str, float | None]],
        validate_only: bool = False,
        *,
        raise_errors: bool = True,
    ) -> Outcomes[QuotaEntity, None]:
        """Sets quotas by entity and key, such as `producer_byte_rate`; None removes one."""
        refused = await alter_client_quotas(self.cluster, alterations, validate_only=validate_only)
        return _outcomes(alterations, refused, raise_errors)

    # Delegation tokens

    async def create_delegation_token(
        self, renewers: Iterable[str] = (), max_lifetime_ms: int = -1, owner: str | None = None
    ) -> DelegationToken:
        """Creates a token for this client's principal, or for another `owner` if this client may.

        Principals have the form `User:alice`. Below 0 the lifetime is the broker's longest. Not retried.
        """
        return await create_delegation_token(self.cluster, renewers, max_lifetime_ms=max_lifetime_ms, owner=owner)

    async def renew_delegation_token(self, hmac: bytes, renew_period_ms: int = -1) -> int:
        """Renews a token, below 0 for the broker's period; returns when it expires, in milliseconds since 1970."""
        return await renew_delegation_token(self.cluster, hmac, renew_period_ms=renew_period_ms)

    async def expire_delegation_token(self, hmac: bytes, expiry_period_ms: int = -1) -> int:
        """Lets a token expire after this time, below 0 at once; returns when, in milliseconds since 1970."""
        return await expire_delegation_token(self.cluster, hmac, expiry_period_ms=expiry_period_ms)

    async def describe_delegation_token(self, owners: Iterable[str] | None = None) -> list[DelegationToken]:
        """The tokens of these owners, or of all, that this client may see."""
        return await describe_delegation_token(self.cluster, owners)

    async def _each(
        self, items: Iterable[K], request: Callable[[K], Awaitable[V]], raise_errors: bool
    ) -> Outcomes[K, V]:
        """Runs a request for each item, some at a time. `CannotConnectError` is raised if no item succeeded."""
        at_once = asyncio.Semaphore(_REQUESTS_AT_ONCE_MAX)
        found: dict[K, V] = {}
        errors: dict[K, OttlaError] = {}

        async def one(item: K) -> None:
            async with at_once:
                try:
                    found[item] = await request(item)
                except OttlaError as error:
                    errors[item] = error
                except (TypeError, ValueError, OverflowError) as error:
                    # The field of the request cannot hold the value, such as a number that is too large.
                    errors[item] = MisuseError(f"{item}: the request cannot be encoded: {error}")
                    errors[item].__cause__ = error

        asked = list(dict.fromkeys(items))
        async with asyncio.TaskGroup() as tasks:
            for item in asked:
                tasks.create_task(one(item))
        for error in errors.values():
            if isinstance(error, CannotConnectError) and not found:
                raise error
        outcomes = Outcomes(
            {item: found[item] for item in asked if item in found},
            {item: errors[item] for item in asked if item in errors},
        )
        return outcomes.checked() if raise_errors else outcomes


def admin_closed() -> MisuseError:
    """For a method called after `close`."""
    return MisuseError("the admin client is closed; create a new one")


def _outcomes(items: Iterable[K], refused: Mapping[K, OttlaError], raise_errors: bool) -> Outcomes[K, None]:
    """The outcomes of one request about several items, some of which were refused."""
    outcomes: Outcomes[K, None] = Outcomes(dict.fromkeys(each for each in items if each not in refused), refused)
    return outcomes.checked() if raise_errors else outcomes


def _or_default(timeout_ms: int | None) -> int:
    return FINISH_TIMEOUT_MS if timeout_ms is None else timeout_ms


def _resource(resource: ConfigResource) -> Resource:
    return Resource(type=resource.resource_type, name=resource.name)
