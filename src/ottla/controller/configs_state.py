"""Decides changes of configs, producer ids and start counts of brokers. Pure.

The caller has checked the configs. A whole map replaces another, so that `expected` guards against overwriting a map
that has changed since it was read.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ottla.controller.companions_state import (
    CompanionDrafts,
    beside,
    changed_configs,
    check_group_names,
    check_no_dead_letter_cycle,
    companions_by_topic,
    followed_configs,
    needed_companions,
    recovered_companions,
)
from ottla.controller.decisions import ControllerDecision, ItemRefusedError
from ottla.controller.replica_assignment import NEW_PARTITIONS_MAX, check_count
from ottla.controller.topic_names import collision_key
from ottla.env.ports import Random
from ottla.metadata.configs.queue_settings import queue_settings_of
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.metadata.records import (
    PRODUCER_IDS_KEY,
    ConfigsRecord,
    ProducerIdsRecord,
    StartsRecord,
    broker_configs_key,
    client_metrics_key,
    encode,
    group_configs_key,
    starts_key,
    topic_configs_key,
    topic_key,
)
from ottla.metadata.store import Check, ConflictError, Delete, Operation, Put
from ottla.model.errors import InvalidConfigError, InvalidRequestError, StorageError, UnknownTopicError
from ottla.model.ids import BrokerId

PRODUCER_IDS_PER_BLOCK: Final = 1000
_PRODUCER_ID_MAX: Final = 2**63 - 1


def decide_topic_configs(
    image: ClusterImage,
    name: str,
    configs: Mapping[str, str],
    expected: int | None = None,
    *,
    random: Random,
    validate_only: bool = False,
) -> ControllerDecision[None]:
    """Replaces a topic's own configs; its companions follow, and those that it needs are created.

    Raises UnknownTopicError, InvalidConfigError if a companion cannot be created or does not allow this, and
    ConflictError if the present configs are not at revision `expected`, if given.
    """
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopicError(f"there is no topic {name!r}")
    wanted = changed_configs(image, topic, configs)
    guard = Check(topic_key(name), image.revision_of(topic_key(name)))
    decision = _decide(image, topic_configs_key(name), topic.configs, wanted, expected, guard)
    if not decision.operations:
        return decision
    followed = followed_configs(image, name, wanted, companions_by_topic(image).get(name, ()))
    created = _needed_companions(image, topic, wanted, random)
    if validate_only:
        return ControllerDecision()
    return ControllerDecision(operations=(*decision.operations, *followed, *created))


def _needed_companions(
    image: ClusterImage, topic: TopicImage, configs: Mapping[str, str], random: Random
) -> list[Operation]:
    settings = queue_settings_of(configs)
    if settings is None:
        return []
    drafts = CompanionDrafts(image, {collision_key(name): name for name in image.topics}, random)
    partitions = [beside(image, each) for each in topic.partitions]
    try:
        check_no_dead_letter_cycle(image.topics, topic.name, settings)
        recovered = recovered_companions(image, topic.name, configs)
        check_group_names(image.topics, replace(topic, configs=configs), recovered)
        needed = [each for each in needed_companions(topic.name, settings) if each not in recovered]
        missing = drafts.missing(topic.name, needed)
        check_count(len(missing) * len(partitions), NEW_PARTITIONS_MAX)
    except ItemRefusedError as refusal:
        raise InvalidConfigError(refusal.message) from refusal
    return drafts.create(topic.name, configs, [*recovered, *missing], partitions)


def decide_broker_configs(
    image: ClusterImage, broker: str, configs: Mapping[str, str], expected: int | None = None
) -> ControllerDecision[None]:
    """Replaces the dynamic configs of a broker, or with "" of all brokers; `expected` as for a topic."""
    if broker and not (broker.isascii() and broker.isdigit()):
        raise InvalidRequestError(f"{broker!r} is not a broker id: use a number, or an empty name for all brokers")
    return _decide(image, broker_configs_key(broker), image.broker_configs.get(broker, {}), configs, expected)


def decide_group_configs(
    image: ClusterImage, group_id: str, configs: Mapping[str, str], expected: int | None = None
) -> ControllerDecision[None]:
    """Replaces the configs of a group, which need not exist; `expected` as for a topic."""
    return _decide(image, group_configs_key(group_id), image.group_configs.get(group_id, {}), configs, expected)


def decide_client_metrics(
    image: ClusterImage, name: str, configs: Mapping[str, str], expected: int | None = None
) -> ControllerDecision[None]:
    """Replaces the configs of a client metrics subscription; without any it is removed. `expected` as for a topic."""
    return _decide(image, client_metrics_key(name), image.client_metrics.get(name, {}), configs, expected)


def _decide(
    image: ClusterImage,
    key: str,
    present: Mapping[str, str],
    wanted: Mapping[str, str],
    expected: int | None,
    *guards: Check,
) -> ControllerDecision[None]:
    revision = image.revision_of(key)
    if expected is not None and expected != revision:
        raise ConflictError(
            f"{key!r} is at revision {revision}, not at {expected}: it was changed in the meantime; read it again and "
            "retry"
        )
    if dict(present) == dict(wanted):
        return ControllerDecision()
    change: Operation = Put(key, encode(ConfigsRecord(configs=dict(wanted))), revision)
    if not wanted:
        change = Delete(key, revision)
    return ControllerDecision(operations=(*guards, change))


def decide_start(image: ClusterImage, broker: BrokerId, count: int) -> ControllerDecision[int]:
    """Records how often a broker has started."""
    key = starts_key(broker)
    return ControllerDecision(
        operations=(Put(key, encode(StartsRecord(count=count)), image.revision_of(key)),), outcomes=(count,)
    )


def decide_producer_ids(image: ClusterImage) -> ControllerDecision[range]:
    """The next block of producer ids."""
    first = image.next_producer_id
    if first > _PRODUCER_ID_MAX - PRODUCER_IDS_PER_BLOCK:
        raise StorageError(f"no producer ids are left after {first}: the value under {PRODUCER_IDS_KEY!r} is damaged")
    block = range(first, first + PRODUCER_IDS_PER_BLOCK)
    value = encode(ProducerIdsRecord(next_id=block.stop))
    return ControllerDecision(
        operations=(Put(PRODUCER_IDS_KEY, value, image.revision_of(PRODUCER_IDS_KEY)),), outcomes=(block,)
    )
