"""An ISR change that is being committed counts until a newer record of its own partition says what became of it."""

from dataclasses import replace
from pathlib import Path

from ottla.metadata.records import encode, partition_key, partition_record
from ottla.metadata.store import Put
from ottla.model.ids import BrokerId, LeaderEpoch, Offset
from tests.broker.running_broker import broker_on, make_topic, metadata_store

ME, OTHER = BrokerId(0), BrokerId(7)


async def test_the_record_of_another_partition_does_not_settle_a_proposal(tmp_path: Path) -> None:
    async def change(*indexes: int, isr: tuple[BrokerId, ...]) -> None:
        """These partitions of topic t have two replicas, and this ISR."""
        records = [
            Put(partition_key("t", index), encode(partition_record(replace(before, isr=isr)))) for index in indexes
        ]
        await broker.wait_revision(await store.commit(records))

    store = metadata_store(tmp_path)
    async with broker_on(tmp_path, store=store) as broker:
        await make_topic(broker, "t", 2)
        assert ME == broker.id
        before = replace(broker.image.topics["t"].partitions[0], replicas=(ME, OTHER), leader_epoch=LeaderEpoch(5))
        await change(0, 1, isr=(ME,))
        partition = broker.partitions.find("t", 0)
        assert partition.leader is not None
        partition.on_follower_fetch(OTHER, offset=Offset(0), start_offset=Offset(0), broker_epoch=3)
        proposal = partition.propose_isr(0.0, 10.0, {OTHER: 3})
        assert proposal is not None
        assert {ME, OTHER} == partition.leader.maximal_isr
        await change(1, isr=(ME, OTHER))
        assert proposal is partition.leader.proposal, "it may have been committed"
        assert {ME, OTHER} == partition.leader.maximal_isr
        await change(0, isr=(ME,))
        assert None is partition.leader.proposal, "its own record is newer: it was not committed"
