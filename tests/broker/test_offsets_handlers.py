"""ListOffsets and OffsetForLeaderEpoch: bounds for different eyes, times, epochs, and requests that make no sense."""

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import LeaderEpoch, Offset
from ottla.protocol.apis import ApiKey
from ottla.replication.partition import Partition
from tests.broker.inside import append, elect_again
from tests.broker.running_broker import ask, make_topic, running
from tests.unit.storage.rig import batch

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
COMMITTED = 1


async def look_up(broker: Broker, timestamp: int, **changes: Any) -> tuple[int, int, int, int]:
    """(error, offset, timestamp, leader epoch) for partition 0 of topic t."""
    part = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": changes.pop("epoch", -1)}
    version = changes.pop("version", None)
    request = {"replica_id": -1, "topics": [{"name": "t", "partitions": [part]}], **changes}
    answer = await ask(broker, ApiKey.LIST_OFFSETS, request, version)
    ((found,),) = (topic.partitions for topic in answer.topics)
    return found.error_code.value, found.offset, found.timestamp, found.leader_epoch


def lead_in_epoch(partition: Partition, epoch: int) -> None:
    """Makes a partition believe that it was elected anew."""
    elect_again(partition, LeaderEpoch(epoch))


async def filled(broker: Broker) -> Partition:
    """Offsets 0 to 4, the last three of an open transaction, all committed; offset 5 is not yet."""
    await make_topic(broker, "t")
    partition = broker.partitions.find("t", 0)
    append(partition, batch(b"a", timestamp=100), batch(b"b", timestamp=300))
    append(partition, batch(b"c", b"d", b"e", timestamp=200, producer_id=7, sequence=0, transactional=True))
    append(partition, batch(b"f", timestamp=400), committed=False)
    return partition


