"""One partition: gathered appends, what each kind of acks waits for, a failing disk, and fetches that wait."""

import asyncio
import errno
import os

import pytest

from ottla.model.errors import (
    FencedLeaderEpochError,
    InvalidProducerEpochError,
    InvalidRecordError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    StorageError,
    UnknownLeaderEpochError,
    UnknownPartitionError,
)
from ottla.model.ids import BrokerId, Offset, ProducerEpoch, ProducerId
from ottla.records.control import MARKER_BYTES
from ottla.records.layout import Marker
from ottla.replication.partition import GATHERED_BYTES_MAX, TransactionEnd
from ottla.replication.partition_state import ALL_REPLICAS
from ottla.sim.disk import Moment, SimDisk
from ottla.storage.log_config import LogConfig
from tests.unit.replication.rig import EPOCH, FLUSH_EACH, ME, Noted, PartitionRig
from tests.unit.storage.rig import batch, values
from tests.waiting import until

pytestmark = pytest.mark.both_loops


class TestGathering:
    async def test_one_write_for_all_of_a_turn(self) -> None:
        rig = await PartitionRig.make()
        noted = Noted()
        for at in range(10):
            rig.partition.append_soon(batch(b"%d" % at), 1, noted, at)
        assert ({}, 0) == (noted.outcomes, rig.count("write"))
        rig.turn.finish()
        assert {at: at for at in range(10)} == noted.offsets()
        assert 1 == rig.count("write")
        assert [b"%d" % at for at in range(10)] == values(rig.partition.log)
        assert (10, rig.partition.log.size_bytes) == (
            rig.partition.appended_records,
            rig.partition.appended_bytes,
        )
        assert 10 == rig.partition.high_watermark

    async def test_the_loop_ends_the_turn_by_itself(self) -> None:
        rig = await PartitionRig.make()
        noted = Noted()
        rig.partition.append_soon(batch(b"v"), 1, noted, 0)
        await asyncio.sleep(0)
        assert {0: 0} == noted.offsets()

    async def test_much_is_written_before_the_turn_ends(self) -> None:
        rig = await PartitionRig.make()
        noted = Noted()
        rig.partition.append_soon(batch(b"x"), 1, noted, 0)
        rig.partition.append_soon(batch(b"x" * GATHERED_BYTES_MAX), 1, noted, 1)
        assert {0: 0, 1: 1} == noted.offsets()
        rig.partition.append_soon(batch(b"y"), 1, noted, 2)
        rig.turn.finish()
        assert {0: 0, 1: 1, 2: 2} == noted.offsets()
        assert 2 == rig.count("write")

    async def test_a_refused_batch_does_not_affect_the_others(self) -> None:
        rig = await PartitionRig.make()
        noted = Noted()
        rig.partition.append_soon(batch(b"a"), ALL_REPLICAS, noted, 0)
        rig.partition.append_soon(batch(b"no", control=True, producer_id=4, transactional=True), 1, noted, 1)
        rig.partition.append_soon(batch(b"b"), 0, noted, 2)
        rig.turn.finish()
        assert {0: 0, 1: InvalidRecordError, 2: 1} == noted.offsets()
        assert [0, 1, 2] == sorted(noted.told)

    async def test_a_repeated_batch_is_answered_with_its_first_offset(self) -> None:
        rig = await PartitionRig.make()
        noted = Noted()
        for at in range(3):
            rig.partition.append_soon(batch(b"once", producer_id=9, sequence=0), ALL_REPLICAS, noted, at)
        rig.turn.finish()
        assert {0: 0, 1: 0, 2: 0} == noted.offsets()
        assert (1, 1) == (rig.partition.end_offset, rig.partition.appended_records)
        assert rig.partition.log.size_bytes == rig.partition.appended_bytes

    async def test_batches_carry_the_leader_epoch(self) -> None:
        rig = await PartitionRig.make()
        rig.partition.append_soon(batch(b"a"), 1, Noted(), 0)
        rig.turn.finish()
        assert EPOCH == rig.partition.log.epochs.latest


