"""A log store on a simulated disk beside its model: each operation is done to both, and their answers are compared.

The rig also keeps what a power cut may leave: the timelines that the disk may still hold, how far the log was flushed
for certain, and how low its start may be found. `crash` opens what is left and demands that it is one of those.
"""

import asyncio
import copy
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.env.ports import Disk
from ottla.model.errors import CorruptBatchError, OffsetOutOfRangeError, OttlaError, SegmentTooSmallError
from ottla.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder
from ottla.records.control import marker_batch
from ottla.records.decode import decode_records
from ottla.records.layout import Codec, Marker, TimestampType
from ottla.sim.clock import SimClock
from ottla.sim.disk import Moment, NameOrder, SimDisk, SimulatedCrash
from ottla.sim.loop import VirtualLoop
from ottla.sim.random import SimRandom
from ottla.storage.log import Appended
from ottla.storage.log_config import LogConfig
from ottla.storage.log_store import LogStore
from ottla.storage.retention import delete_expired
from tests.state import log_checks
from tests.state.log_model import SEQUENCE_MAX, LogModel, StoredBatch, stamped, stored

PARTITION: Final = TopicPartition("orders", 0)
DATA: Final = "/data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A batch that a test wants to append; what is relative becomes absolute when its turn comes."""

    count: int = 1
    value_bytes: int = 20
    codec: Codec = Codec.NONE
    age_ms: int = 0
    producer: int | None = None
    sequence: str = "next"
    """"next", "repeat" (an earlier batch), "gap" or "high" (so that a new producer soon wraps)."""
    epoch_step: int = 0
    transactional: bool = False
    marker: Marker | None = None
    coordinator_step: int = 0
    gap: int = 0
    """Offsets that a replicated batch leaves out before it."""


