"""The runtime of a coordinator, over a real partition on a simulated disk, with a machine that counts."""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any

import pytest

from ottla.coordination.runtime.effects import CoordinatorRecord, Respond, TransactionalWrite, Write
from ottla.coordination.runtime.shard import Shard
from ottla.model.errors import CoordinatorLoadingError, NotCoordinatorError, NotEnoughReplicasError
from ottla.model.ids import NO_PRODUCER_ID, LeaderEpoch, ProducerEpoch, ProducerId, TimestampMs
from ottla.records.layout import Marker
from ottla.replication.partition import TransactionEnd
from ottla.replication.timers import Timers
from ottla.replication.timing_wheel import Deadline
from ottla.sim.clock import SimClock
from tests.unit.replication.rig import FLUSH_EACH, ME, Noted, PartitionRig

PRODUCER = ProducerId(9)


class Counting:
    """Counts by name; a sum in a producer's transaction counts once its marker says so."""

    def __init__(self) -> None:
        self.sums: dict[bytes, int] = {}
        self.pending: dict[ProducerId, list[CoordinatorRecord]] = {}
        self.loaded = 0
        self.ticks: list[int] = []
        self.ticked = asyncio.Event()
        self.deadline: int | None = None
        self.leaps: list[int] = []
        self.parked: list[Hashable] = []

    def add(self, name: bytes, now_ms: int, token: Hashable) -> list[Any]:
        value = self.sums.get(name, 0) + 1
        done = Respond(token, value)
        return [Write((CoordinatorRecord(name, b"%d" % value),), (done,), (Respond(token, "failed"),))]

    def add_in_transaction(self, name: bytes, now_ms: int, token: Hashable) -> list[Any]:
        return [
            TransactionalWrite(
                transactional_id="x",
                producer_id=PRODUCER,
                producer_epoch=ProducerEpoch(0),
                records=(CoordinatorRecord(name, b"100"),),
                responses=(Respond(token, "pending"),),
            )
        ]

    def park(self, now_ms: int, token: Hashable) -> list[Any]:
        self.parked.append(token)
        return []

    def replay_all(self, records: Iterable[CoordinatorRecord], producer_id: ProducerId) -> None:
        for record in records:
            self.replay(record, producer_id)

    def replay(self, record: CoordinatorRecord, producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        if producer_id != NO_PRODUCER_ID:
            self.pending.setdefault(producer_id, []).append(record)
        elif record.value is None:
            self.sums.pop(record.key, None)
        else:
            self.sums[record.key] = int(record.value)

    def on_marker(self, producer_id: ProducerId, *, commit: bool) -> None:
        for record in self.pending.pop(producer_id, []):
            if commit:
                self.replay(record)

    def on_loaded(self, now_ms: int) -> list[Any]:
        self.loaded += 1
        return []

    def on_unloaded(self) -> list[Any]:
        return [Respond(token, "moved") for token in self.parked]

    def on_tick(self, now_ms: int) -> list[Any]:
        self.ticks.append(now_ms)
        self.ticked.set()
        self.deadline = None
        return []

    def next_deadline(self) -> int | None:
        return self.deadline

    def on_clock_set(self, by_ms: int) -> None:
        self.leaps.append(by_ms)
        if self.deadline is not None:
            self.deadline += by_ms


def shard_on(
    rig: PartitionRig,
    performed: list[Any] | None = None,
    *,
    clock: SimClock | None = None,
    timers: Timers | None = None,
) -> Shard[Counting]:
    return Shard(
        rig.partition,
        Counting(),
        clock=clock or SimClock(),
        disk=rig.disk,
        timers=rig.timers if timers is None else timers,
        perform=(performed if performed is not None else []).append,
    )


async def test_a_decision_is_written_then_answered_and_survives_a_reload() -> None:
    rig = await PartitionRig.make()
    shard = shard_on(rig)
    await shard.load()
    assert [1, 2, 1] == [await shard.ask(partial(shard.machine.add, name)) for name in (b"a", b"a", b"b")]
    again = shard_on(rig)
    await again.load()
    assert ({b"a": 2, b"b": 1}, 1) == (again.machine.sums, again.machine.loaded)


async def test_before_it_is_loaded_and_after_it_is_unloaded_nobody_can_ask() -> None:
    rig = await PartitionRig.make()
    shard = shard_on(rig)
    with pytest.raises(CoordinatorLoadingError):
        await shard.ask(shard.machine.park)
    await shard.load()
    parked = asyncio.ensure_future(shard.ask(shard.machine.park))
    await asyncio.sleep(0)
    shard.unload()
    assert "moved" == await parked
    with pytest.raises(NotCoordinatorError):
        await shard.ask(shard.machine.park)


async def test_a_transaction_counts_with_its_marker_also_after_a_reload() -> None:
    rig = await PartitionRig.make()
    shard = shard_on(rig)
    await shard.load()
    asked = await shard.ask(lambda now, token: shard.machine.add_in_transaction(b"t", now, token))
    assert ("pending", {}) == (asked, shard.machine.sums)
    waiting = shard_on(rig)
    await waiting.load()
    assert ({}, [PRODUCER]) == (waiting.machine.sums, list(waiting.machine.pending))
    rig.partition.log.append_marker(
        Marker.COMMIT,
        producer_id=PRODUCER,
        producer_epoch=ProducerEpoch(0),
        coordinator_epoch=0,
        leader_epoch=LeaderEpoch(3),
        now=TimestampMs(5),
    )
    again = shard_on(rig)
    await again.load()
    assert ({b"t": 100}, {}) == (again.machine.sums, again.machine.pending)


def commit() -> TransactionEnd:
    return TransactionEnd(Marker.COMMIT, PRODUCER, ProducerEpoch(0), 0, must_exceed_epoch=False)


async def test_a_marker_through_the_shard_counts_at_once_and_is_waited_for() -> None:
    rig = await PartitionRig.make(FLUSH_EACH)
    shard = shard_on(rig)
    await shard.load()
    await shard.ask(lambda now, token: shard.machine.add_in_transaction(b"t", now, token))
    noted = Noted()
    shard.append_marker(commit(), noted, 4)
    seen = asyncio.get_running_loop().create_future()
    shard.carry_out([Write((), (Respond(seen, "seen"),))])
    assert ({b"t": 100}, {}, False) == (shard.machine.sums, noted.offsets(), seen.done())
    await seen
    assert {4: 1} == noted.offsets()


async def test_a_marker_that_comes_while_the_shard_is_loaded_counts_once() -> None:
    rig = await PartitionRig.make()
    first = shard_on(rig)
    await first.load()
    await first.ask(lambda now, token: first.machine.add_in_transaction(b"t", now, token))
    shard = shard_on(rig)
    loading = asyncio.ensure_future(shard.load())
    await asyncio.sleep(0)
    assert not shard.is_active
    noted = Noted()
    shard.append_marker(commit(), noted, 0)
    await loading
    assert ({b"t": 100}, {}, {0: 1}) == (shard.machine.sums, shard.machine.pending, noted.offsets())


async def test_a_marker_that_cannot_be_written_says_so() -> None:
    rig = await PartitionRig.make(min_insync_replicas=2, replicas=(ME, 2))
    shard = shard_on(rig)
    await shard.load()
    noted = Noted()
    shard.append_marker(commit(), noted, 0)
    assert {0: NotEnoughReplicasError} == noted.offsets()


async def test_nothing_is_answered_or_done_before_the_disk_has_it() -> None:
    rig = await PartitionRig.make(FLUSH_EACH)
    performed: list[Any] = []
    shard = shard_on(rig, performed)
    await shard.load()
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    shard.carry_out([*shard.machine.add(b"a", 0, first), Write((), (Respond(second, "seen"),)), "marker"])
    assert (False, False, [], {b"a": 1}) == (first.done(), second.done(), performed, shard.machine.sums)
    assert (1, "seen", ["marker"]) == (await first, await second, performed)


async def test_a_write_that_fails_changes_nothing_and_says_so() -> None:
    rig = await PartitionRig.make()
    performed: list[Any] = []
    shard = shard_on(rig, performed)
    await shard.load()
    rig.partition.log.abandon("the disk is gone")
    token = asyncio.get_running_loop().create_future()
    shard.carry_out([*shard.machine.add(b"a", 0, token), "marker"])
    assert ("failed", {}, []) == (await token, shard.machine.sums, performed)


async def test_the_timer_follows_the_machine() -> None:
    rig = await PartitionRig.make()
    shard = shard_on(rig)
    await shard.load()
    shard.machine.deadline = 0
    shard.tell(lambda now: [])
    await shard.machine.ticked.wait()
    shard.unload()
    assert 1 == len(shard.machine.ticks)


class SpansNoted(Timers):
    """Timers that never fire, and the spans that were asked for."""

    def __init__(self, clock: SimClock) -> None:
        super().__init__(clock)
        self.spans_ms: list[int] = []

    def after(self, span_ms: int, callback: Callable[[], None]) -> Deadline:
        self.spans_ms.append(span_ms)
        self.callback = callback
        return Deadline(0, callback)


@pytest.mark.parametrize("leap_ms", [3_600_000, -3_600_000])
async def test_a_wall_clock_that_is_set_makes_no_wait_longer_or_shorter(leap_ms: int) -> None:
    rig, clock = await PartitionRig.make(), SimClock()
    timers = SpansNoted(clock)
    shard = shard_on(rig, clock=clock, timers=timers)
    await shard.load()
    told: list[int] = []
    shard.machine.deadline = clock.now_ms() + 10_000
    shard.tell(lambda now: [])
    clock.advance(4)
    clock.jump(leap_ms)

    def note(now: int) -> list[Any]:
        told.append(now)
        return []

    shard.tell(note)
    assert ([clock.now_ms()], [leap_ms]) == (told, shard.machine.leaps), "events are told the wall clock's time"
    assert [10_000, 6_000] == timers.spans_ms
    clock.advance(6)
    due_ms = shard.machine.deadline
    timers.callback()
    assert ([due_ms], [clock.now_ms()]) == (shard.machine.ticks, shard.machine.ticks)


async def test_a_clock_that_is_set_just_before_the_timer_fires_ends_nothing_early() -> None:
    rig, clock = await PartitionRig.make(), SimClock()
    timers = SpansNoted(clock)
    shard = shard_on(rig, clock=clock, timers=timers)
    await shard.load()
    shard.machine.deadline = clock.now_ms() + 10_000
    shard.tell(lambda now: [])
    clock.advance(10)
    clock.jump(-60_000)
    timers.callback()
    assert [clock.now_ms()] == shard.machine.ticks
    assert [-60_000] == shard.machine.leaps
