"""Who leads, and who is in sync, after brokers have come and gone. Pure.

A record of a partition was written at some revision of the store, and so was each broker's registration. A member of
the ISR is *present* if it has been registered since before the record was written; *returned* if it registered after
it, and so may have lost what it had not flushed; *gone* if it is not registered. The rules:

- while anybody of the ISR is present, or has returned with an intact disk, the others go out of it: they come back by
  catching up. Who returned intact counts as much as who is present: a machine without power seems present until its
  session ends, and nothing is committed without a member of the ISR, so that it has everything;
- an ISR below min.insync.replicas commits nothing, so who leaves one that is or becomes so small goes on having all
  that is committed. It is *eligible*: it may lead when nobody of the ISR can, until the ISR is large enough again;
- when nobody is left to lead, the ISR stays. One who returns and lost something goes out of it, and is not eligible, as
  long as another one may still come back who has everything;
- the last one, if it may have lost an unflushed tail, leads all the same: nobody has more;
- a replica whose log is missing or ends early says so itself (`decide_losses`) and is in `lost` until the leader takes
  it back into the ISR. It leaves the ISR while another member is left, and is never elected. If all members have lost
  their log, the partition has no leader: a replica outside of the ISR may hold most of the records, and an empty log
  must not replace them. The folder comes back, or an operator asks for an unclean election;
- where the topic allows it, any live replica that has not lost its log leads rather than none.

Whoever writes a partition's record does so from this view, and with a check of the registrations that it rests on: a
broker that came back in between spoils the commit, and the decision is made again.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ottla.controller.decisions import Decision, PartitionOutcome
from ottla.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import broker_key, encode, partition_key, partition_record
from ottla.metadata.store import Check, Operation, Put
from ottla.model.ids import BrokerId, LeaderEpoch, TopicPartition
from ottla.model.min_isr import effective_min_isr

MayTake = Callable[[TopicPartition, BrokerId], bool]
"""Whether a broker is known to be alive, beyond having a registration that may outlive it by a session's timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    """What a topic's configs say about who may lead."""

    min_in_sync: int = 1
    allows_unclean: bool = False


RulesOf = Callable[[TopicImage], TopicRules]


def default_rules(topic: TopicImage) -> TopicRules:
    """Of topics whose configs say nothing."""
    return TopicRules()


def anybody(where: TopicPartition, broker: BrokerId) -> bool:
    """Trusts every registration."""
    return True


def is_present(image: ClusterImage, broker: BrokerId, revision: int) -> bool:
    """Whether a broker has been registered since before a record of this revision was written."""
    return broker in image.brokers and image.revision_of(broker_key(broker)) < revision


def _has_everything(image: ClusterImage, broker: BrokerId, revision: int) -> bool:
    """Whether a member of the ISR has all that it had when the record was written, as far as anybody knows."""
    return broker in image.brokers and (image.brokers[broker].is_intact or is_present(image, broker, revision))


def with_isr(
    partition: PartitionImage, isr: tuple[BrokerId, ...], rules: TopicRules, *, lost: Collection[BrokerId] = ()
) -> PartitionImage:
    """The partition with another ISR, and eligible whoever else has all that is committed, if it is a small one.

    Those who `lost` something are not eligible, whatever they were.
    """
    is_small = len(isr) < effective_min_isr(rules.min_in_sync, len(partition.replicas))
    whole = {*partition.isr, *partition.eligible}.difference(isr, lost) if is_small else ()
    return replace(
        partition,
        isr=isr,
        eligible=tuple(broker for broker in partition.replicas if broker in whole),
        lost=tuple(broker for broker in partition.replicas if broker in partition.lost),
    )


def settled(image: ClusterImage, where: TopicPartition, partition: PartitionImage, rules: TopicRules) -> PartitionImage:
    """The partition without those of its ISR who are no longer sure to have everything; the leader is not touched."""
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
            # One that lost something leads only if nobody else can come back.
            now = alone(now, leader)
        return led_by(now, leader)
    if set(now.replicas) <= set(now.lost):
        alive = [broker for broker in now.replicas if broker in image.brokers]
    if rules.allows_unclean and alive:
        return led_by(alone(now, alive[0]), alive[0])
    return now if now.leader == NO_LEADER else led_by(now, NO_LEADER)


def decide_elections(
    image: ClusterImage, topics: Iterable[TopicImage], *, rules_of: RulesOf = default_rules, limit: int
) -> Decision[PartitionOutcome]:
    """Leaders and ISRs as they have to be now, for at most so many partitions; call again until nothing is to do."""
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
    may_take: MayTake = anybody,
) -> Decision[PartitionOutcome]:
    """Moves the leaders of a broker that is about to stop, and takes it out of the ISRs where others are.

    Where it is the last one in sync, or nobody else there may take over, it stays what it is.
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
    may_take: MayTake = anybody,
) -> Decision[PartitionOutcome]:
    """Takes a broker out of the ISRs of partitions whose log it cannot answer for, and which it may begin anew.

    Each gets a new leader epoch, also where the broker was not in sync: what a leader knew of the copy in an earlier
    epoch counts no more, so that nobody can take the broker back in for what it had. Partitions where nobody else in
    sync may take over are left as they are, and have no outcome.
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
            now = with_isr(now, others, rules, lost=(broker,))
            changed.append((where, led_by(now, now.leader if now.leader in takers else takers[0])))
    return _decision(image, changed)


def decide_losses(
    image: ClusterImage,
    broker: BrokerId,
    lost: Iterable[TopicPartition],
    found: Iterable[TopicPartition] = (),
    *,
    rules_of: RulesOf = default_rules,
) -> Decision[PartitionOutcome]:
    """Notes that a broker has lost its logs of some partitions, and `found` those of others again.

    It leaves the ISR of those that it lost while another member is left, and leads them no longer. Partitions whose
    record does not change have no outcome.
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
        # Elected at once: the new record would vouch for members that returned since the old one was written.
        now = elected(image, where, now, rules_of(topic))
        if now != partition:
            changed.append((where, now))
    return _decision(image, changed)