class TestListOffsets:
    async def test_the_end_depends_on_who_asks(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            await filled(broker)
            assert (0, 5, -1, 0) == await look_up(broker, LATEST)
            assert (0, 2, -1, 0) == await look_up(broker, LATEST, isolation_level=COMMITTED)
            assert (0, 6, -1, 0) == await look_up(broker, LATEST, replica_id=2, isolation_level=COMMITTED)

    async def test_the_start(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            partition = await filled(broker)
            assert (0, 0, -1, 0) == await look_up(broker, EARLIEST)
            partition.delete_records(Offset(1))
            assert (0, 1, -1, 0) == await look_up(broker, EARLIEST)
            assert (0, 1, -1, 0) == await look_up(broker, EARLIEST_LOCAL)
            assert (0, -1, -1, -1) == await look_up(broker, LATEST_TIERED)

    async def test_nothing_was_written_yet(self, tmp_path: Path) -> None:
        """The next record's epoch is known before there is one."""
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            for timestamp in (EARLIEST, LATEST, EARLIEST_LOCAL):
                assert (0, 0, -1, 0) == await look_up(broker, timestamp)
            for timestamp in (0, MAX_TIMESTAMP):
                assert (0, -1, -1, -1) == await look_up(broker, timestamp)

    async def test_times(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            await filled(broker)
            assert (0, 0, 100, 0) == await look_up(broker, 0)
            assert (0, 1, 300, 0) == await look_up(broker, 101)
            assert (0, 1, 300, 0) == await look_up(broker, 300)

    async def test_what_the_asker_may_not_see_is_not_found(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            partition = await filled(broker)
            nothing = (0, -1, -1, -1)
            assert nothing == await look_up(broker, 301)
            assert (0, 5, 400, 0) == await look_up(broker, 301, replica_id=2)
            assert nothing == await look_up(broker, MAX_TIMESTAMP)
            partition.on_flushed(partition.end_offset)
            assert (0, 5, 400, 0) == await look_up(broker, MAX_TIMESTAMP)
            assert nothing == await look_up(broker, MAX_TIMESTAMP, isolation_level=COMMITTED)
            assert nothing == await look_up(broker, 401)

    async def test_epochs(self, tmp_path: Path) -> None:
        """A record has the epoch that it was written in, the end of the log the one that is now."""
        async with running(tmp_path) as broker:
            partition = await filled(broker)
            lead_in_epoch(partition, 3)
            append(partition, batch(b"g", timestamp=500))
            assert (0, 6, 500, 3) == await look_up(broker, 450)
            assert (0, 0, 100, 0) == await look_up(broker, 50)
            assert (0, 7, -1, 3) == await look_up(broker, LATEST)
            partition.delete_records(Offset(7))
            assert (0, 7, -1, 3) == await look_up(broker, EARLIEST)
            assert (ErrorCode.FENCED_LEADER_EPOCH, -1, -1, -1) == await look_up(broker, LATEST, epoch=2)
            assert (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1, -1) == await look_up(broker, LATEST, epoch=4)
            assert (0, 7, -1, 3) == await look_up(broker, LATEST, epoch=3)

    @pytest.mark.parametrize(
        ("timestamp", "version", "expected"),
        [
            (-3, 6, 35),
            (-3, 7, 0),
            (-4, 7, 35),
            (-4, 8, 0),
            (-5, 8, 35),
            (-5, 9, 0),
            (-6, 10, 35),
            (-6, 11, 0),
            (-7, 11, 35),
        ],
    )
    async def test_timestamps_that_came_with_a_version(
        self, tmp_path: Path, timestamp: int, version: int, expected: int
    ) -> None:
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            assert expected == (await look_up(broker, timestamp, version=version))[0]

    async def test_requests_that_make_no_sense(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            await make_topic(broker, "t", 2)
            assert ErrorCode.INVALID_REQUEST == (await look_up(broker, LATEST, isolation_level=2))[0]
            parts = [{"partition_index": index, "timestamp": LATEST} for index in (0, 1, 0, 9)]
            topics = [{"name": "t", "partitions": parts}, {"name": "t", "partitions": parts[:1]}]
            answer = await ask(broker, ApiKey.LIST_OFFSETS, {"replica_id": -1, "topics": topics})
            assert [[(0, 42), (1, 0), (9, 3)], []] == [
                [(found.partition_index, found.error_code.value) for found in topic.partitions]
                for topic in answer.topics
            ]


class TestOffsetForLeaderEpoch:
    async def test_where_epochs_end(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            partition = broker.partitions.find("t", 0)
            append(partition, batch(b"a", b"b"))
            lead_in_epoch(partition, 2)
            append(partition, batch(b"c"))
            lead_in_epoch(partition, 5)
            expected = {
                -1: (0, -1, -1),
                0: (0, 0, 2),
                1: (0, 0, 2),
                2: (0, 2, 3),
                3: (0, 2, 3),
                5: (0, 5, 3),
                6: (0, -1, -1),
            }
            assert expected == {epoch: await epoch_end(broker, epoch) for epoch in expected}

    async def test_the_asker_s_own_epoch(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            partition = broker.partitions.find("t", 0)
            lead_in_epoch(partition, 5)
            assert (ErrorCode.FENCED_LEADER_EPOCH, -1, -1) == await epoch_end(broker, 0, current=4)
            assert (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1) == await epoch_end(broker, 0, current=6)
            assert (0, 5, 0) == await epoch_end(broker, 5, current=5)
            assert (0, 4, 0) == await epoch_end(broker, 4, current=5)
            assert (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1) == await epoch_end(broker, 0, index=1)


async def epoch_end(broker: Broker, epoch: int, *, current: int = -1, index: int = 0) -> tuple[int, int, int]:
    """(error, epoch, end offset) for a partition of topic t."""
    part = {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
    request = {"topics": [{"topic": "t", "partitions": [part]}]}
    answer = await ask(broker, ApiKey.OFFSET_FOR_LEADER_EPOCH, request)
    ((found,),) = (topic.partitions for topic in answer.topics)
    return found.error_code.value, found.leader_epoch, found.end_offset
