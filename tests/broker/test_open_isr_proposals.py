"""An ISR change that is being committed counts until a newer record of its own partition says what became of it."""

from dataclasses import replace
from pathlib import Path

from ottla.metadata.changes import apply
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import encode, partition_key, partition_record
from ottla.metadata.store import Change
from ottla.model.ids import BrokerId, LeaderEpoch, Offset
from tests.broker.running_broker import make_topic, running

ME, OTHER = BrokerId(0), BrokerId(7)


def changed(image: ClusterImage, *indexes: int, isr: tuple[BrokerId, ...]) -> ClusterImage:
    """The next image: these partitions of topic t have two replicas, and this ISR."""
    changes = []
    for index in indexes:
        before = image.topics["t"].partitions[index]
        after = replace(before, replicas=(ME, OTHER), isr=isr, leader_epoch=LeaderEpoch(5))
        changes.append(Change(image.revision + 1, partition_key("t", index), encode(partition_record(after))))
    return apply(image, changes)


async def test_the_record_of_another_partition_does_not_settle_a_proposal(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await make_topic(broker, "t", 2)
        assignment, me = broker.parts.assignment, broker.parts.services.broker_id
        assert ME == me
        image = changed(broker.image, 0, 1, isr=(ME,))
        await assignment.apply(image)
        partition = broker.partitions.find("t", 0)
        assert partition.leader is not None
        partition.on_follower_fetch(OTHER, offset=Offset(0), start_offset=Offset(0), broker_epoch=3)
        proposal = partition.propose_isr(0.0, 10.0, {OTHER: 3})
        assert proposal is not None
        assert {ME, OTHER} == partition.leader.maximal_isr
        image = changed(image, 1, isr=(ME, OTHER))
        await assignment.apply(image)
        assert proposal is partition.leader.proposal, "it may have been committed"
        assert {ME, OTHER} == partition.leader.maximal_isr
        await assignment.apply(changed(image, 0, isr=(ME,)))
        assert None is partition.leader.proposal, "its own record is newer: it was not committed"
