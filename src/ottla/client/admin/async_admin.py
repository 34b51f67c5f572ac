"""The admin client for asyncio: everything that a cluster can be asked or told, as methods.

A thin coat: each method checks, asks through the functions of `admin_requests.py`, `config_requests.py`,
`partition_moves.py` and `offsets.py`, and answers with their values. What concerns groups and transactions is in
`group_administration.py` and `transaction_administration.py`; `blocking_admin.py` has the same without an event loop.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from types import TracebackType
from typing import Self, Unpack

from ottla.client.admin.config_requests import (
    ConfigEntry,
    Resource,
    ResourceType,
    alter_configs,
    describe_configs,
    list_config_resources,
)
from ottla.client.admin.group_methods import GroupAdministration
from ottla.client.admin.methods import several
from ottla.client.admin.options import AdminConfig, AdminOptions
from ottla.client.admin.partition_moves import (
    ElectionType,
    PartitionReassignment,
    alter_reassignments,
    elect_leaders,
    list_reassignments,
)
from ottla.client.admin.topic_requests import (
    FINISH_TIMEOUT_MS,
    ClusterDescription,
    CreatedTopic,
    LogDir,
    add_partitions,
    create_topic,
    delete_records_of,
    delete_topic,
    describe_cluster,
    describe_log_dirs,
)
from ottla.client.admin.transaction_methods import TransactionAdministration
from ottla.client.admin.values import ConfigResource, NewPartitions, NewTopic, Outcomes
from ottla.client.errors import answer_error
from ottla.client.network.cluster_view import TopicView
from ottla.client.network.list_offsets import END, MAX_TIMESTAMP, START, list_offsets
from ottla.client.options import configured
from ottla.client.values import OffsetAndTimestamp
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError, OttlaError
from ottla.model.ids import TopicPartition
from ottla.protocol.fetch_frames import READ_COMMITTED, READ_UNCOMMITTED


class OffsetSpec(IntEnum):
    """What `list_offsets` can look for besides a time in milliseconds."""

    EARLIEST = START
    """The first offset that is still there."""
    LATEST = END
    """The offset after the last record that a consumer may see."""
    MAX_TIMESTAMP = MAX_TIMESTAMP
    """The record with the largest timestamp."""


class AsyncAdmin(GroupAdministration, TransactionAdministration):
    """Administers a cluster. An async context manager; nothing connects before the first question.

    What may be tried again is, for `request_timeout_ms`. Methods that take several wishes answer `Outcomes`; if some
    fail they raise, unless told `raise_errors=False`: the others are done all the same.
    """

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        self.config = configured(AdminConfig, "Admin", options)
        super().__init__(self.config.cluster())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # The cluster

    async def describe_cluster(self) -> ClusterDescription:
        """The brokers and the controller."""
        return await describe_cluster(self.cluster)

    async def describe_log_dirs(
        self,
        brokers: Collection[int] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        raise_errors: bool = True,
    ) -> Outcomes[int, list[LogDir]]:
        """By broker, the folders with the replicas in them: of these brokers and partitions, or of all."""
        if brokers is None:
            brokers = sorted((await self.cluster.retry(lambda: self.cluster.refresh([]))).brokers)
        asked = None if partitions is None else list(partitions)
        return await self._each(brokers, lambda at: describe_log_dirs(self.cluster, at, asked), raise_errors)

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
        """Creates topics, or only says whether they could be. In a cluster other brokers hear of them a moment later;
        `wait_for_metadata` returns when they can be used."""

        async def create(wish: NewTopic) -> CreatedTopic:
            return await create_topic(
                self.cluster,
                wish.name,
                partitions=wish.num_partitions,
                replication_factor=wish.replication_factor,
                configs=wish.topic_configs,
                assignments=wish.replica_assignments,
                validate_only=validate_only,
                timeout_ms=_span(timeout_ms),
            )

        wishes = _once(list(new_topics))
        done = await self._each(list(wishes), lambda name: create(wishes[name]), raise_errors=False)
        if wait_for_metadata and not validate_only:
            await self.wait_for_topics(list(done), timeout_ms=_span(timeout_ms))
        return done.checked() if raise_errors else done

    async def wait_for_topics(self, topics: Collection[str], timeout_ms: int = FINISH_TIMEOUT_MS) -> None:
        """Returns once every partition of these topics has a leader; raises what is missing if that takes too long."""

        async def look() -> None:
            view = await self.cluster.refresh(topics)
            for name in topics:
                if name not in view.topics:
                    raise answer_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
                if any(each.leader is None for each in view.topics[name].partitions):
                    raise answer_error(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name}")

        if several(topics):
            await self.cluster.retry(look, timeout_ms=timeout_ms)

    async def delete_topics(
        self, topics: Iterable[str], timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> Outcomes[str, None]:
        """Deletes topics with all their records."""
        return await self._each(
            topics, lambda name: delete_topic(self.cluster, name, timeout_ms=_span(timeout_ms)), raise_errors
        )

    async def create_partitions(
        self,
        topic_partitions: Mapping[str, NewPartitions | int],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        *,
        raise_errors: bool = True,
    ) -> Outcomes[str, None]:
        """Lets topics have more partitions: by name, how many in all. Keys may go to other partitions from then on."""

        async def grow(name: str) -> None:
            wish = topic_partitions[name]
            wish = NewPartitions(wish) if isinstance(wish, int) else wish
            await add_partitions(
                self.cluster,
                name,
                wish.total_count,
                assignments=wish.new_assignments,
                validate_only=validate_only,
                timeout_ms=_span(timeout_ms),
            )

        return await self._each(topic_partitions, grow, raise_errors)

    async def list_topics(self) -> list[str]:
        """The names of all topics, internal ones too, sorted."""
        return sorted((await self.cluster.retry(self.cluster.refresh)).topics)

    async def describe_topics(
        self, topics: Collection[str] | None = None, *, raise_errors: bool = True
    ) -> Outcomes[str, TopicView]:
        """Partitions, leaders and replicas of these topics, or of all."""
        if topics is not None:
            several(topics)
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
        """By resource, its configs by name: those that the resource names, or all."""

        async def describe(resource: ConfigResource) -> dict[str, ConfigEntry]:
            entries = await describe_configs(
                self.cluster, _resource(resource), resource.names, documentation=include_documentation
            )
            return {entry.name: entry for entry in entries}

        return await self._each(config_resources, describe, raise_errors)

    async def alter_configs(
        self, config_resources: Iterable[ConfigResource], validate_only: bool = False, *, raise_errors: bool = True
    ) -> Outcomes[ConfigResource, None]:
        """Changes the configs that the resources name, and no others; None takes an override away."""

        async def alter(resource: ConfigResource) -> None:
            await alter_configs(self.cluster, _resource(resource), resource.changes, validate_only=validate_only)

        return await self._each(config_resources, alter, raise_errors)

    async def list_config_resources(self, resource_types: Collection[ResourceType] = ()) -> list[ConfigResource]:
        """What has configs of its own, of these types or of all that the broker knows."""
        return [
            ConfigResource(each.type, each.name) for each in await list_config_resources(self.cluster, resource_types)
        ]

    # Records and offsets

    async def delete_records(
        self, records_to_delete: Mapping[TopicPartition, int], *, raise_errors: bool = True
    ) -> Outcomes[TopicPartition, int]:
        """Deletes what is below these offsets, -1 for all there is; answers where each partition now begins."""
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
        """For each partition the first offset at or after a time in ms, or what an `OffsetSpec` says.

        Offset and timestamp are -1 if there is no such record. With `read_committed`, open transactions hide what
        comes after them.
        """
        missing = await self._missing(topic_partitions)
        isolation = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        there = {each: int(spec) for each, spec in topic_partitions.items() if each not in missing}
        answers = await list_offsets(self.cluster, there, isolation_level=isolation) if there else {}
        found = {each: OffsetAndTimestamp(answers[each].offset, answers[each].timestamp) for each in there}
        outcomes = Outcomes(found, missing)
        return outcomes.checked() if raise_errors else outcomes

    async def _missing(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OttlaError]:
        """The partitions that there are not: nobody need wait for them."""
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
        """Elects leaders of these partitions, or of all that need it."""
        elected, refused = await elect_leaders(
            self.cluster, election_type, topic_partitions, timeout_ms=_span(timeout_ms)
        )
        outcomes: Outcomes[TopicPartition, None] = Outcomes(dict.fromkeys(elected), refused)
        return outcomes.checked() if raise_errors else outcomes

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        timeout_ms: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> Outcomes[TopicPartition, None]:
        """Begins to move partitions to these brokers, the preferred leader first; None takes a move back."""
        refused = await alter_reassignments(self.cluster, reassignments, timeout_ms=_span(timeout_ms))
        outcomes: Outcomes[TopicPartition, None] = Outcomes(
            dict.fromkeys(each for each in reassignments if each not in refused), refused
        )
        return outcomes.checked() if raise_errors else outcomes

    async def list_partition_reassignments(
        self, topic_partitions: Iterable[TopicPartition] | None = None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The moves that are under way, of these partitions or of all."""
        return await list_reassignments(self.cluster, topic_partitions, timeout_ms=_span(timeout_ms))


def _span(timeout_ms: int | None) -> int:
    return FINISH_TIMEOUT_MS if timeout_ms is None else timeout_ms


def _resource(wish: ConfigResource) -> Resource:
    return Resource(type=wish.resource_type, name=wish.name)


def _once(wishes: list[NewTopic]) -> dict[str, NewTopic]:
    by_name = {each.name: each for each in wishes}
    if len(by_name) < len(wishes):
        raise MisuseError("the same topic is to be created twice; name each once")
    return by_name
