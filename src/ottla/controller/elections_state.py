"""Elects leaders and updates ISRs after brokers have come and gone. Pure.

Each partition record, and each broker's registration, was written at some revision of the store. A member of the ISR is
*present* if it has been registered since before the record was written; *returned* if it registered later, so that it
may have lost what it had not flushed; *gone* if it is not registered. The rules:

- While any member of the ISR is present, or has returned with an intact disk, the others leave the ISR; they come back
  by catching up. A member that returned intact counts as much as a present one: a machine without power seems present
  until its session ends, and nothing is committed without a member of the ISR, so that it has everything.
- An ISR below min.insync.replicas commits nothing, so that a replica that leaves such an ISR still has all committed
  records. It is *eligible*: it may lead when no member of the ISR can, until the ISR is large enough again.
- If no member can lead, the ISR stays. A member that returns and lost something leaves it, and is not eligible, as long
  as another replica that has everything may still come back.
- The last member leads even if it may have lost an unflushed tail: no other replica has more.
- A broker reports a log that is missing or ends early (`decide_losses`), and is in `lost` until the leader takes it
  back into the ISR. It leaves the ISR while another member is left, and is never elected. If all members have lost
  their log, the partition has no leader: a replica outside the ISR may have most of the records, and an empty log must
  not replace them. The folder is restored, or an operator requests an unclean election.
- If the topic allows it, any live replica that has not lost its log leads rather than none.

A partition's record is written with a check of the registrations that the decision depends on: if a broker came back in
between, the commit fails and the decision is repeated.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ottla.controller.decisions import ControllerDecision, PartitionOutcome
from ottla.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import broker_key, encode, partition_key, partition_record
from ottla.metadata.store import Check, Operation, Put
from ottla.model.ids import BrokerId, LeaderEpoch, TopicPartition
from ottla.model.min_isr import effective_min_isr

MayTake = Callable[[TopicPartition, BrokerId], bool]
"""Whether a broker is known to be alive; its registration may outlive it by the session timeout."""
IsSound = Callable[[TopicPartition], bool]
"""Whether a log that cannot be written still has all its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    """A topic's configs about elections."""

    min_in_sync: int = 1
    allows_unclean: bool = False
    keeps_eligible: bool = True
    """Whether replicas that leave a small ISR stay eligible: from eligible.leader.replicas.version 1 on."""


RulesOf = Callable[[TopicImage], TopicRules]


def default_rules(topic: TopicImage) -> TopicRules:
    """For topics without own configs."""
    return TopicRules()


def any_registered(where: TopicPartition, broker: BrokerId) -> bool:
    """Trusts every registration."""
    return True


def never_sound(where: TopicPartition) -> bool:
    """Trusts no log."""
    return False


def is_present(image: ClusterImage, broker: BrokerId, revision: int) -> bool:
    """Whether a broker has been registered since before the record of this revision was written."""
    return broker in image.brokers and image.revision_of(broker_key(broker)) < revision


def _has_everything(image: ClusterImage, broker: BrokerId, revision: int) -> bool:
    """Whether a member of the ISR still has everything it had when the record was written, as far as known."""
    return broker in image.brokers and (image.brokers[broker].is_intact or is_present(image, broker, revision))


def with_isr(
    partition: PartitionImage, isr: tuple[BrokerId, ...], rules: TopicRules, *, lost: Collection[BrokerId] = ()
) -> PartitionImage:
    """The partition with another ISR; if that is small, all others that have all committed records become eligible.

    Replicas that `lost` something are never eligible.
    """
    is_small = len(isr) < effective_min_isr(rules.min_in_sync, len(partition.replicas))
    is_kept = is_small and rules.keeps_eligible
    whole = {*partition.isr, *partition.eligible}.difference(isr, lost) if is_kept else ()
    return replace(
        partition,
        isr=isr,
        eligible=tuple(broker for broker in partition.replicas if broker in whole),
        lost=tuple(broker for broker in partition.replicas if broker in partition.lost),
    )


def settled(image: ClusterImage, where: TopicPartition, partition: PartitionImage, rules: TopicRules) -> PartitionImage:
    """The partition without the members of its ISR that may lack records; the leader is unchanged."""
    revision = image.revision_of(partition_key(*where))
    partition = _without_lost(partition, rules)
    if not partition.lost or set(partition.lost).isdisjoint(partition.isr):
        return _without_unsure(image, partition, rules, revision)
    return partition


