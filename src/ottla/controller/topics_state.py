"""Decides which topics are created and deleted. Pure; the error codes are Kafka's.

Adding partitions is in `partitions_state.py`, configs in `configs_state.py`. A topic's key guards its other keys:
adding or removing one of them expects the topic's key at the revision of the decision.
"""

from collections import ChainMap, Counter
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from ottla.controller.companions_state import (
    CompanionDrafts,
    GroupCompanions,
    beside,
    check_client_configs,
    check_group_names,
    check_no_dead_letter_cycle,
    companion_configs,
    companions_by_topic,
    dead_letter_users,
    deleted_with,
    fault_of_deletion,
    group_companions,
    needed_companions,
)
from ottla.controller.decisions import (
    ControllerDecision,
    ItemRefusedError,
    NewTopic,
    ReplicaAssignment,
    TopicDefaults,
    TopicOutcome,
    TopicReference,
)
from ottla.controller.replica_assignment import (
    NEW_PARTITIONS_MAX,
    ValidateConfigs,
    check_count,
    check_replicas,
    first_image,
    placed_replicas,
)
from ottla.controller.topic_creation import creation
from ottla.controller.topic_names import collision_key, fault_of_name
from ottla.env.ports import Random
from ottla.metadata.configs.queue_settings import queue_settings_of
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import (
    DeletedTopicRecord,
    deleted_topic_key,
    encode,
    partition_key,
    topic_configs_key,
    topic_key,
)
from ottla.metadata.store import Check, Delete, Operation, Put
from ottla.model.base64_ids import new_id
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import BrokerId

DELETIONS_REMEMBERED_MAX: Final = 2_000
"""How many deleted topics are remembered."""
RESERVED_NAMES: Final = frozenset({"__cluster_metadata"})
"""The name of Kafka's metadata log, which Kafka's tools treat specially."""


def decide_create(
    image: ClusterImage,
    requests: Sequence[NewTopic],
    *,
    defaults: TopicDefaults,
    validate_configs: ValidateConfigs,
    random: Random,
    validate_only: bool = False,
) -> ControllerDecision[TopicOutcome]:
    """Creates topics with their companions. A topic that is refused does not affect the others."""
    counts = Counter(request.name for request in requests)
    creations = _Creations(image, defaults, validate_configs, random)
    outcomes = []
    for request in requests:
        try:
            if counts[request.name] > 1:
                raise ItemRefusedError(
                    ErrorCode.INVALID_REQUEST, f"the request names topic {request.name!r} more than once"
                )
            outcomes.append(creations.add(request))
        except ItemRefusedError as refusal:
            outcomes.append(TopicOutcome(name=request.name, error=refusal.error, message=refusal.message))
    return ControllerDecision(operations=() if validate_only else tuple(creations.operations), outcomes=tuple(outcomes))