class ModelledLog:
    """One partition and its model. Every method demands that both agree."""

    def __init__(self, disk: Disk, config: LogConfig, data: str = DATA) -> None:
        self.disk = disk
        self.config = config
        self.data = data
        self.clock = SimClock()
        self.loop = VirtualLoop() if isinstance(disk, SimDisk) else asyncio.new_event_loop()
        self.model = LogModel()
        self.leader_epoch = 1
        self.timelines: list[LogModel] = []
        """What the disk may hold instead of the model's state, if power fails now."""
        self.flushed_end = 0
        """Everything below was flushed, and survives whatever happens."""
        self.durable_start = 0
        self.forgetful = False
        """Whether the log may have forgotten unreplicated markers, since it was opened again."""
        self._serial = 0
        self._operations_before = 0
        self._crash: tuple[int, Moment] | None = None
        self._open()
        self.log = self.store.create(PARTITION)

    @property
    def now(self) -> TimestampMs:
        return self.clock.now_ms()

    # Appending

    def append(self, wishes: Sequence[Wish], *, new_epoch: bool = False) -> None:
        """As the leader."""
        self.leader_epoch += new_epoch
        after = self.model.clone()
        batches: list[Batch] = []
        expected: list[StoredBatch | tuple[int, int] | type[OttlaError]] = []
        append_time = self.now if self.config.timestamp_type is TimestampType.LOG_APPEND_TIME else None
        for wish in wishes:
            data, fate = self._client_batch(wish, after)
            batches.append(Batch(bytearray(data)))
            if len(data) > self.config.segment_bytes:
                fate = SegmentTooSmallError
            if fate is None:
                if self.config.compression is not None:
                    data = bytes(_recompressed(data, self.config.compression))
                batch = stored(stamped(data, after.end, self.leader_epoch, append_time))
                after.take(batch)
                expected.append(batch)
            else:
                expected.append(fate)
        self._attempt(after)
        answers = self.log.append(batches, leader_epoch=LeaderEpoch(self.leader_epoch), now=self.now)
        self.model = after
        for want, got in zip(expected, answers, strict=True):
            _check_answer(want, got, append_time)

    def append_marker(self, wish: Wish) -> None:
        """Ends a producer's transaction, if it has one open."""
        after = self.model.clone()
        batch, refusal = self._marker(wish, after, self.model.end, self.leader_epoch)
        if refusal is None:
            after.take(batch)
        self._attempt(after)
        answer: Appended | OttlaError
        try:
            answer = self.log.append_marker(
                batch.marker or Marker.ABORT,
                producer_id=ProducerId(batch.producer_id),
                producer_epoch=ProducerEpoch(batch.producer_epoch),
                coordinator_epoch=batch.coordinator_epoch,
                leader_epoch=LeaderEpoch(self.leader_epoch),
                now=self.now,
            )
        except OttlaError as error:
            answer = error
        self.model = after
        _check_answer(refusal or batch, answer, None)

    def append_as_follower(self, wishes: Sequence[Wish], *, new_epoch: bool = False, spare_bytes: int = 0) -> None:
        """A run as a leader sends it, with `spare_bytes` of one more batch behind it. What is behind the first gap is
        sent again."""
        self.leader_epoch += new_epoch
        after = self.model.clone()
        run = bytearray()
        for wish in wishes:
            base = after.end + wish.gap
            if wish.marker is None:
                data, refusal = self._client_batch(wish, after)
                batch = stored(stamped(data, base, self.leader_epoch))
            else:
                batch, refusal = self._marker(wish, after, base, self.leader_epoch)
            if isinstance(refusal, type):
                continue  # No leader would have it.
            after.take(batch)
            run += batch.data
        count, whole = len(after.batches) - len(self.model.batches), len(run)
        rest = stamped(self._client_batch(Wish(), after)[0], after.end, self.leader_epoch)
        run += rest[: min(spare_bytes, len(rest) - 1)]
        self._attempt(after)
        taken = self.log.append_as_follower(memoryview(run), now=self.now)
        left = sum(len(batch.data) for batch in after.batches[len(self.model.batches) + taken :])
        if left:
            taken += self.log.append_as_follower(memoryview(run)[whole - left :], now=self.now)
        assert count == taken
        self.model = after
        self.model.end = self._end_in_gap(after)

    def append_damaged_run(self, wishes: Sequence[Wish], *, out_of_order: bool) -> None:
        """A run whose second half is damaged, or goes back: the first half is taken and the rest refused. If it goes
        back, the batch before it may be the wrong one, and is not taken either."""
        good = [wish for wish in wishes if wish.marker is None and wish.producer is None]
        after = self.model.clone()
        for wish in good:
            after.take(stored(stamped(self._client_batch(wish, after)[0], after.end, self.leader_epoch)))
        run = bytearray(b"".join(batch.data for batch in after.batches[len(self.model.batches) :]))
        bad = bytearray(stamped(self._client_batch(Wish(), after)[0], after.end, self.leader_epoch))
        if out_of_order:
            bad = bytearray(stamped(bytes(bad), after.end - 1, self.leader_epoch))
            kept = after.batches[len(self.model.batches) : -1]
            after = self.model.clone()
            for batch in kept:
                after.take(batch)
        else:
            bad[-1] ^= 1
        self._attempt(after)
        try:
            self.log.append_as_follower(memoryview(run + bad), now=self.now)
        except CorruptBatchError:
            pass
        else:
            raise AssertionError("a run that makes no sense was taken")
        self.model = after

    def _client_batch(self, wish: Wish, model: LogModel) -> tuple[bytes, tuple[int, int] | type[OttlaError] | None]:
        """The bytes, and their fate: None for an append, the offsets of the batch that they repeat, or an error."""
        producer_id, epoch, sequence, count = -1, -1, -1, wish.count
        fate: tuple[int, int] | type[OttlaError] | None = None
        if wish.producer is not None:
            producer_id = 1000 + wish.producer
            known = model.producers.get(producer_id)
            epoch = max(0, known.epoch + wish.epoch_step)
            sequence = known.next_sequence if epoch == known.epoch else 0
            if wish.sequence == "gap":
                sequence = (sequence + 7) % (SEQUENCE_MAX + 1)
            elif wish.sequence == "high" and known.epoch < 0:
                sequence = SEQUENCE_MAX - 1
            elif wish.sequence == "repeat" and known.spans:
                span = known.spans[wish.value_bytes % len(known.spans)]
                sequence, count = span.first_sequence, span.last_offset - span.first_offset + 1
            repeated = model.producers.duplicate_of(producer_id, epoch, sequence, count)
            if repeated is not None:
                fate = repeated.first_offset, repeated.last_offset
            else:
                fate = model.producers.refusal(producer_id, epoch, sequence, transactional=wish.transactional)
        builder = BatchBuilder(
            codec=wish.codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=wish.transactional and producer_id >= 0,
        )
        for number in range(count):
            self._serial += 1
            # The serial number makes every batch unlike any other, so that equal bytes mean the same append.
            builder.append(self.now - wish.age_ms + number % 3, b"k%d" % (self._serial % 7), _value(self._serial, wish))
        return builder.build(), fate

    def _marker(
        self, wish: Wish, model: LogModel, offset: int, leader_epoch: int
    ) -> tuple[StoredBatch, type[OttlaError] | None]:
        producer_id = 1000 + (wish.producer or 0)
        known = model.producers.get(producer_id)
        epoch = max(0, known.epoch + wish.epoch_step)
        coordinator_epoch = max(0, known.coordinator_epoch + wish.coordinator_step)
        marker = wish.marker or Marker.ABORT
        data = marker_batch(
            marker,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=self.now,
            base_offset=offset,
            leader_epoch=leader_epoch,
        )
        refusal = model.producers.marker_refusal(producer_id, epoch, coordinator_epoch)
        return stored(data, marker, coordinator_epoch), refusal

    # Moving bounds

    def roll(self) -> None:
        """Starts a new segment."""
        self.log.roll(self.now)

    def advance_high_watermark(self, share: float) -> None:
        """To some batch's end."""
        ends = [self.model.start, *(batch.next_offset for batch in self.model.visible())]
        offset = ends[int(share * len(ends)) % len(ends)]
        self.log.advance_high_watermark(Offset(offset))
        self.model.high_watermark = max(self.model.high_watermark, offset)

    def truncate_to(self, offset: int) -> None:
        """Somewhere into the log, or behind it."""
        before = self.model
        if offset >= before.end:
            assert self.log.truncate_to(Offset(offset), now=self.now) is False
            return
        after = before.clone()
        after.cut(offset)
        self._cutting(min(after.end, offset))
        if not after.visible():
            self._attempt(_restarted(before, offset))
            self.durable_start = min(self.durable_start, offset)
        assert self.log.truncate_to(Offset(offset), now=self.now) is True
        self.model = after
        if not after.visible() and self.log.size_bytes == 0:
            # Nothing is left: the log goes on at the cut, or at the base of its last segment before it.
            assert offset >= self.log.end_offset
            producers = after.producers
            after.restart_at(self.log.end_offset)
            # Those of deleted segments are known still if the snapshot behind them was kept.
            after.producers = producers
            self._reloaded_producers()
            return
        after.end = self._end_in_gap(after, at_most=offset)
        after.high_watermark = min(before.high_watermark, after.end)
        self._reloaded_producers()

    def truncate_fully(self, offset: int) -> None:
        """To an empty log that goes on at `offset`."""
        self._cutting(min(offset, self.model.start))
        self._attempt(_restarted(self.model, offset))
        self.durable_start = min(self.durable_start, offset)
        self.log.truncate_fully(Offset(offset), now=self.now)
        self.model = _restarted(self.model, offset)
        self.durable_start = offset

    def advance_start(self, offset: int) -> None:
        if offset > self.model.high_watermark:
            try:
                self.log.advance_start(Offset(offset))
            except OffsetOutOfRangeError:
                return
            raise AssertionError(f"started at {offset} beyond the high watermark {self.model.high_watermark}")
        self.model.start = max(self.model.start, offset)
        self.log.advance_start(Offset(offset))
        self.log.delete_below_start()

    def expire(self) -> None:
        """Retention: what goes is old or too much, and lies below the high watermark; what stays is neither."""
        sizes = [(segment.base_offset, segment.size_bytes, segment.newest_ms) for segment in self.log.segments]
        before = self.model.clone()
        self.model.start = self.model.high_watermark  # How far it may come before a crash; the truth follows.
        count = delete_expired(self.log, self.now)
        self.model.start = max(before.start, self.log.segments[0].base_offset)
        assert before.start <= self.log.start_offset <= self.model.high_watermark
        log_checks.check_retention(self.log, before, sizes, count, self.now)

    def flush(self) -> None:
        self.log.flush()
        self._is_flushed()

    def save_checkpoints(self) -> None:
        self.store.checkpoints.save()
        self.durable_start = self.model.start

    def sweep(self) -> None:
        self.store.trash.sweep(self.now)

    def release_idle(self) -> None:
        self.log.segments.release_idle()

    # Reading

    def read(self, offset: int, max_bytes: int, upper: int | None, *, at_least_one: bool) -> None:
        log_checks.check_read(self.log, self.model, offset, max_bytes, upper, at_least_one=at_least_one)

    def find(self, timestamp: int) -> None:
        found = self.log.find_timestamp(TimestampMs(timestamp))
        assert self.model.find_timestamp(timestamp) == (None if found is None else tuple(found))
        largest = self.log.largest_timestamp()
        assert self.model.largest_timestamp() == (None if largest is None else tuple(largest))

    def check(self) -> None:
        """What must hold after every step."""
        log_checks.check_bounds(self.log, self.model, forgetful=self.forgetful)
        log_checks.check_producers(self.log, self.model)
        log_checks.check_epochs(self.log, self.model)

    def inspect(self) -> None:
        """The dear checks: every file, every index entry, every batch."""
        self.check()
        log_checks.check_files(self.disk, self.log)
        log_checks.check_content(self.log, self.model)
        log_checks.check_indexes(self.log)
        log_checks.check_aborted(self.log, self.model)

    # The end of the process, and of the machine

    def close(self) -> None:
        """Clean shutdown."""
        self._run(self.store.close())
        self._is_flushed()
        self.durable_start = self.model.start

    def reopen(self, segment_index_bytes: int | None = None) -> None:
        """Clean shutdown and start: nothing changes."""
        self.close()
        if segment_index_bytes is not None:
            self.config = replace(self.config, segment_index_bytes=segment_index_bytes)
        self._open()
        self._adopt(exactly=True)

    def kill(self) -> None:
        """The process dies and starts again: nothing is lost but what was not checkpointed."""
        assert isinstance(self.disk, SimDisk)
        self._operations_before += self.disk.operation_count
        self.disk = self.disk.kill()
        if self._crash is not None:
            self.plan_crash(*self._crash)
        self._open()
        self._adopt(exactly=False)
        assert self.model.end == self.log.end_offset

    def process_death(self) -> None:
        """The process dies, perhaps in the middle of something; `recover` starts it again."""
        assert isinstance(self.disk, SimDisk)
        self._operations_before = 0
        self._crash = None
        self.disk = self.disk.kill()

    def crash(self, seed: int) -> None:
        """The machine dies and starts again."""
        self.power_cut(seed)
        self.recover()

    def power_cut(self, seed: int) -> None:
        assert isinstance(self.disk, SimDisk)
        self._operations_before = 0
        self._crash = None
        self.disk = self.disk.crash(SimRandom(seed))

    def recover(self) -> None:
        """Opens what a crash left, and goes on with it."""
        self._open()
        self._adopt(exactly=False)
        self.timelines = []

    def close_loop(self) -> None:
        self.loop.close()

    @property
    def operation_count(self) -> int:
        """The disk's changing operations so far; the next one has this number."""
        assert isinstance(self.disk, SimDisk)
        return self._operations_before + self.disk.operation_count

    def twin(self, order: NameOrder) -> "ModelledLog":
        """The same disk and the same expectations once more, as they are between a crash and the recovery from it."""
        assert isinstance(self.disk, SimDisk)
        twin = copy.copy(self)
        twin.disk = self.disk.kill()
        twin.disk._tree.order = order
        twin.clock = copy.copy(self.clock)
        twin.loop = VirtualLoop()
        twin.model = self.model.clone()
        twin.timelines = [timeline.clone() for timeline in self.timelines]
        return twin

    def state(self) -> bytes:
        """The disk to the last byte, and all that the rig will compare it with. What follows from two equal states is
        the same: nothing else outlives the process."""
        assert isinstance(self.disk, SimDisk)
        expected = self.model, self.timelines, self.flushed_end, self.durable_start, self.forgetful
        return pickle.dumps((self.disk._tree, self.disk.boot_id, expected, self.leader_epoch, self._serial, self.now))

    def plan_crash(self, number: int, moment: Moment) -> None:
        """Power fails at the operation of this number."""
        assert isinstance(self.disk, SimDisk)
        self._crash = number, moment
        self.disk.fail_at(number - self._operations_before, moment=moment)

    def survives(self, work: Callable[[], None]) -> bool:
        """Whether the work was done before the planned crash struck."""
        try:
            work()
        except SimulatedCrash as crash:
            # The disk keeps the error; the frames of the dead process, and what they hold, must not live on with it.
            crash.__traceback__ = None
            return False
        return True

    def _open(self) -> None:
        self.store = LogStore(
            self.disk,
            self.clock,
            SimRandom(7),
            [self.data],
            node_id=1,
            cluster_id="b3R0bGEtbW9kZWwtdGVzdA",
            owner="tests",
            config_of=lambda partition: self.config,
        )
        self._run(self.store.open())

    def _adopt(self, *, exactly: bool) -> None:
        """Takes the log that was opened for what it may be, and makes the model its equal."""
        # A partition whose name was never flushed may be gone; its owner makes it again, as the broker would.
        self.log = self.store.create(PARTITION)
        self.forgetful = True
        assert self.log.health.damage is None, "nothing that a crash leaves looks like damage"
        log_checks.check_tidy(self.disk, self.log)
        if exactly:
            assert self.model.high_watermark == self.log.high_watermark
            assert self.model.start == self.log.start_offset
            assert self.model.end == self.log.end_offset
        else:
            self.model = log_checks.surviving(
                self.log, [self.model, *self.timelines], flushed_end=self.flushed_end, durable_start=self.durable_start
            )
        self._reloaded_producers()

    def _reloaded_producers(self) -> None:
        """A log that read its producers again remembers fewer batches of each than it did."""
        log_checks.check_producers(self.log, self.model, reloaded=True)
        self.model.producers = log_checks.producers_as_reloaded(self.log, self.model)

    def _attempt(self, after: LogModel) -> None:
        """Power may fail in the middle of what is about to be done."""
        if self.timelines and self.timelines[-1].batches == after.batches[: len(self.timelines[-1].batches)]:
            self.timelines.pop()
        self.timelines.append(after.clone())

    def _cutting(self, end: int) -> None:
        """From now on the log is only certain up to `end`, and what it held so far may come back."""
        self.timelines.append(self.model.clone())
        self.flushed_end = min(self.flushed_end, end)

    def _is_flushed(self) -> None:
        self.flushed_end = self.model.end
        self.timelines = []

    def _end_in_gap(self, model: LogModel, at_most: int | None = None) -> int:
        """Where a log goes on whose offsets have gaps: at its last batch's end, or at its active segment's base."""
        end = self.log.end_offset
        assert model.end <= end <= (model.end if at_most is None else max(at_most, model.end))
        return end

    def _run(self, work: Any) -> None:
        self.loop.run_until_complete(work)