class TestAcknowledgement:
    async def test_too_few_in_sync_refuse_acks_all_only(self) -> None:
        rig = await PartitionRig.make(min_insync_replicas=2, replicas=(ME, 2))
        noted = Noted()
        with pytest.raises(NotEnoughReplicasError, match=r"min\.insync\.replicas=2"):
            rig.partition.append_soon(batch(b"all"), ALL_REPLICAS, noted, 0)
        rig.partition.append_soon(batch(b"one"), 1, noted, 1)
        rig.partition.append_soon(batch(b"none"), 0, noted, 2)
        rig.turn.finish()
        assert {1: 0, 2: 1} == noted.offsets()

    async def test_a_batch_behind_one_that_too_few_replicas_refused_is_refused_like_it(self) -> None:
        rig = await PartitionRig.make(replicas=(ME, 2))
        one, two, three = (batch(producer_id=7, sequence=sequence) for sequence in range(3))
        noted = Noted()
        rig.partition.append_soon(one, ALL_REPLICAS, noted, 1)
        rig.partition.on_min_insync_replicas(2)
        with pytest.raises(NotEnoughReplicasError):
            rig.partition.append_soon(two, ALL_REPLICAS, noted, 2)
        rig.partition.on_min_insync_replicas(1)
        rig.partition.append_soon(three, ALL_REPLICAS, noted, 3)
        rig.turn.finish()
        assert NotEnoughReplicasError == noted.offsets()[3]
        for at, again in enumerate((two, three), 4):
            rig.partition.append_soon(again, ALL_REPLICAS, noted, at)
        rig.turn.finish()
        assert (1, 2) == (noted.offsets()[4], noted.offsets()[5])

    async def test_min_insync_replicas_counts_up_to_the_number_of_replicas(self) -> None:
        rig = await PartitionRig.make(min_insync_replicas=3)
        noted = Noted()
        rig.partition.append_soon(batch(b"all"), ALL_REPLICAS, noted, 0)
        rig.turn.finish()
        assert ({0: 0}, 1, False) == (noted.offsets(), rig.partition.high_watermark, rig.partition.is_short)

    async def test_a_shortage_is_told_to_waiting_requests_and_readers_see_the_records_when_it_ends(self) -> None:
        rig = await PartitionRig.make(min_insync_replicas=2, isr=(ME, 2))
        partition, noted = rig.partition, Noted()
        partition.append_soon(batch(b"all"), ALL_REPLICAS, noted, 0)
        rig.turn.finish()
        rig.wait_fetch("reader", 1)
        partition.on_isr((ME, BrokerId(2)), (ME,), (BrokerId(2),))
        assert {0: NotEnoughReplicasAfterAppendError} == noted.offsets()
        assert (0, []) == (partition.high_watermark, rig.ready)
        partition.on_min_insync_replicas(1)
        assert (0, []) == (partition.high_watermark, rig.ready), "the other replica is still eligible"
        partition.on_isr((ME, BrokerId(2)), (ME,))
        assert (1, ["reader"]) == (partition.high_watermark, rig.ready)

    async def test_all_waits_for_the_replicas_and_one_does_not(self) -> None:
        rig = await PartitionRig.make(isr=(ME, 2))
        noted = Noted()
        rig.partition.append_soon(batch(b"all"), ALL_REPLICAS, noted, 0)
        rig.partition.append_soon(batch(b"one"), 1, noted, 1)
        rig.turn.finish()
        assert ({1: 1}, 1) == (noted.offsets(), noted.waited)
        assert (0, 2) == (rig.partition.high_watermark, rig.partition.end_offset)
        rig.wait_fetch("reader", 1)
        assert None is rig.partition.read(Offset(0), 1000, is_committed=False, at_least_one=True)
        rig.partition.on_isr((ME, BrokerId(2)), (ME,))
        assert {0: 0, 1: 1} == noted.offsets()
        assert ["reader"] == rig.ready
        assert 2 == rig.partition.high_watermark

    @pytest.mark.parametrize("acks", [ALL_REPLICAS, 1])
    async def test_flush_before_acknowledging(self, acks: int) -> None:
        rig = await PartitionRig.make(FLUSH_EACH)
        noted = Noted()
        rig.wait_fetch("reader", 1)
        rig.partition.append_soon(batch(b"a"), acks, noted, 0)
        rig.turn.finish()
        assert ({}, 1, []) == (noted.outcomes, noted.waited, rig.ready)
        assert (0, 1) == (rig.partition.high_watermark, rig.partition.end_offset)
        await rig.wait_flushes()
        assert ({0: 0}, ["reader"]) == (noted.offsets(), rig.ready)
        assert (1, 1) == (rig.partition.high_watermark, rig.partition.log.recovery_point)

    async def test_many_turns_share_the_next_flush(self) -> None:
        rig = await PartitionRig.make(FLUSH_EACH)
        noted = Noted()
        rig.partition.append_soon(batch(b"first"), 1, noted, 0)
        rig.turn.finish()
        await rig.wait_flushes()
        before = rig.count("sync")
        rig.partition.append_soon(batch(b"v"), ALL_REPLICAS, noted, 1)
        rig.turn.finish()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for at in range(2, 30):
            rig.partition.append_soon(batch(b"v"), ALL_REPLICAS, noted, at)
            rig.turn.finish()
        await rig.wait_flushes()
        assert {at: at for at in range(30)} == noted.offsets()
        assert list(range(30)) == noted.told
        assert 2 == rig.count("sync") - before

    async def test_flush_after_every_few_records(self) -> None:
        rig = await PartitionRig.make(LogConfig(flush_messages=3))
        noted = Noted()
        for at in range(5):
            rig.partition.append_soon(batch(b"v"), 1, noted, at)
            rig.turn.finish()
        assert {0: 0, 1: 1} == noted.offsets()
        await rig.wait_flushes()
        assert {at: at for at in range(5)} == noted.offsets()
        assert 5 == rig.partition.high_watermark
        rig.partition.append_soon(batch(b"v"), 1, noted, 5)
        rig.turn.finish()
        assert 5 == noted.offsets()[5]

    async def test_a_reader_is_woken_for_what_the_second_flush_made_visible(self) -> None:
        """It came between the two: what it waits for was written before, but not to be seen yet."""
        rig = await PartitionRig.make(FLUSH_EACH)
        noted = Noted()
        partition = rig.partition
        partition.append_soon(batch(b"a"), 1, noted, 0)
        rig.turn.finish()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        partition.append_soon(batch(b"b"), 1, noted, 1)
        rig.turn.finish()
        await until(lambda: 0 in noted.outcomes)
        assert (1, 2) == (partition.high_watermark, partition.end_offset)
        rig.wait_fetch("reader", 1)
        await rig.wait_flushes()
        assert ["reader"] == rig.ready


