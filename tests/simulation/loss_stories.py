"""Short runs in which a disk or the metadata store loses something, most of them for a planted bug.

Three brokers, one partition, led by the first. Segments are short, so that three records lie in three segments.
"""

import asyncio

from ottla.model.ids import TopicPartition
from ottla.sim.disk_copies import CHECKED_FROM, held_by, places, read_copy, segments, values_kept
from ottla.sim.machine import DATA_DIR, Machine
from ottla.sim.simulated_world import SimulatedWorld
from ottla.sim.store_ensemble import EMPTY_STORE
from ottla.storage.data_dirs.names import PARTITION_METADATA
from tests.simulation.stories import PARTITION, begin, end_of, kill
from tests.unit.sim.ledgers import write

FOLDER = f"{DATA_DIR}/{PARTITION}"
VALUES = (b"one", b"two", b"three")


async def begin_with_segments(world: SimulatedWorld, replicas: int = 3) -> list[Machine]:
    """Three acknowledged records, each in a segment of its own."""
    for machine in world.machines:
        machine.settings["log.roll.ms"] = "500"
    machines = await begin(world, replicas=replicas, min_in_sync=min(2, replicas))
    for value in VALUES:
        await write(world, value)
        await asyncio.sleep(1)
    await world.wait_until(lambda: {3} == {end_of(each) for each in machines[:replicas]}, 30)
    assert 3 == len(segments(machines[0].disk, FOLDER))
    return machines


async def stop_all(world: SimulatedWorld) -> None:
    """As an operator stops a cluster; the leader is the last."""
    for machine in reversed(world.machines):
        await machine.stop()


async def first_is_back_alone(world: SimulatedWorld) -> None:
    """The first broker has time to do harm before the others are back."""
    world.machines[0].boot()
    await world.wait_until(lambda: world.machines[0].is_serving, 30)
    await asyncio.sleep(3)
    for machine in world.machines[1:]:
        machine.boot()


async def values_are_there(world: SimulatedWorld) -> None:
    """All records can be read, when all brokers are back. Offsets that are left out do not end the reading."""
    world.heal()
    await world.wait_until(world.is_whole, 60)
    found: list[bytes] = []

    async def read() -> None:
        consumer = world.client("reader").consumer(auto_offset_reset="earliest")
        consumer.assign([PARTITION])
        end = (await consumer.end_offsets([PARTITION]))[PARTITION]
        while await consumer.position(PARTITION) < end:
            for records in (await consumer.poll(timeout_ms=500)).values():
                found.extend(record.value for record in records)
        await consumer.close()

    await asyncio.wait([world.spawn("reader", read())[1]], timeout=60)
    world.history.check(list(VALUES) == found, "acked records survive", f"only {found} can be read")


async def a_missing_segment_is_missed(world: SimulatedWorld) -> None:
    """All brokers are stopped, and the leader's log has lost its middle when it is back."""
    first, *_ = await begin_with_segments(world)
    await stop_all(world)
    first.disk.vanish(segments(first.disk, FOLDER)[1])
    await first_is_back_alone(world)
    await values_are_there(world)


async def a_missing_first_segment_is_missed(world: SimulatedWorld) -> None:
    """All brokers are stopped, and the leader's log has lost its first segment when it is back."""
    first, *_ = await begin_with_segments(world)
    await stop_all(world)
    first.disk.vanish(segments(first.disk, FOLDER)[0])
    await first_is_back_alone(world)
    await values_are_there(world)


async def what_is_behind_damage_is_kept(world: SimulatedWorld) -> None:
    """The only replica is killed, and its first segment is damaged when it is back: the others are intact."""
    first, *_ = await begin_with_segments(world, replicas=1)
    kill(world, first)
    path = segments(first.disk, FOLDER)[0]
    place = next(places(first.disk, path))
    first.disk.flip(path, place.position + CHECKED_FROM + 20, 0)
    first.boot()
    await world.wait_until(lambda: first.is_serving, 30)
    kept = dict(values_kept(first.disk, FOLDER))
    world.history.check(
        {1: b"two", 2: b"three"} == kept, "acked records survive", f"behind the damage only {sorted(kept)} are kept"
    )
    world.history.check(end_of(first) >= 3, "one record per offset", f"offset {end_of(first)} is given out again")


async def an_older_store_is_refused(world: SimulatedWorld) -> None:
    """All brokers are stopped, and find a store from before the topic was made; then the right one."""
    world.boot()
    await world.wait_until(world.has_begun, 20)
    backup = world.ensemble.backup()
    await begin(world, min_in_sync=2)
    for value in VALUES:
        await write(world, value)
    # Until it is written down how new the metadata is.
    await asyncio.sleep(3)
    await stop_all(world)
    right = world.ensemble.backup()
    world.ensemble.restore(backup)
    for machine in world.machines:
        machine.boot()
    await asyncio.sleep(8)
    for machine in world.machines:
        world.history.check(not machine.is_serving, "an older store is refused", f"{machine.host} serves with it")
        world.history.check(
            PARTITION in held_by(machine.disk, DATA_DIR), "nothing is removed", f"{machine.host}: {FOLDER} is gone"
        )
        machine.kill()
    world.ensemble.restore(right)
    await values_are_there(world)


async def an_unknown_folder_is_set_aside(world: SimulatedWorld) -> None:
    """A broker finds a folder with records whose topic the store has never heard of."""
    first, *_ = await begin_with_segments(world)
    await first.stop()
    ghost = TopicPartition("ghost", 0)
    first.disk.rename(FOLDER, f"{DATA_DIR}/{ghost}")
    file = first.disk.open(f"{DATA_DIR}/{ghost}/{PARTITION_METADATA}")
    file.truncate(0)
    file.write_at(0, [b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"])
    file.close()
    first.boot()
    await world.wait_until(world.is_whole, 30)
    # After the usual delay what was removed is gone.
    await asyncio.sleep(70)
    kept = [name for name in first.disk.list_dir(DATA_DIR) if name.startswith("ghost")]
    copies = [read_copy(first.disk, f"{DATA_DIR}/{name}") for name in kept]
    found = [list(copy.values.values()) for copy in copies if copy is not None]
    world.history.check([list(VALUES)] == found, "nothing is removed", f"of the unknown folder {kept} is left")
    await values_are_there(world)


async def lost_metadata_is_recovered(world: SimulatedWorld) -> None:
    """All brokers are killed, and find an empty store: they put the metadata together from their folders."""
    await begin_with_segments(world)
    for machine in world.machines:
        kill(world, machine)
    world.ensemble.restore(EMPTY_STORE)
    await first_is_back_alone(world)
    await values_are_there(world)


LOSS_STORIES = [
    ("holes are not missed", a_missing_segment_is_missed),
    ("holes are not missed", a_missing_first_segment_is_missed),
    ("damage ends the log", what_is_behind_damage_is_kept),
    ("older stores are trusted", an_older_store_is_refused),
    ("unknown folders are removed", an_unknown_folder_is_set_aside),
    (None, lost_metadata_is_recovered),
]
"""With the planted bug that each finds."""