def _without_lost(partition: PartitionImage, rules: TopicRules) -> PartitionImage:
    """The partition with an ISR of members that have not lost their log; unchanged if all of them have."""
    whole = (*partition.isr, *partition.eligible)
    kept = tuple(broker for broker in whole if broker not in partition.lost)
    if not kept or len(kept) == len(whole):
        return partition
    return with_isr(partition, _among(partition.isr, kept) or kept, rules, lost=partition.lost)


def _without_unsure(image: ClusterImage, partition: PartitionImage, rules: TopicRules, revision: int) -> PartitionImage:
    whole = (*partition.isr, *partition.eligible)
    sure = tuple(broker for broker in whole if _has_everything(image, broker, revision))
    lost = {broker for broker in whole if broker in image.brokers and broker not in sure}
    kept = tuple(broker for broker in whole if broker not in lost)
    if not kept:
        return partition
    isr = _among(partition.isr, sure) or sure or _among(partition.isr, kept) or kept
    return with_isr(partition, isr, rules, lost=lost) if lost or isr != partition.isr else partition


def _among(brokers: tuple[BrokerId, ...], others: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    return tuple(broker for broker in brokers if broker in others)


def elected(image: ClusterImage, where: TopicPartition, partition: PartitionImage, rules: TopicRules) -> PartitionImage:
    """The settled partition with a leader, if there can be one."""
    revision = image.revision_of(partition_key(*where))
    now = settled(image, where, partition, rules)
    if now.leader in now.isr and now.leader not in now.lost and is_present(image, now.leader, revision):
        return now
    alive = [broker for broker in now.replicas if broker in image.brokers and broker not in now.lost]
    in_sync = [broker for broker in alive if broker in now.isr]
    if in_sync:
        leader = in_sync[0]
        if not _has_everything(image, leader, revision):
            # A replica that lost something leads only if no other can come back.
            now = alone(now, leader)
        return led_by(now, leader)
    if set(now.replicas) <= set(now.lost):
        alive = [broker for broker in now.replicas if broker in image.brokers]
    if rules.allows_unclean and alive:
        return led_by(alone(now, alive[0]), alive[0])
    return now if now.leader == NO_LEADER else led_by(now, NO_LEADER)


def decide_elections(
    image: ClusterImage, topics: Iterable[TopicImage], *, rules_of: RulesOf = default_rules, limit: int
) -> ControllerDecision[PartitionOutcome]:
    """The required leaders and ISRs, for at most this many partitions; call again until there is nothing to do."""
    changed: list[tuple[TopicPartition, PartitionImage]] = []
    for topic in topics:
        rules: TopicRules | None = None
        for index, partition in enumerate(topic.partitions):
            if _is_quiet(image, topic, index, partition):
                continue
            rules = rules_of(topic) if rules is None else rules
            where = TopicPartition(topic.name, index)
            now = elected(image, where, partition, rules)
            if now != partition:
                changed.append((where, now))
                if len(changed) == limit:
                    return _decision(image, changed)
    return _decision(image, changed)


def decide_leave(
    image: ClusterImage,
    broker: BrokerId,
    *,
    limit: int,
    rules_of: RulesOf = default_rules,
    may_take: MayTake = any_registered,
) -> ControllerDecision[PartitionOutcome]:
    """Moves leadership away from a broker that is about to stop, and removes it from the ISRs that have other members.

    If it is the last one in sync, or no other member may take over, nothing changes.
    """
    changed: list[tuple[TopicPartition, PartitionImage]] = []
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if broker not in partition.isr or len(partition.isr) == 1:
                continue
            where = TopicPartition(topic.name, index)
            rules = rules_of(topic)
            now = settled(image, where, partition, rules)
            others = tuple(each for each in now.isr if each != broker)
            alive = _takers(image, where, now, broker, may_take)
            if not alive:
                continue
            now = with_isr(now, others, rules)
            changed.append((where, led_by(now, alive[0]) if now.leader == broker else now))
            if len(changed) == limit:
                return _decision(image, changed)
    return _decision(image, changed)


def decide_withdraw(
    image: ClusterImage,
    broker: BrokerId,
    partitions: Iterable[TopicPartition],
    *,
    rules_of: RulesOf = default_rules,
    may_take: MayTake = any_registered,
    is_sound: IsSound = never_sound,
) -> ControllerDecision[PartitionOutcome]:
    """Removes a broker from the ISRs of partitions whose log is damaged or cannot be written.

    Each gets a new leader epoch, even if the broker was not in sync: what a leader knew about the copy in an earlier
    epoch is no longer valid, so that no leader takes the broker back into the ISR for its old log. Partitions in which
    no other in-sync replica may take over stay as they are, and have no outcome. A broker whose log `is_sound` has all
    committed records, and is eligible if the ISR becomes too small: the replica that takes over may be a machine that
    has just lost power.
    """
    changed: list[tuple[TopicPartition, PartitionImage]] = []
    for where in partitions:
        topic = image.topics.get(where.topic)
        if topic is None or where.partition >= len(topic.partitions):
            continue
        rules = rules_of(topic)
        now = settled(image, where, topic.partitions[where.partition], rules)
        takers = _takers(image, where, now, broker, may_take) if broker in now.replicas else []
        if takers:
            others = tuple(each for each in now.isr if each != broker)
            now = with_isr(now, others, rules, lost=() if is_sound(where) else (broker,))
            changed.append((where, led_by(now, now.leader if now.leader in takers else takers[0])))
    return _decision(image, changed)


def decide_losses(
    image: ClusterImage,
    broker: BrokerId,
    lost: Iterable[TopicPartition],
    found: Iterable[TopicPartition] = (),
    *,
    rules_of: RulesOf = default_rules,
) -> ControllerDecision[PartitionOutcome]:
    """Records that a broker has lost its logs of some partitions, and that it has `found` others again.

    It leaves the ISR of lost partitions while another member is left, and no longer leads them. Partitions whose record
    does not change have no outcome.
    """
    changed: list[tuple[TopicPartition, PartitionImage]] = []
    found = set(found)
    for where in (*lost, *found):
        topic = image.topics.get(where.topic)
        if topic is None or where.partition >= len(topic.partitions):
            continue
        partition = topic.partitions[where.partition]
        members = {*partition.lost, broker}.difference((broker,) if where in found else ())
        now = replace(partition, lost=tuple(each for each in partition.replicas if each in members))
        # Elects at once: the new record would vouch for members that returned since the old one was written.
        now = elected(image, where, now, rules_of(topic))
        if now != partition:
            changed.append((where, now))
    return _decision(image, changed)


def _takers(
    image: ClusterImage, where: TopicPartition, partition: PartitionImage, broker: BrokerId, may_take: MayTake
) -> list[BrokerId]:
    """The other in-sync replicas that may lead, the preferred one first."""
    members = set(partition.isr).difference(partition.lost, (broker,))
    others = [each for each in partition.replicas if each in members]
    return [each for each in others if each in image.brokers and may_take(where, each)]


def _is_quiet(image: ClusterImage, topic: TopicImage, index: int, partition: PartitionImage) -> bool:
    """Whether all of the ISR and the eligible replicas are present and one of them leads: true for nearly all
    partitions."""
    if partition.leader not in partition.isr or not set(partition.lost).isdisjoint(partition.isr):
        return False
    if partition.replicas == (partition.leader,) and partition.leader in image.brokers:
        # No other broker can lead it, whenever this broker was registered.
        return True
    revision = image.revision_of(partition_key(topic.name, index))
    return all(is_present(image, broker, revision) for broker in partition.isr) and all(
        broker not in image.brokers or _has_everything(image, broker, revision) for broker in partition.eligible
    )


def alone(partition: PartitionImage, broker: BrokerId) -> PartitionImage:
    """The partition as one broker has it, regardless of the others."""
    lost = tuple(each for each in partition.lost if each != broker)
    return replace(partition, isr=(broker,), eligible=(), lost=lost)


def led_by(partition: PartitionImage, leader: BrokerId) -> PartitionImage:
    """The same partition in a new leader epoch."""
    return replace(partition, leader=leader, leader_epoch=LeaderEpoch(partition.leader_epoch + 1))


def updates(image: ClusterImage, changed: Sequence[tuple[TopicPartition, PartitionImage]]) -> list[Operation]:
    """The operations that write these partitions, if neither they nor the brokers they depend on have changed."""
    operations: list[Operation] = []
    trusted: set[BrokerId] = set()
    for where, partition in changed:
        key = partition_key(*where)
        written = replace(partition, partition_epoch=partition.partition_epoch + 1)
        operations.append(Put(key, encode(partition_record(written)), image.revision_of(key)))
        trusted.update(partition.isr, partition.eligible)
    checks = [Check(broker_key(each), image.revision_of(broker_key(each))) for each in sorted(trusted)]
    return [*checks, *operations]


def _decision(
    image: ClusterImage, changed: Sequence[tuple[TopicPartition, PartitionImage]]
) -> ControllerDecision[PartitionOutcome]:
    return ControllerDecision(
        operations=tuple(updates(image, changed)) if changed else (),
        outcomes=tuple(PartitionOutcome(topic=where.topic, partition=where.partition) for where, _ in changed),
    )