_CYCLE = bytes(at * 7 % 251 for at in range(251))
_STEPS_OF_SERIAL = 31 * pow(7, -1, 251)
"""How far apart in the cycle the values of neighbouring serials begin."""


def _value(serial: int, wish: Wish) -> bytes:
    start = serial * _STEPS_OF_SERIAL % 251
    return b"%08x" % serial + (_CYCLE * (wish.value_bytes // 251 + 2))[start : start + wish.value_bytes]


def _recompressed(data: bytes, codec: Codec) -> bytes:
    """The same batch with another codec, made from its records."""
    batch = Batch(data)
    if batch.codec == codec:
        return data
    builder = BatchBuilder(
        codec=codec,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
    )
    for record in decode_records(batch):
        builder.append(record.timestamp, record.key, record.value, record.headers)
    return builder.build()


def _restarted(model: LogModel, offset: int) -> LogModel:
    after = model.clone()
    after.restart_at(offset)
    return after


def _check_answer(
    want: StoredBatch | tuple[int, int] | type[OttlaError], got: Appended | OttlaError, append_time: int | None
) -> None:
    if isinstance(want, type):
        assert want is type(got), got
        return
    assert isinstance(got, Appended), got
    if isinstance(want, tuple):
        assert (*want, True) == (got.base_offset, got.last_offset, got.is_duplicate)
        return
    time = -1 if append_time is None else append_time
    assert (want.base_offset, want.last_offset, time, False) == (
        got.base_offset,
        got.last_offset,
        got.append_time,
        got.is_duplicate,
    )