class TestShortage:
    async def test_an_isr_that_shrinks_before_the_write_is_told_at_once(self) -> None:
        rig = await PartitionRig.make(min_insync_replicas=2, isr=(ME, 2))
        noted = Noted()
        rig.partition.append_soon(batch(b"all"), ALL_REPLICAS, noted, 0)
        rig.partition.append_soon(batch(b"one"), 1, noted, 1)
        rig.partition.on_isr((ME, BrokerId(2)), (ME,), (BrokerId(2),))
        rig.turn.finish()
        assert {0: NotEnoughReplicasAfterAppendError, 1: 1} == noted.offsets()

    async def test_a_higher_min_insync_replicas_is_told_to_waiting_requests(self) -> None:
        rig = await PartitionRig.make(isr=(ME, 2), replicas=(ME, 2, 3))
        noted = Noted()
        rig.partition.append_soon(batch(b"all"), ALL_REPLICAS, noted, 0)
        rig.turn.finish()
        rig.partition.on_min_insync_replicas(3)
        assert {0: NotEnoughReplicasAfterAppendError} == noted.offsets()

    async def test_a_repeated_batch_does_not_wait_for_later_ones(self) -> None:
        rig = await PartitionRig.make(isr=(ME, 2))
        noted = Noted()
        for at, sequence in enumerate((0, 1, 0)):
            rig.partition.append_soon(batch(b"v", producer_id=9, sequence=sequence), ALL_REPLICAS, noted, at)
        rig.turn.finish()
        rig.partition.on_follower_fetch(BrokerId(2), offset=Offset(1), start_offset=Offset(0), broker_epoch=1)
        assert {0: 0, 2: 0} == noted.offsets()
        rig.partition.on_follower_fetch(BrokerId(2), offset=Offset(2), start_offset=Offset(0), broker_epoch=1)
        assert {0: 0, 1: 1, 2: 0} == noted.offsets()