def _takers(
    image: ClusterImage, where: TopicPartition, partition: PartitionImage, broker: BrokerId, may_take: MayTake
) -> list[BrokerId]:
    """Who of the others in sync may lead, the preferred one first."""
    members = set(partition.isr).difference(partition.lost, (broker,))
    others = [each for each in partition.replicas if each in members]
    return [each for each in others if each in image.brokers and may_take(where, each)]


def _is_quiet(image: ClusterImage, topic: TopicImage, index: int, partition: PartitionImage) -> bool:
    """Whether everybody of the ISR is present, one of them leads, and the eligible are: so it is with nearly all."""
    if partition.leader not in partition.isr or not set(partition.lost).isdisjoint(partition.isr):
        return False
    if partition.replicas == (partition.leader,) and partition.leader in image.brokers:
        # Nobody else can lead it, in whichever life of the broker.
        return True
    revision = image.revision_of(partition_key(topic.name, index))
    return all(is_present(image, broker, revision) for broker in partition.isr) and all(
        broker not in image.brokers or _has_everything(image, broker, revision) for broker in partition.eligible
    )


def alone(partition: PartitionImage, broker: BrokerId) -> PartitionImage:
    """The partition as one broker has it, whatever the others have."""
    lost = tuple(each for each in partition.lost if each != broker)
    return replace(partition, isr=(broker,), eligible=(), lost=lost)


def led_by(partition: PartitionImage, leader: BrokerId) -> PartitionImage:
    """The same in a new leader epoch."""
    return replace(partition, leader=leader, leader_epoch=LeaderEpoch(partition.leader_epoch + 1))


def updates(image: ClusterImage, changed: Sequence[tuple[TopicPartition, PartitionImage]]) -> list[Operation]:
    """What writes these partitions, if neither they nor the brokers that they rest on have changed since the image."""
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
) -> Decision[PartitionOutcome]:
    return Decision(
        operations=tuple(updates(image, changed)) if changed else (),
        outcomes=tuple(PartitionOutcome(topic=where.topic, partition=where.partition) for where, _ in changed),
    )
