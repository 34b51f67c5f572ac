"""Decides about partitions of topics that exist: more of them, who leads them, where their replicas are. Pure.

A change of a partition is a compare-and-set on its own key, since its leader changes the same key when replicas fall
behind or catch up.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ottla.controller.assignments import NEW_PARTITIONS_MAX, check_count, check_replicas, new_partition, placed_replicas
from ottla.controller.decisions import (
    Decision,
    NewPartitions,
    PartitionOutcome,
    Reassignment,
    Refusal,
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
from ottla.env.ports import Random
from ottla.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import TopicRecord, encode, topic_key
from ottla.metadata.store import Operation, Put
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId, TopicPartition


def decide_add_partitions(
    image: ClusterImage, requests: Sequence[NewPartitions], *, random: Random, validate_only: bool = False
) -> Decision[TopicOutcome]:
    """More partitions for topics; never fewer, and those that exist stay where they are."""
    counts = Counter(request.topic for request in requests)
    operations: list[Operation] = []
    outcomes = []
    left = NEW_PARTITIONS_MAX
    for request in requests:
        topic = image.topics.get(request.topic)
        try:
            if counts[request.topic] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, f"the request names topic {request.topic!r} more than once")
            if topic is None:
                raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {request.topic!r}")
            replicas = _added_replicas(image, topic, request, random, left)
        except Refusal as refusal:
            outcomes.append(TopicOutcome(name=request.topic, error=refusal.error, message=refusal.message))
            continue
        left -= len(replicas)
        key = topic_key(topic.name)
        operations.append(Put(key, encode(TopicRecord(id=topic.id)), image.revision_of(key)))
        first = len(topic.partitions)
        operations += [new_partition(topic.name, first + index, each) for index, each in enumerate(replicas)]
        outcomes.append(
            TopicOutcome(
                name=topic.name,
                id=topic.id,
                partition_count=request.partition_count,
                replication_factor=len(replicas[0]),
                configs=topic.configs,
            )
        )
    return Decision(operations=() if validate_only else tuple(operations), outcomes=tuple(outcomes))


def _added_replicas(
    image: ClusterImage, topic: TopicImage, request: NewPartitions, random: Random, left: int
) -> list[tuple[BrokerId, ...]]:
    present = len(topic.partitions)
    added = request.partition_count - present
    if added <= 0:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {present} partition(s) already, and {request.partition_count} are not more: "
            "partitions can only be added",
        )
    check_count(added, left)
    factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        return placed_replicas(
            image, partition_count=added, replication_factor=factor, random=random, existing=topic.partitions
        )
    if len(request.assignments) != added:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{added} partition(s) are to be added to {topic.name!r}, but {len(request.assignments)} are assigned",
        )
    for index, replicas in enumerate(request.assignments, start=present):
        check_replicas(image, replicas, index)
        if len(replicas) != factor:
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {index} is assigned {len(replicas)} replica(s), but those of {topic.name!r} have {factor}",
            )
    return list(request.assignments)


def decide_elect(
    image: ClusterImage,
    partitions: Iterable[TopicPartition] | None,
    *,
    rules_of: RulesOf = default_rules,
    unclean: bool = False,
) -> Decision[PartitionOutcome]:
    """Makes preferred replicas leaders again; with `unclean`, gives leaders to partitions that have none, at the price
    of what only the lost replicas had. None asks for all partitions, and then those that need nothing are left out."""
    asked = _all_partitions(image) if partitions is None else list(partitions)
    changed: list[tuple[TopicPartition, PartitionImage]] = []
    outcomes = []
    for where in asked:
        try:
            partition = _partition(image, where, rules_of)
            elected = _elect_any(image, partition) if unclean else _elect_preferred(image, partition)
        except Refusal as refusal:
            if partitions is not None or refusal.error != ErrorCode.ELECTION_NOT_NEEDED:
                outcomes.append(
                    PartitionOutcome(
                        topic=where.topic, partition=where.partition, error=refusal.error, message=refusal.message
                    )
                )
            continue
        changed.append((where, elected))
        outcomes.append(PartitionOutcome(topic=where.topic, partition=where.partition))
    return Decision(operations=tuple(updates(image, changed)), outcomes=tuple(outcomes))


def _elect_preferred(image: ClusterImage, partition: PartitionImage) -> PartitionImage:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise Refusal(ErrorCode.ELECTION_NOT_NEEDED, f"broker {preferred} leads, and is the preferred one")
    if preferred not in image.brokers or preferred not in partition.isr or preferred in partition.lost:
        raise Refusal(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {preferred} would be preferred, but is not alive and in sync",
        )
    return led_by(partition, preferred)


def _elect_any(image: ClusterImage, partition: PartitionImage) -> PartitionImage:
    if partition.leader in image.brokers:
        raise Refusal(ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads")
    alive = [broker for broker in partition.replicas if broker in image.brokers]
    whole = [broker for broker in alive if broker not in partition.lost]
    in_sync = [broker for broker in whole if broker in partition.isr]
    if in_sync:
        return led_by(partition, in_sync[0])
    if not alive:
        raise Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"none of {list(partition.replicas)} is alive")
    leader = (whole or alive)[0]
    return led_by(alone(partition, leader), leader)


def decide_reassign(
    image: ClusterImage, requests: Sequence[Reassignment], *, rules_of: RulesOf = default_rules
) -> Decision[PartitionOutcome]:
    """Begins to move partitions to other replicas, or takes such moves back. A move ends by `decide_finish`, once the
    new replicas are in sync; one that waits for nobody ends at once."""
    counts = Counter(TopicPartition(request.topic, request.partition) for request in requests)
    changed: list[tuple[TopicPartition, PartitionImage]] = []
    outcomes = []
    for request in requests:
        where = TopicPartition(request.topic, request.partition)
        try:
            if counts[where] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, f"the request names partition {where} more than once")
            partition = _partition(image, where, rules_of)
            rules = rules_of(image.topics[where.topic])
            moved = (
                _taken_back(image, partition, rules)
                if request.replicas is None
                else _moved(image, partition, rules, request.partition, request.replicas)
            )
        except Refusal as refusal:
            outcomes.append(
                PartitionOutcome(
                    topic=where.topic, partition=where.partition, error=refusal.error, message=refusal.message
                )
            )
            continue
        if moved != partition:
            changed.append((where, moved))
        outcomes.append(PartitionOutcome(topic=where.topic, partition=where.partition))
    return Decision(operations=tuple(updates(image, changed)), outcomes=tuple(outcomes))


def decide_finish(image: ClusterImage, *, rules_of: RulesOf = default_rules) -> Decision[PartitionOutcome]:
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
    return Decision(operations=tuple(updates(image, changed)), outcomes=tuple(outcomes))


def _moved(
    image: ClusterImage, partition: PartitionImage, rules: TopicRules, index: int, target: tuple[BrokerId, ...]
) -> PartitionImage:
    check_replicas(image, target, index)
    before = tuple(broker for broker in partition.replicas if broker not in partition.adding)
    removing = tuple(broker for broker in before if broker not in target)
    adding = tuple(broker for broker in target if broker not in before)
    replicas = (*target, *removing)
    # One that an earlier move was adding, and this one is not, goes without having mattered.
    isr = tuple(broker for broker in partition.isr if broker in replicas)
    moved = replace(partition, replicas=replicas, adding=adding, removing=removing)
    return _finished(image, with_isr(moved, isr, rules), rules)


def _finished(image: ClusterImage, partition: PartitionImage, rules: TopicRules) -> PartitionImage:
    """The move at its end, or unchanged while it waits for somebody."""
    target = tuple(broker for broker in partition.replicas if broker not in partition.removing)
    isr = tuple(broker for broker in partition.isr if broker in target)
    if not isr or not set(partition.adding) <= set(isr):
        return _with_leader_of_isr(image, partition)
    finished = replace(partition, replicas=target, adding=(), removing=())
    return _with_leader_of_isr(image, with_isr(finished, isr, rules))


def _taken_back(image: ClusterImage, partition: PartitionImage, rules: TopicRules) -> PartitionImage:
    if not partition.adding and not partition.removing:
        raise Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being moved")
    replicas = tuple(broker for broker in partition.replicas if broker not in partition.adding)
    isr = tuple(broker for broker in partition.isr if broker in replicas)
    if not isr:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"none of the replicas before the move, {list(replicas)}, is in sync: to take it back would lose records",
        )
    before = replace(partition, replicas=replicas, adding=(), removing=())
    return _with_leader_of_isr(image, with_isr(before, isr, rules))


def _with_leader_of_isr(image: ClusterImage, partition: PartitionImage) -> PartitionImage:
    """The same with another leader, where its leader is no longer among those in sync."""
    if partition.leader == NO_LEADER or partition.leader in partition.isr:
        return partition
    members = set(partition.isr).difference(partition.lost)
    candidates = [broker for broker in partition.replicas if broker in members and broker in image.brokers]
    return led_by(partition, candidates[0] if candidates else NO_LEADER)


def _partition(image: ClusterImage, where: TopicPartition, rules_of: RulesOf) -> PartitionImage:
    topic = image.topics.get(where.topic)
    if topic is None or not 0 <= where.partition < len(topic.partitions):
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {where}")
    return settled(image, where, topic.partitions[where.partition], rules_of(topic))


def _all_partitions(image: ClusterImage) -> list[TopicPartition]:
    return [
        TopicPartition(name, index) for name, topic in image.topics.items() for index in range(len(topic.partitions))
    ]