class _Creations:
    """The topics that one decision creates."""

    def __init__(
        self, image: ClusterImage, defaults: TopicDefaults, validate_configs: ValidateConfigs, random: Random
    ) -> None:
        self._image = image
        self._defaults = defaults
        self._validate_configs = validate_configs
        self._random = random
        self._names = {collision_key(name): name for name in image.topics}
        self._companions = CompanionDrafts(image, self._names, random)
        self._created: dict[str, TopicImage] = {}
        self._topics = ChainMap(self._created, dict(image.topics))
        """Those of the image, and those of this decision that are not companions."""
        self._left = NEW_PARTITIONS_MAX
        self.operations: list[Operation] = []

    def add(self, request: NewTopic) -> TopicOutcome:
        """Creates one topic with its companions. Raises ItemRefusedError; then nothing is added."""
        group = group_companions(self._topics, request.name)
        _check_new_name(self._image, request.name, self._names, group)
        return self._add_topic(request) if group is None else self._add_group(request, group)

    def _add_topic(self, request: NewTopic) -> TopicOutcome:
        name = request.name
        replicas = _replicas_of(self._image, request, self._defaults, self._random, self._left)
        configs = _configs_of(request, self._validate_configs)
        settings = queue_settings_of(configs)
        check_no_dead_letter_cycle(self._topics, name, settings)
        needed = needed_companions(name, settings)
        companions = self._companions.missing(name, needed)
        topic_id = new_id(self._random.randbytes)
        partitions = [first_image(each) for each in replicas]
        topic = TopicImage(name=name, id=topic_id, partitions=tuple(partitions), configs=configs)
        check_group_names(self._topics, topic)
        self._take(len(replicas) * (1 + len(companions)))
        self._created[name] = topic
        self._names[collision_key(name)] = name
        self.operations += creation(name, topic_id, partitions, configs)
        self.operations += self._companions.create(name, configs, companions, partitions)
        return _created(name, topic_id, partitions, configs)

    def _add_group(self, request: NewTopic, group: GroupCompanions) -> TopicOutcome:
        """Creates both companions of a consumer group, whichever of them is asked for."""
        topic = self._topics[group.topic]
        _check_group_request(request, topic)
        companions = self._companions.missing(topic.name, group.both)
        self._take(len(topic.partitions) * len(companions))
        key = topic_key(topic.name)
        partitions = [beside(self._image, each) for each in topic.partitions]
        self.operations.append(Check(key, self._image.revision_of(key)))
        self.operations += self._companions.create(topic.name, topic.configs, companions, partitions)
        kind = next(each.kind for each in group.both if each.name == request.name)
        configs = companion_configs(topic.name, kind, topic.configs)
        return _created(request.name, self._companions.ids[request.name], partitions, configs)

    def _take(self, partition_count: int) -> None:
        check_count(partition_count, self._left)
        self._left -= partition_count


def _created(
    name: str, topic_id: UUID, partitions: Sequence[PartitionImage], configs: Mapping[str, str]
) -> TopicOutcome:
    return TopicOutcome(
        name=name,
        id=topic_id,
        partition_count=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=configs,
    )


def _check_new_name(
    image: ClusterImage, name: str, names: Mapping[str, str], group: GroupCompanions | None = None
) -> None:
    fault = fault_of_name(name)
    if fault:
        if group is not None:
            fault += f": consumer group {group.group!r} cannot have companions of topic {group.topic!r}"
        raise ItemRefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    if name in RESERVED_NAMES:
        raise ItemRefusedError(ErrorCode.INVALID_REQUEST, f"the name {name!r} is reserved")
    other = names.get(collision_key(name))
    if name in image.topics or other == name:
        raise ItemRefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if other is not None:
        raise ItemRefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name!r} collides with topic {other!r}: metrics do not distinguish '.' and '_'",
        )


def _check_group_request(request: NewTopic, topic: TopicImage) -> None:
    """Refuses a companion of a consumer group that is to differ from its topic."""
    count, factor = len(topic.partitions), len(topic.partitions[0].replicas)
    if (
        request.assignments
        or request.configs
        or request.partition_count not in (-1, count)
        or request.replication_factor not in (-1, factor)
    ):
        raise ItemRefusedError(
            ErrorCode.POLICY_VIOLATION,
            f"topic {request.name!r} would be a companion of topic {topic.name!r}: create it without configs and "
            f"assignments, with {count} partition(s) and replication factor {factor}, or -1 for both",
        )


def _replicas_of(
    image: ClusterImage, request: NewTopic, defaults: TopicDefaults, random: Random, left: int
) -> list[tuple[BrokerId, ...]]:
    if request.assignments:
        if request.partition_count != -1 or request.replication_factor != -1:
            raise ItemRefusedError(
                ErrorCode.INVALID_REQUEST,
                "with an assignment of replicas, the number of partitions and the replication factor must both be -1",
            )
        check_count(len(request.assignments), left)
        return _assigned(image, request.assignments)
    partition_count = defaults.partition_count if request.partition_count == -1 else request.partition_count
    factor = defaults.replication_factor if request.replication_factor == -1 else request.replication_factor
    if partition_count < 1:
        raise ItemRefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"a topic needs at least one partition, not {partition_count}; -1 means the default",
        )
    if factor < 1:
        raise ItemRefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor must be at least 1, not {factor}; -1 means the default",
        )
    check_count(partition_count, left)
    return placed_replicas(image, partition_count=partition_count, replication_factor=factor, random=random)


