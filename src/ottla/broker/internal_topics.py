"""The internal topics of the coordinators: the configs they are created with, and their creation.

When one is created, and which of its partitions an id belongs to, is in `coordination/runtime/internal_topic.py`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from ottla.broker.configs.configuration import BrokerConfig
from ottla.controller.controller import Controller
from ottla.controller.decisions import NewTopic
from ottla.coordination.groups.coordinator import TOPIC as OFFSETS_TOPIC
from ottla.coordination.runtime.internal_topic import InternalTopic
from ottla.coordination.share_state.coordinator import TOPIC as SHARE_STATE_TOPIC
from ottla.coordination.transactions.coordinator import TOPIC as TRANSACTIONS_TOPIC
from ottla.metadata.image import ClusterImage
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CoordinatorNotAvailableError, TopicRefusedError
from ottla.model.min_isr import effective_min_isr

_NEVER_CREATED: Final = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""Why the controller refuses a topic, whatever the brokers do."""

CreateTopic = Callable[[NewTopic], Awaitable[None]]
"""Returns once the topic is in the image; raises CoordinatorNotAvailableError, or TopicRefusedError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopics:
    """One topic for each kind of coordinator."""

    offsets: InternalTopic
    share_state: InternalTopic
    transactions: InternalTopic


def build_internal_topics(
    config: Callable[[], BrokerConfig], image: Callable[[], ClusterImage], create_topic: CreateTopic
) -> InternalTopics:
    """The topics, each created with the configs of the moment when it is first needed."""

    def topic(name: str, definition: Callable[[BrokerConfig, int], NewTopic]) -> InternalTopic:
        def create() -> Awaitable[None]:
            return create_topic(definition(config(), max(len(image().brokers), 1)))

        return InternalTopic(name, image=image, create=create)

    return InternalTopics(
        offsets=topic(OFFSETS_TOPIC, _offsets_topic),
        share_state=topic(SHARE_STATE_TOPIC, _share_state_topic),
        transactions=topic(TRANSACTIONS_TOPIC, _transactions_topic),
    )


async def create_internal_topic(
    controller: Controller, wait_revision: Callable[[int], Awaitable[None]], topic: NewTopic
) -> None:
    """Creates a topic unless it exists; `wait_revision` returns once the image has a revision.

    Raises TopicRefusedError if it can never be created, and CoordinatorNotAvailableError if it may be later.
    """
    committed = await controller.create_topics([topic])
    outcome = committed.outcomes[0]
    if outcome.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        kind = TopicRefusedError if outcome.error in _NEVER_CREATED else CoordinatorNotAvailableError
        raise kind(f"topic {topic.name} cannot be created: {outcome.message}")
    await wait_revision(committed.revision)


def _offsets_topic(config: BrokerConfig, broker_count: int) -> NewTopic:
    return NewTopic(
        name=OFFSETS_TOPIC,
        partition_count=config.offsets_topic_num_partitions,
        replication_factor=min(config.offsets_topic_replication_factor, broker_count),
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


def _share_state_topic(config: BrokerConfig, broker_count: int) -> NewTopic:
    def whole(name: str) -> int:
        return int(str(config.values[f"share.coordinator.state.topic.{name}"]))

    replicas = min(whole("replication.factor"), broker_count)
    return NewTopic(
        name=SHARE_STATE_TOPIC,
        partition_count=whole("num.partitions"),
        replication_factor=replicas,
        configs={
            # Updates only mean something together with the snapshot before them, so that the topic cannot be compacted.
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(effective_min_isr(whole("min.isr"), replicas)),
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "segment.bytes": str(whole("segment.bytes")),
        },
    )


def _transactions_topic(config: BrokerConfig, broker_count: int) -> NewTopic:
    replicas = min(config.transaction_state_log_replication_factor, broker_count)
    return NewTopic(
        name=TRANSACTIONS_TOPIC,
        partition_count=config.transaction_state_log_num_partitions,
        replication_factor=replicas,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(effective_min_isr(config.transaction_state_log_min_isr, replicas)),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )
