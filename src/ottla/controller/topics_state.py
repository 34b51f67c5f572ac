"""Decides which topics come and go. Pure; the answers' codes are Kafka's.

Adding partitions is in `partitions_state.py`, configs in `configs_state.py`. A topic's key guards its other keys:
whoever adds or removes one of them expects the topic's key at the revision that was decided on.
"""

from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from ottla.controller.assignments import (
    NEW_PARTITIONS_MAX,
    ValidateConfigs,
    check_count,
    check_replicas,
    new_partition,
    placed_replicas,
)
from ottla.controller.decisions import (
    Assignment,
    Decision,
    NewTopic,
    Refusal,
    TopicDefaults,
    TopicOutcome,
    TopicReference,
)
from ottla.controller.topic_names import collision_key, fault_of_name
from ottla.env.ports import Random
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.metadata.records import (
    ConfigsRecord,
    DeletedTopicRecord,
    TopicRecord,
    deleted_topic_key,
    encode,
    partition_key,
    topic_configs_key,
    topic_key,
)
from ottla.metadata.store import Check, Delete, Operation, Put
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import BrokerId

DELETIONS_REMEMBERED_MAX: Final = 2_000
"""Of so many topics, the last ones, it is remembered that they were deleted."""
RESERVED_NAMES: Final = frozenset({"__cluster_metadata"})
"""A log that Kafka's tools take for the cluster's own metadata."""


def decide_create(
    image: ClusterImage,
    requests: Sequence[NewTopic],
    *,
    defaults: TopicDefaults,
    validate_configs: ValidateConfigs,
    random: Random,
    validate_only: bool = False,
) -> Decision[TopicOutcome]:
    """New topics, each on its own: one that cannot be does not keep the others from being."""
    counts = Counter(request.name for request in requests)
    names = {collision_key(name): name for name in image.topics}
    operations: list[Operation] = []
    outcomes = []
    left = NEW_PARTITIONS_MAX
    for request in requests:
        try:
            if counts[request.name] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, f"the request names topic {request.name!r} more than once")
            _check_new_name(image, request.name, names)
            replicas = _replicas_of(image, request, defaults, random, left)
            configs = _configs_of(request, validate_configs)
        except Refusal as refusal:
            outcomes.append(TopicOutcome(name=request.name, error=refusal.error, message=refusal.message))
            continue
        left -= len(replicas)
        names[collision_key(request.name)] = request.name
        topic_id = new_id(random)
        outcomes.append(
            TopicOutcome(
                name=request.name,
                id=topic_id,
                partition_count=len(replicas),
                replication_factor=len(replicas[0]),
                configs=configs,
            )
        )
        operations += _creation(request.name, topic_id, replicas, configs)
    return Decision(operations=() if validate_only else tuple(operations), outcomes=tuple(outcomes))


def _check_new_name(image: ClusterImage, name: str, names: Mapping[str, str]) -> None:
    fault = fault_of_name(name)
    if fault:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    if name in RESERVED_NAMES:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"the name {name!r} is reserved")
    if name in image.topics:
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = names.get(collision_key(name))
    if other is not None:
        raise Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name!r} collides with topic {other!r}: metrics cannot tell a '.' from a '_'",
        )


def _replicas_of(
    image: ClusterImage, request: NewTopic, defaults: TopicDefaults, random: Random, left: int
) -> list[tuple[BrokerId, ...]]:
    if request.assignments:
        if request.partition_count != -1 or request.replication_factor != -1:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                "with an assignment of replicas, the number of partitions and the replication factor must both be -1",
            )
        check_count(len(request.assignments), left)
        return _assigned(image, request.assignments)
    partition_count = defaults.partition_count if request.partition_count == -1 else request.partition_count
    factor = defaults.replication_factor if request.replication_factor == -1 else request.replication_factor
    if partition_count < 1:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"a topic has at least one partition, not {partition_count}; -1 asks for the default",
        )
    if factor < 1:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a replication factor is at least 1, not {factor}; -1 asks for the default",
        )
    check_count(partition_count, left)
    return placed_replicas(image, partition_count=partition_count, replication_factor=factor, random=random)


