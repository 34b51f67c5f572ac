"""The simulated store's faults: each does what `ottla.sim.store` says, and one seed repeats them all."""

import asyncio

import pytest

from ottla.metadata.store import (
    Change,
    Check,
    CommitUnknownError,
    ConflictError,
    Entry,
    Put,
    RevisionGoneError,
    StoreUnavailableError,
)
from ottla.sim.clock import SimClock
from ottla.sim.random import SimRandom
from ottla.sim.store import SimMetadata, SimStore, StoreFaults
from tests.unit.metadata.store_rig import take
from tests.unit.metadata.store_worlds import SimWorld, clients


async def test_an_outage_makes_calls_wait_and_expires_nobody() -> None:
    async with SimWorld().running() as world, clients(world, 2) as (first, second):
        lease = await first.lease("brokers/0", b"")
        followed = asyncio.create_task(take(second.follow(1), 2))
        world.ensemble.begin_outage()
        committing = asyncio.create_task(first.commit([Put("a", b"1")]))
        await world.clock.sleep(5)
        assert (False, False) == (committing.done(), lease.is_lost)
        world.ensemble.end_outage()
        assert 2 == await committing
        await first.commit([Check("brokers/0", lease.revision), Put("a", b"2")])
        assert [[Change(2, "a", b"1")], [Change(3, "a", b"2")]] == await followed


async def test_an_outage_that_lasts_ends_the_leases_and_then_the_calls() -> None:
    async with SimWorld(step_seconds=0.01).running() as world, clients(world, 2) as (first, second):
        lease = await first.lease("brokers/0", b"old")
        world.ensemble.begin_outage()
        began = world.clock.monotonic()
        with pytest.raises(StoreUnavailableError, match="within 30 s") as caught:
            await second.commit([Put("a", b"")])
        assert not isinstance(caught.value, CommitUnknownError)
        assert (True, True) == (lease.is_lost, world.clock.monotonic() >= began + 30)
        world.ensemble.end_outage()
        again = await first.lease("brokers/0", b"new")
        assert (False, True) == (again.is_lost, again.revision > lease.revision)
        assert [Entry("brokers/0", b"new", again.revision)] == (await second.snapshot())[1]


async def test_who_is_cut_off_knows_that_its_lease_is_lost_before_the_others_do() -> None:
    async with SimWorld().running() as world, clients(world, 2) as (first, second):
        lease = await first.lease("controller", b"first")
        world.ensemble.cut(first)
        ended = asyncio.create_task(take(second.follow(1), 1))
        await lease.wait_lost()
        assert not ended.done()
        assert [[Change(2, "controller", None)]] == await ended
        taken = await second.lease("controller", b"second")
        world.ensemble.heal(first)
        with pytest.raises(ConflictError, match="controller"):
            await first.commit([Check("controller", lease.revision), Put("p", b"stale")])
        assert not taken.is_lost


async def test_an_answer_that_stays_away_leaves_a_commit_unknown() -> None:
    async with SimWorld(step_seconds=0.01).running() as world, clients(world, 2) as (first, second):
        world.ensemble.faults.lost_answer_share = 1.0
        committing = asyncio.create_task(first.commit([Put("a", b"")]))
        while not world.ensemble.fault_counts["lost answers"]:
            await world.clock.sleep(0.001)
        world.ensemble.cut(first)
        with pytest.raises(CommitUnknownError, match="within 30 s"):
            await committing
        world.ensemble.faults.lost_answer_share = 0.0
        assert "a" in [entry.key for entry in (await second.snapshot())[1]]
        world.ensemble.heal(first)


async def test_a_crashed_client_is_expired_by_the_ensemble() -> None:
    async with SimWorld().running() as world, clients(world, 2) as (first, second):
        lease = await first.lease("brokers/0", b"")
        crashed_at = world.clock.monotonic()
        first.crash()
        assert lease.is_lost
        assert [[Change(2, "brokers/0", None)]] == await take(second.follow(1), 1)
        assert world.clock.monotonic() >= crashed_at + 7


async def test_changes_that_are_not_kept() -> None:
    world = SimWorld()
    world.ensemble = SimMetadata(world.clock, SimRandom(0), changes_kept=3)
    async with world.running(), clients(world, 1) as (store,):
        for _ in range(10):
            await store.commit([Put("a", b"")])
        with pytest.raises(RevisionGoneError, match="take a snapshot"):
            await take(store.follow(6), 1)
        assert [[Change(8, "a", b"")]] == await take(store.follow(7), 1)


def life(seed: int) -> list[str]:
    """Three clients under all faults for a minute, as a trace."""
    trace: list[str] = []
    clock = SimClock()
    random = SimRandom(seed)
    faults = StoreFaults(delay_max_ms=40.0, lost_request_share=0.05, lost_answer_share=0.1)
    ensemble = SimMetadata(clock, random, faults=faults)

    async def act(number: int) -> None:
        store = SimStore(ensemble, clock, f"client {number}", request_timeout_ms=4_000)
        await store.open()
        lease = None
        while clock.monotonic() < 60:
            try:
                if lease is None or lease.is_lost:
                    lease = await store.lease("controller", b"%d" % number)
                    trace.append(f"{clock.monotonic():.3f} {number} leads from {lease.revision}")
                at = await store.commit([Check("controller", lease.revision), Put("n", b"%d" % number)])
                trace.append(f"{clock.monotonic():.3f} {number} committed {at}")
            except (ConflictError, StoreUnavailableError) as error:
                trace.append(f"{clock.monotonic():.3f} {number} {type(error).__name__}")
            await clock.sleep(0.5)
            if not random.randrange(20):
                ensemble.cut(store)
                await clock.sleep(random.random() * 12)
                ensemble.heal(store)
        await store.close()

    async def live() -> None:
        acting = asyncio.gather(*(act(number) for number in range(3)))
        while not acting.done():
            for _ in range(10):
                await asyncio.sleep(0)
            clock.advance(0.02)
        await acting

    asyncio.run(live())
    return [*trace, str(ensemble.fault_counts), str(ensemble.table.revision)]


def test_one_seed_gives_one_life() -> None:
    first = life(1)
    assert first == life(1)
    assert first != life(2)
    leaders = {line.split()[1] for line in first if "leads" in line}
    assert len(leaders) > 1