class TestFailingDisk:
    async def test_a_full_disk_refuses_the_batch_and_nothing_is_written(self) -> None:
        rig = await PartitionRig.make(disk=SimDisk(capacity=64 * 1024))
        noted = Noted()
        rig.partition.append_soon(batch(b"fits"), ALL_REPLICAS, noted, 0)
        rig.turn.finish()
        rig.partition.append_soon(batch(b"x" * 100_000), ALL_REPLICAS, noted, 1)
        rig.turn.finish()
        rig.partition.append_soon(batch(b"fits too"), ALL_REPLICAS, noted, 2)
        rig.turn.finish()
        assert {0: 0, 1: StorageError, 2: 1} == noted.offsets()
        assert [b"fits", b"fits too"] == values(rig.partition.log)
        assert (2, rig.partition.log.size_bytes) == (rig.partition.appended_records, rig.partition.appended_bytes)

    async def test_a_read_only_disk(self) -> None:
        rig = await PartitionRig.make()
        noted = Noted()
        rig.partition.append_soon(batch(b"a"), 1, noted, 0)
        rig.turn.finish()
        rig.disk.make_read_only()
        for at in range(1, 4):
            rig.partition.append_soon(batch(b"v"), at % 3 - 1, noted, at)
        rig.turn.finish()
        assert {0: 0, 1: StorageError, 2: StorageError, 3: StorageError} == noted.offsets()
        found = rig.partition.read(Offset(0), 1000, is_committed=False, at_least_one=True)
        assert found is not None
        assert rig.partition.log.size_bytes == found.size

    @pytest.mark.parametrize("acks", [ALL_REPLICAS, 1, 0])
    async def test_a_failed_flush_is_told_to_all_waiting_requests(self, acks: int) -> None:
        rig = await PartitionRig.make(FLUSH_EACH)
        noted = Noted()
        rig.partition.append_soon(batch(b"first"), 1, noted, 0)
        rig.turn.finish()
        await rig.wait_flushes()
        rig.wait_fetch("reader", 10**6)
        for at in range(1, 4):
            rig.partition.append_soon(batch(b"v"), acks, noted, at)
        rig.turn.finish()
        fail_next(rig.disk)
        await rig.wait_flushes()
        assert {0: 0, 1: StorageError, 2: StorageError, 3: StorageError} == noted.offsets()
        assert ["reader"] == rig.ready
        assert 1 == rig.partition.high_watermark
        rig.partition.append_soon(batch(b"v"), acks, noted, 4)
        rig.turn.finish()
        assert StorageError is noted.offsets()[4]
        assert 1 == rig.partition.high_watermark

    @pytest.mark.parametrize("acks", [ALL_REPLICAS, 1])
    async def test_no_request_succeeds_between_the_failure_and_its_report(self, acks: int) -> None:
        """The log has failed, waiting requests have not been told yet, and another append comes."""
        rig = await PartitionRig.make(FLUSH_EACH)
        noted = Noted()
        rig.partition.append_soon(batch(b"first"), 1, noted, 0)
        rig.turn.finish()
        await rig.wait_flushes()
        rig.partition.append_soon(batch(b"lost"), acks, noted, 1)
        rig.turn.finish()
        fail_next(rig.disk)
        await until(lambda: rig.partition.log.failure is not None)
        assert {0: 0} == noted.offsets()
        rig.partition.append_soon(batch(b"too late"), acks, noted, 2)
        rig.turn.finish()
        await rig.wait_flushes()
        assert {0: 0, 1: StorageError, 2: StorageError} == noted.offsets()
        assert [0, 1, 2] == sorted(noted.told)
        assert 1 == rig.partition.high_watermark


def fail_next(disk: SimDisk) -> None:
    disk.fail_at(disk.operation_count, OSError(errno.EIO, os.strerror(errno.EIO)), Moment.MIDDLE)