def _assigned(image: ClusterImage, assignments: Sequence[ReplicaAssignment]) -> list[tuple[BrokerId, ...]]:
    by_partition = {assignment.partition: assignment.replicas for assignment in assignments}
    if len(by_partition) != len(assignments) or set(by_partition) != set(range(len(assignments))):
        raise ItemRefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the assignment has partitions {[assignment.partition for assignment in assignments]}: it must have each "
            "partition from 0 on exactly once",
        )
    replicas = [by_partition[index] for index in range(len(assignments))]
    for index, each in enumerate(replicas):
        check_replicas(image, each, index)
        if len(each) != len(replicas[0]):
            raise ItemRefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {index} has {len(each)} replica(s), partition 0 has {len(replicas[0])}: all partitions must"
                " have the same number of replicas",
            )
    return replicas


def _configs_of(request: NewTopic, validate_configs: ValidateConfigs) -> dict[str, str]:
    configs = {name: value for name, value in request.configs.items() if value is not None}
    for name in request.configs:
        if name not in configs:
            raise ItemRefusedError(
                ErrorCode.INVALID_CONFIG, f"config {name!r} has no value: omit it to use the default"
            )
    try:
        check_client_configs(configs)
        validate_configs(configs)
    except OttlaError as error:
        raise ItemRefusedError(error.code, str(error)) from error
    return configs


def decide_delete(image: ClusterImage, references: Sequence[TopicReference]) -> ControllerDecision[TopicOutcome]:
    """Deletes topics with all their partitions and configs, and with their companions except dead letters."""
    found = [_find(image, reference) for reference in references]
    counts = Counter(topic.name for topic in found if isinstance(topic, TopicImage))
    companions, users = companions_by_topic(image), dead_letter_users(image)
    deleted: dict[str, TopicImage] = {}
    operations: list[Operation] = []
    outcomes = []
    for reference, topic in zip(references, found, strict=True):
        if isinstance(topic, ItemRefusedError):
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
        elif fault := fault_of_deletion(image, topic, counts.keys(), users):
            outcomes.append(
                TopicOutcome(name=reference.name, id=reference.id, error=ErrorCode.POLICY_VIOLATION, message=fault)
            )
        else:
            outcomes.append(TopicOutcome(name=topic.name, id=topic.id))
            for each in (topic, *deleted_with(topic, companions)):
                deleted[each.name] = each
    for topic in deleted.values():
        operations += _deletion(image, topic)
    if operations:
        operations += _forgotten_deletions(image, len(deleted))
    return ControllerDecision(operations=tuple(operations), outcomes=tuple(outcomes))


def _find(image: ClusterImage, reference: TopicReference) -> TopicImage | ItemRefusedError:
    if (reference.name is None) == (reference.id is None):
        return ItemRefusedError(ErrorCode.INVALID_REQUEST, "give either the name or the id of a topic")
    if reference.id is not None:
        missing = ItemRefusedError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {reference.id}")
        return image.topics_by_id.get(reference.id, missing)
    missing = ItemRefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {reference.name!r}")
    return image.topics.get(reference.name or "", missing)


def _deletion(image: ClusterImage, topic: TopicImage) -> list[Operation]:
    operations: list[Operation] = [Delete(topic_key(topic.name), image.revision_of(topic_key(topic.name)))]
    # Not guarded: a leader may change its partition while it is deleted.
    operations += [Delete(partition_key(topic.name, index)) for index in range(len(topic.partitions))]
    configs = topic_configs_key(topic.name)
    revision = image.revision_of(configs)
    operations.append(Delete(configs, revision) if revision else Check(configs, 0))
    # Without this, a broker that is down could not tell whether the topic was deleted or the metadata was lost.
    operations.append(Put(deleted_topic_key(topic.id), encode(DeletedTopicRecord(name=topic.name))))
    return operations


def _forgotten_deletions(image: ClusterImage, added: int) -> list[Operation]:
    """Forgets the oldest deletions. A broker that missed one of them keeps the folder as a stray, which costs disk
    space but no record."""
    surplus = len(image.deleted_topics) + added - DELETIONS_REMEMBERED_MAX
    if surplus <= 0:
        return []
    keys = sorted((deleted_topic_key(each) for each in image.deleted_topics), key=image.revision_of)
    return [Delete(key) for key in keys[:surplus]]
