"""Transaction markers where partitions come and go: only what the cluster does not have needs none."""

from pathlib import Path
from typing import Any

from ottla.broker.broker import Broker
from ottla.coordination.transactions.marker_writer import MarkerOutcomes, MarkerWriter
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import UnknownPartitionError
from ottla.model.ids import ProducerEpoch, ProducerId, TopicPartition
from ottla.records.layout import Marker
from ottla.replication.partition import TransactionEnd
from tests.broker.running_broker import make_topic, running

PLACE = TopicPartition("t", 0)
END = TransactionEnd(
    marker=Marker.ABORT,
    producer_id=ProducerId(1),
    producer_epoch=ProducerEpoch(0),
    coordinator_epoch=0,
    must_exceed_epoch=False,
)


async def ask_nobody(*request: object) -> Any:
    raise AssertionError(f"another broker is asked: {request}")


def marker_writer(broker: Broker) -> MarkerWriter:
    """One for partitions of this broker that no group has offsets in."""
    return MarkerWriter(
        broker.id,
        broker.partitions,
        image=lambda: broker.image,
        offsets_shard=lambda index: None,
        ask_peer=ask_nobody,
    )


async def test_a_partition_is_gone_only_if_the_cluster_does_not_have_it(tmp_path: Path) -> None:
    """One whose leader has just given it away must get its marker from the next: else the next transaction of the
    producer would decide about these records, too."""
    async with running(tmp_path) as broker:
        await make_topic(broker, "t", flush_messages="1")
        told: list[MarkerOutcomes] = []
        marker_writer(broker).write(END, [PLACE], told.append)
        assert [] == told
        broker.partitions.find(*PLACE).fail_waiting(UnknownPartitionError("t-0 is not here any more"))
        assert [{PLACE: ErrorCode.NOT_LEADER_OR_FOLLOWER}] == told


async def test_what_the_cluster_does_not_have_needs_no_marker(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await make_topic(broker, "t")
        told: list[MarkerOutcomes] = []
        names = [TopicPartition("gone", 0), TopicPartition("t", 7)]
        marker_writer(broker).write(END, names, told.append)
        assert [dict.fromkeys(names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)] == told