class TestWaiting:
    async def test_a_reader_is_woken_once_when_there_is_enough(self) -> None:
        rig = await PartitionRig.make()
        size = batch(b"v").size_bytes
        rig.wait_fetch("one", 1)
        rig.wait_fetch("two batches", 2 * size)
        rig.wait_fetch("a bit more", 2 * size + 1)
        seen = []
        for at in range(4):
            rig.partition.append_soon(batch(b"v"), 1, Noted(), at)
            rig.turn.finish()
            seen.append(list(rig.ready))
        assert [
            ["one"],
            ["one", "two batches"],
            ["one", "two batches", "a bit more"],
            ["one", "two batches", "a bit more"],
        ] == seen
        assert ({}, 0) == (rig.partition.fetch_waiters, len(rig.timers))

    async def test_a_reader_of_several_partitions_adds_them_up_and_leaves_all(self) -> None:
        from ottla.replication.fetch_waiter import FetchWaiter

        first, second = await PartitionRig.make(), await PartitionRig.make()
        size = batch(b"v").size_bytes
        ready: list[str] = []
        FetchWaiter(
            [first.partition, second.partition],
            missing_bytes=2 * size,
            is_committed=False,
            max_wait_ms=3_600_000,
            timers=first.timers,
            on_ready=lambda: ready.append("ready"),
        )
        for rig, expected in ((first, 0), (second, 1), (first, 1)):
            rig.partition.append_soon(batch(b"v"), 1, Noted(), 0)
            rig.turn.finish()
            assert expected == len(ready)
        assert ({}, {}) == (first.partition.fetch_waiters, second.partition.fetch_waiters)

    async def test_time_is_up(self) -> None:
        rig = await PartitionRig.make()
        done = asyncio.Event()
        rig.wait_fetch("patient", 1)
        rig.wait_fetch("hasty", 1, max_wait_ms=1)
        rig.timers.after(5, done.set)
        await done.wait()
        assert ["hasty"] == rig.ready
        rig.partition.append_soon(batch(b"v"), 1, Noted(), 0)
        rig.turn.finish()
        assert ["hasty", "patient"] == rig.ready

    async def test_a_cancelled_wait_is_not_called(self) -> None:
        rig = await PartitionRig.make()
        rig.wait_fetch("gone", 1, max_wait_ms=1).cancel()
        rig.partition.append_soon(batch(b"v"), 1, Noted(), 0)
        rig.turn.finish()
        assert ([], 0) == (rig.ready, len(rig.timers))

    async def test_deleting_a_partition_answers_all_waiting_requests(self) -> None:
        rig = await PartitionRig.make(isr=(ME, 2))
        noted = Noted()
        rig.partition.append_soon(batch(b"v"), ALL_REPLICAS, noted, 0)
        rig.turn.finish()
        rig.wait_fetch("reader", 1)
        rig.partition.fail_waiting(UnknownPartitionError("it was deleted"))
        assert ({0: UnknownPartitionError}, ["reader"]) == (noted.offsets(), rig.ready)
        rig.partition.fail_waiting(UnknownPartitionError("again"))
        assert ([0], ["reader"]) == (noted.told, rig.ready)


def end_of(marker: Marker, producer_id: int = 7, epoch: int = 0) -> TransactionEnd:
    return TransactionEnd(marker, ProducerId(producer_id), ProducerEpoch(epoch), 0, must_exceed_epoch=False)