def _assigned(image: ClusterImage, assignments: Sequence[Assignment]) -> list[tuple[BrokerId, ...]]:
    by_partition = {assignment.partition: assignment.replicas for assignment in assignments}
    if len(by_partition) != len(assignments) or set(by_partition) != set(range(len(assignments))):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the assigned partitions are {[assignment.partition for assignment in assignments]}: each number from 0 "
            "on must be there once",
        )
    replicas = [by_partition[index] for index in range(len(assignments))]
    for index, each in enumerate(replicas):
        check_replicas(image, each, index)
        if len(each) != len(replicas[0]):
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {index} has {len(each)} replica(s), partition 0 has {len(replicas[0])}: give all as many",
            )
    return replicas


def _configs_of(request: NewTopic, validate_configs: ValidateConfigs) -> dict[str, str]:
    configs = {name: value for name, value in request.configs.items() if value is not None}
    for name in request.configs:
        if name not in configs:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"config {name!r} has no value: leave it out to have the default")
    try:
        validate_configs(configs)
    except OttlaError as error:
        raise Refusal(error.code, str(error)) from error
    return configs


def _creation(
    name: str, topic_id: UUID, replicas: Sequence[tuple[BrokerId, ...]], configs: dict[str, str]
) -> list[Operation]:
    operations: list[Operation] = [Put(topic_key(name), encode(TopicRecord(id=topic_id)), 0)]
    operations += [new_partition(name, index, each) for index, each in enumerate(replicas)]
    if configs:
        operations.append(Put(topic_configs_key(name), encode(ConfigsRecord(configs=configs)), 0))
    return operations


def decide_delete(image: ClusterImage, references: Sequence[TopicReference]) -> Decision[TopicOutcome]:
    """Topics that go, with all their partitions and configs."""
    found = [_find(image, reference) for reference in references]
    counts = Counter(topic.name for topic in found if isinstance(topic, TopicImage))
    operations: list[Operation] = []
    outcomes = []
    for reference, topic in zip(references, found, strict=True):
        if isinstance(topic, Refusal):
            outcomes.append(
                TopicOutcome(name=reference.name, id=reference.id, error=topic.error, message=topic.message)
            )
        elif counts[topic.name] > 1:
            outcomes.append(
                TopicOutcome(
                    name=reference.name,
                    id=reference.id,
                    error=ErrorCode.INVALID_REQUEST,
                    message=f"the request names topic {topic.name!r} more than once",
                )
            )
        else:
            outcomes.append(TopicOutcome(name=topic.name, id=topic.id))
            operations += _deletion(image, topic)
    if operations:
        operations += _forgotten_deletions(image, len(counts))
    return Decision(operations=tuple(operations), outcomes=tuple(outcomes))


def _find(image: ClusterImage, reference: TopicReference) -> TopicImage | Refusal:
    if (reference.name is None) == (reference.id is None):
        return Refusal(ErrorCode.INVALID_REQUEST, "a topic is named by its name or by its id, one of them")
    if reference.id is not None:
        missing = Refusal(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {reference.id}")
        return image.topics_by_id.get(reference.id, missing)
    missing = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {reference.name!r}")
    return image.topics.get(reference.name or "", missing)


def _deletion(image: ClusterImage, topic: TopicImage) -> list[Operation]:
    operations: list[Operation] = [Delete(topic_key(topic.name), image.revision_of(topic_key(topic.name)))]
    # A leader may change its partition meanwhile: that keeps nobody from deleting it.
    operations += [Delete(partition_key(topic.name, index)) for index in range(len(topic.partitions))]
    configs = topic_configs_key(topic.name)
    revision = image.revision_of(configs)
    operations.append(Delete(configs, revision) if revision else Check(configs, 0))
    # Without this a broker that is down would not know whether the topic was deleted or the metadata was lost.
    operations.append(Put(deleted_topic_key(topic.id), encode(DeletedTopicRecord(name=topic.name))))
    return operations


def _forgotten_deletions(image: ClusterImage, added: int) -> list[Operation]:
    """Makes room for deletions to be remembered: the oldest ones go. A broker that missed one of them keeps the folder
    as a stray, which costs disk space and no record."""
    surplus = len(image.deleted_topics) + added - DELETIONS_REMEMBERED_MAX
    if surplus <= 0:
        return []
    keys = sorted((deleted_topic_key(each) for each in image.deleted_topics), key=image.revision_of)
    return [Delete(key) for key in keys[:surplus]]


def new_id(random: Random) -> UUID:
    """A random id whose text on the wire does not begin with a dash, which command lines would take for an option."""
    while True:
        made = UUID(bytes=random.randbytes(16), version=4)
        if not id_text(made).startswith("-"):
            return made


def id_text(value: UUID) -> str:
    """An id as Kafka writes it: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")
