"""Decides about partitions of existing topics: adding partitions, electing leaders, reassigning replicas. Pure.

A change of a partition is a compare-and-set on its own key, since its leader changes the same key when replicas fall
behind or catch up.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from ottla.controller.companions_state import companions_by_topic, following, growth, mark_of
from ottla.controller.decisions import (
    ControllerDecision,
    ItemRefusedError,
    NewPartitions,
    PartitionOutcome,
    Reassignment,
    TopicOutcome,
)
from ottla.controller.elections_state import (
    RulesOf,
    TopicRules,
    alone,
    default_rules,
    led_by,
    settled,
    updates,
    with_isr,
)
from ottla.controller.replica_assignment import (
    NEW_PARTITIONS_MAX,
    check_count,
    check_replicas,
    first_image,
    placed_replicas,
)
from ottla.env.ports import Random
from ottla.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.store import Operation
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId, TopicPartition
from ottla.model.queue_names import CompanionKind


def decide_add_partitions(
    image: ClusterImage, requests: Sequence[NewPartitions], *, random: Random, validate_only: bool = False
) -> ControllerDecision[TopicOutcome]:
    """Adds partitions to topics and their companions. Existing partitions stay where they are."""
    counts = Counter(request.topic for request in requests)
    companions = companions_by_topic(image)
    operations: list[Operation] = []
    outcomes = []
    left = NEW_PARTITIONS_MAX
    for request in requests:
        topic = image.topics.get(request.topic)
        try:
            if counts[request.topic] > 1:
                raise ItemRefusedError(
                    ErrorCode.INVALID_REQUEST, f"the request names topic {request.topic!r} more than once"
                )
            if topic is None:
                raise ItemRefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {request.topic!r}")
            _check_grows_alone(topic)
            replicas = _added_replicas(image, topic, request, random, left)
            grown = companions.get(topic.name, ())
            check_count(len(replicas) * (1 + len(grown)), left)
        except ItemRefusedError as refusal:
            outcomes.append(TopicOutcome(name=request.topic, error=refusal.error, message=refusal.message))
            continue
        left -= len(replicas) * (1 + len(grown))
        first, added = len(topic.partitions), [first_image(each) for each in replicas]
        operations += growth(image, (topic, *grown), first, added)
        outcomes.append(
            TopicOutcome(
                name=topic.name,
                id=topic.id,
                partition_count=request.partition_count,
                replication_factor=len(replicas[0]),
                configs=topic.configs,
            )
        )
    return ControllerDecision(operations=() if validate_only else tuple(operations), outcomes=tuple(outcomes))


def _check_grows_alone(topic: TopicImage) -> None:
    mark = mark_of(topic)
    if mark is not None and mark.kind is not CompanionKind.DEAD_LETTERS:
        raise ItemRefusedError(
            ErrorCode.POLICY_VIOLATION,
            f"topic {topic.name!r} is a companion of topic {mark.topic!r} and always has as many partitions;"
            f" add partitions to {mark.topic!r}",
        )


def _added_replicas(
    image: ClusterImage, topic: TopicImage, request: NewPartitions, random: Random, left: int
) -> list[tuple[BrokerId, ...]]:
    present = len(topic.partitions)
    added = request.partition_count - present
    if added <= 0:
        raise ItemRefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {present} partition(s), {request.partition_count} requested: "
            "partitions can only be added",
        )
    check_count(added, left)
    factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        return placed_replicas(
            image, partition_count=added, replication_factor=factor, random=random, existing=topic.partitions
        )
    if len(request.assignments) != added:
        raise ItemRefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{added} partition(s) to add to {topic.name!r}, but {len(request.assignments)} assignment(s)",
        )
    for index, replicas in enumerate(request.assignments, start=present):
        check_replicas(image, replicas, index)
        if len(replicas) != factor:
            raise ItemRefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {index} has {len(replicas)} replica(s), but {topic.name!r} has replication factor {factor}",
            )
    return list(request.assignments)


def decide_elect(
    image: ClusterImage,
    partitions: Iterable[TopicPartition] | None,
    *,
    rules_of: RulesOf = default_rules,
    unclean: bool = False,
) -> ControllerDecision[PartitionOutcome]:
    """Elects the preferred replicas; with `unclean`, gives leaders to partitions that have none, and records that only
    the lost replicas had are lost. None asks for all partitions; then those that need nothing are left out."""
    asked = _all_partitions(image) if partitions is None else list(partitions)
    changed: list[tuple[TopicPartition, PartitionImage]] = []
    outcomes = []
    for where in asked:
        try:
            partition = _partition(image, where, rules_of)
            elected = _elect_any(image, partition) if unclean else _elect_preferred(image, partition)
        except ItemRefusedError as refusal:
            if partitions is not None or refusal.error != ErrorCode.ELECTION_NOT_NEEDED:
                outcomes.append(
                    PartitionOutcome(
                        topic=where.topic, partition=where.partition, error=refusal.error, message=refusal.message
                    )
                )
            continue
        changed.append((where, elected))
        outcomes.append(PartitionOutcome(topic=where.topic, partition=where.partition))
    return ControllerDecision(operations=tuple(updates(image, changed)), outcomes=tuple(outcomes))


def _elect_preferred(image: ClusterImage, partition: PartitionImage) -> PartitionImage:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise ItemRefusedError(
            ErrorCode.ELECTION_NOT_NEEDED, f"broker {preferred}, the preferred replica, already leads"
        )
    if preferred not in image.brokers or preferred not in partition.isr or preferred in partition.lost:
        raise ItemRefusedError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {preferred}, the preferred replica, is not alive and in sync",
        )
    return led_by(partition, preferred)


def _elect_any(image: ClusterImage, partition: PartitionImage) -> PartitionImage:
    if partition.leader in image.brokers:
        raise ItemRefusedError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} already leads")
    alive = [broker for broker in partition.replicas if broker in image.brokers]
    whole = [broker for broker in alive if broker not in partition.lost]
    in_sync = [broker for broker in whole if broker in partition.isr]
    if in_sync:
        return led_by(partition, in_sync[0])
    if not alive:
        raise ItemRefusedError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"none of {list(partition.replicas)} is alive")
    leader = (whole or alive)[0]
    return led_by(alone(partition, leader), leader)


def decide_reassign(
    image: ClusterImage, requests: Sequence[Reassignment], *, rules_of: RulesOf = default_rules
) -> ControllerDecision[PartitionOutcome]:
    """Starts to move partitions to other replicas, or cancels such moves. A move ends in `decide_finish`, once the new
    replicas are in sync; a move that need not wait ends at once. Companions move with their topic, except those that
    the request moves itself, and those that cannot move."""
    counts = Counter(TopicPartition(request.topic, request.partition) for request in requests)
    companions = companions_by_topic(image)
    changed: list[tuple[TopicPartition, PartitionImage]] = []
    outcomes = []
    for request in requests:
        where = TopicPartition(request.topic, request.partition)
        try:
            if counts[where] > 1:
                raise ItemRefusedError(ErrorCode.INVALID_REQUEST, f"the request names partition {where} more than once")
            changed += _reassigned(image, where, request.replicas, rules_of)
        except ItemRefusedError as refusal:
            outcomes.append(
                PartitionOutcome(
                    topic=where.topic, partition=where.partition, error=refusal.error, message=refusal.message
                )
            )
            continue
        outcomes.append(PartitionOutcome(topic=where.topic, partition=where.partition))
        for companion in following(companions.get(where.topic, ())):
            beside = TopicPartition(companion.name, where.partition)
            if beside not in counts:
                with suppress(ItemRefusedError):
                    changed += _reassigned(image, beside, request.replicas, rules_of)
    return ControllerDecision(operations=tuple(updates(image, changed)), outcomes=tuple(outcomes))


def _reassigned(
    image: ClusterImage, where: TopicPartition, replicas: tuple[BrokerId, ...] | None, rules_of: RulesOf
) -> list[tuple[TopicPartition, PartitionImage]]:
    """The partition as it is moved, or its move cancelled; empty if nothing changes."""
    partition = _partition(image, where, rules_of)
    rules = rules_of(image.topics[where.topic])
    moved = (
        _taken_back(image, partition, rules)
        if replicas is None
        else _moved(image, partition, rules, where.partition, replicas)
    )
    return [(where, moved)] if moved != partition else []


def decide_finish(image: ClusterImage, *, rules_of: RulesOf = default_rules) -> ControllerDecision[PartitionOutcome]:
    """Ends the moves whose new replicas have caught up."""
    changed = []
    outcomes = []
    for where in _all_partitions(image):
        topic = image.topics[where.topic]
        partition = topic.partitions[where.partition]
        if not partition.adding and not partition.removing:
            continue
        rules = rules_of(topic)
        partition = settled(image, where, partition, rules)
        finished = _finished(image, partition, rules)
        if finished != partition:
            changed.append((where, finished))
            outcomes.append(PartitionOutcome(topic=where.topic, partition=where.partition))
    return ControllerDecision(operations=tuple(updates(image, changed)), outcomes=tuple(outcomes))


def _moved(
    image: ClusterImage, partition: PartitionImage, rules: TopicRules, index: int, target: tuple[BrokerId, ...]
) -> PartitionImage:
    check_replicas(image, target, index)
    before = tuple(broker for broker in partition.replicas if broker not in partition.adding)
    removing = tuple(broker for broker in before if broker not in target)
    adding = tuple(broker for broker in target if broker not in before)
    replicas = (*target, *removing)
    # A replica that an earlier move was adding, and this one is not, is removed without effect.
    isr = tuple(broker for broker in partition.isr if broker in replicas)
    moved = replace(partition, replicas=replicas, adding=adding, removing=removing)
    return _finished(image, with_isr(moved, isr, rules), rules)


def _finished(image: ClusterImage, partition: PartitionImage, rules: TopicRules) -> PartitionImage:
    """The completed move, or the unchanged partition while new replicas are not in sync."""
    target = tuple(broker for broker in partition.replicas if broker not in partition.removing)
    isr = tuple(broker for broker in partition.isr if broker in target)
    if not isr or not set(partition.adding) <= set(isr):
        return _with_leader_of_isr(image, partition)
    finished = replace(partition, replicas=target, adding=(), removing=())
    return _with_leader_of_isr(image, with_isr(finished, isr, rules))


def _taken_back(image: ClusterImage, partition: PartitionImage, rules: TopicRules) -> PartitionImage:
    if not partition.adding and not partition.removing:
        raise ItemRefusedError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment of the partition is in progress")
    replicas = tuple(broker for broker in partition.replicas if broker not in partition.adding)
    isr = tuple(broker for broker in partition.isr if broker in replicas)
    if not isr:
        raise ItemRefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"none of the original replicas {list(replicas)} is in sync: cancelling would lose records",
        )
    before = replace(partition, replicas=replicas, adding=(), removing=())
    return _with_leader_of_isr(image, with_isr(before, isr, rules))


def _with_leader_of_isr(image: ClusterImage, partition: PartitionImage) -> PartitionImage:
    """The partition with another leader, if its leader is no longer in sync."""
    if partition.leader == NO_LEADER or partition.leader in partition.isr:
        return partition
    members = set(partition.isr).difference(partition.lost)
    candidates = [broker for broker in partition.replicas if broker in members and broker in image.brokers]
    return led_by(partition, candidates[0] if candidates else NO_LEADER)


def _partition(image: ClusterImage, where: TopicPartition, rules_of: RulesOf) -> PartitionImage:
    topic = image.topics.get(where.topic)
    if topic is None or not 0 <= where.partition < len(topic.partitions):
        raise ItemRefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {where}")
    return settled(image, where, topic.partitions[where.partition], rules_of(topic))


def _all_partitions(image: ClusterImage) -> list[TopicPartition]:
    return [
        TopicPartition(name, index) for name, topic in image.topics.items() for index in range(len(topic.partitions))
    ]