class TestTransactions:
    async def test_a_marker_is_written_after_queued_batches_and_moves_the_last_stable_offset(self) -> None:
        rig = await PartitionRig.make()
        partition, noted = rig.partition, Noted()
        partition.append_soon(batch(b"v", producer_id=7, sequence=0, transactional=True), ALL_REPLICAS, noted, 0)
        partition.append_marker(end_of(Marker.COMMIT), noted, 1)
        assert ({0: 0, 1: 1}, 2, 2) == (noted.offsets(), partition.high_watermark, partition.last_stable_offset)

    async def test_a_marker_is_acknowledged_when_every_replica_has_it(self) -> None:
        rig = await PartitionRig.make(isr=(ME, 2))
        noted = Noted()
        rig.partition.append_marker(end_of(Marker.ABORT), noted, 0)
        assert ({}, 1) == (noted.offsets(), noted.waited)
        rig.partition.on_isr((ME, BrokerId(2)), (ME,))
        assert {0: 0} == noted.offsets()

    async def test_a_marker_of_an_older_epoch_or_without_enough_replicas_is_refused(self) -> None:
        rig = await PartitionRig.make(replicas=(ME, 2))
        noted = Noted()
        rig.partition.append_marker(end_of(Marker.ABORT, epoch=2), noted, 0)
        rig.partition.append_marker(end_of(Marker.ABORT, epoch=1), noted, 1)
        assert ({0: 0, 1: InvalidProducerEpochError}, 1) == (noted.offsets(), rig.partition.end_offset)
        rig.partition.on_min_insync_replicas(2)
        with pytest.raises(NotEnoughReplicasError):
            rig.partition.append_marker(end_of(Marker.ABORT, epoch=3), noted, 2)

    async def test_the_marker_wakes_read_committed_fetches_and_the_batch_wakes_others(self) -> None:
        rig = await PartitionRig.make()
        partition = rig.partition
        rig.wait_fetch("all", 1)
        rig.wait_fetch("decided", 1, is_committed=True)
        partition.append_soon(batch(b"v", producer_id=7, sequence=0, transactional=True), 1, Noted(), 0)
        rig.turn.finish()
        assert ["all"] == rig.ready
        partition.append_soon(batch(b"plain"), 1, Noted(), 0)
        rig.turn.finish()
        assert ["all"] == rig.ready
        partition.append_marker(end_of(Marker.COMMIT), Noted(), 0)
        assert ["all", "decided"] == rig.ready

    async def test_a_read_committed_fetch_counts_what_the_marker_makes_readable(self) -> None:
        rig = await PartitionRig.make()
        partition = rig.partition
        opened = batch(b"v", producer_id=7, sequence=0, transactional=True)
        size = opened.size_bytes + MARKER_BYTES
        partition.append_soon(opened, 1, Noted(), 0)
        rig.turn.finish()
        rig.wait_fetch("enough", size, is_committed=True)
        rig.wait_fetch("too much", size + 1, is_committed=True)
        partition.append_marker(end_of(Marker.ABORT), Noted(), 0)
        assert ["enough"] == rig.ready
        partition.append_soon(batch(b"plain"), 1, Noted(), 0)
        rig.turn.finish()
        assert ["enough", "too much"] == rig.ready

    async def test_a_last_stable_offset_within_one_write_wakes_at_once(self) -> None:
        rig = await PartitionRig.make()
        rig.wait_fetch("decided", 1, is_committed=True)
        rig.partition.append_soon(batch(b"plain"), 1, Noted(), 0)
        rig.partition.append_soon(batch(b"v", producer_id=7, sequence=0, transactional=True), 1, Noted(), 0)
        rig.turn.finish()
        assert ["decided"] == rig.ready

    async def test_a_long_transaction_needs_bounded_memory_for_the_writes_after_it(self) -> None:
        rig = await PartitionRig.make()
        partition = rig.partition
        partition.append_soon(batch(b"v", producer_id=7, sequence=0, transactional=True), 1, Noted(), 0)
        size = batch(b"plain").size_bytes
        for _ in range(1500):
            partition.append_soon(batch(b"plain"), 1, Noted(), 0)
            partition.append_queued()
        assert len(partition._state.unstable) <= 1000
        rig.wait_fetch("all of it", 1500 * size, is_committed=True)
        partition.append_marker(end_of(Marker.ABORT), Noted(), 0)
        assert ["all of it"] == rig.ready


async def test_leader_epochs_are_checked() -> None:
    rig = await PartitionRig.make()
    for epoch in (-1, EPOCH):
        rig.partition.check_leader_epoch(epoch)
    with pytest.raises(FencedLeaderEpochError, match="leader epoch 3"):
        rig.partition.check_leader_epoch(2)
    with pytest.raises(UnknownLeaderEpochError, match="leader epoch 3"):
        rig.partition.check_leader_epoch(4)


async def test_records_are_deleted_up_to_what_is_committed() -> None:
    rig = await PartitionRig.make()
    for at in range(5):
        rig.partition.append_soon(batch(b"v"), 1, Noted(), at)
    rig.turn.finish()
    assert [2, 2, 5] == [rig.partition.delete_records(Offset(before)) for before in (2, 1, -1)]


async def test_an_isr_without_the_leader_stops_the_broker() -> None:
    from ottla.model.invariants import InvariantViolation

    rig = await PartitionRig.make()
    with pytest.raises(InvariantViolation):
        rig.partition.on_isr((ME, BrokerId(9)), (BrokerId(9),))
