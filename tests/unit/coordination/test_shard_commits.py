"""What a coordinator makes of decisions that are written, and not yet as safe as they must be."""

import asyncio
from typing import Any

from ottla.coordination.runtime.effects import Respond, Write
from ottla.coordination.runtime.shard import Shard
from ottla.model.errors import UnknownPartitionError
from ottla.model.ids import BrokerId, Offset
from ottla.sim.clock import SimClock
from tests.unit.coordination.runtime.test_shard import Counting
from tests.unit.replication.rig import ME, PartitionRig

OTHER = BrokerId(2)


class Deeds:
    """A shard over a partition with another replica in sync, and what became of its effects."""

    def __init__(self, rig: PartitionRig) -> None:
        self.performed: list[Any] = []
        self.left_out: list[Any] = []
        self.rig = rig
        self.partition = rig.partition
        self.shard = Shard(
            rig.partition,
            Counting(),
            clock=SimClock(),
            disk=rig.disk,
            timers=rig.timers,
            perform=self.performed.append,
            leave_out=self.left_out.append,
        )

    @classmethod
    async def make(cls) -> "Deeds":
        deeds = cls(await PartitionRig.make(min_insync_replicas=2, isr=(ME, OTHER)))
        await deeds.shard.load()
        return deeds

    def copy(self) -> None:
        """The other replica has everything."""
        self.partition.on_follower_fetch(
            OTHER, offset=self.partition.end_offset, start_offset=Offset(0), broker_epoch=-1
        )

    def set_isr(self, *isr: BrokerId) -> None:
        self.partition.on_isr((ME, OTHER), isr)


async def test_what_rests_on_too_few_replicas_is_left_out_and_told() -> None:
    deeds = await Deeds.make()
    token = asyncio.get_running_loop().create_future()
    deeds.shard.carry_out([*deeds.shard.machine.add(b"a", 0, token), "marker"])
    deeds.set_isr(ME)
    assert ("failed", {b"a": 1}) == (await token, deeds.shard.machine.sums), "it is written, though not safe"
    assert ([], ["marker"]) == (deeds.performed, deeds.left_out)
    deeds.set_isr(ME)
    deeds.shard.carry_out(["marker again"])
    assert ([], ["marker", "marker again"]) == (deeds.performed, deeds.left_out), "nothing has changed"
    deeds.set_isr(ME, OTHER)
    deeds.shard.carry_out(["marker at last"])
    assert [] == deeds.performed, "the other one is in sync again, and yet lacks what it rests on"
    deeds.copy()
    assert ["marker at last"] == deeds.performed
    assert ["marker", "marker again"] == deeds.left_out


async def test_what_waits_behind_the_failing_write_of_another_is_told() -> None:
    deeds = await Deeds.make()
    loop = asyncio.get_running_loop()
    first, second, third = loop.create_future(), loop.create_future(), loop.create_future()
    deeds.set_isr(ME)
    shard = deeds.shard
    shard.carry_out(
        [
            *shard.machine.add(b"a", 0, first),
            "marker",
            *shard.machine.add(b"b", 0, second),
            Write((), (Respond(third, "seen"),), (Respond(third, "not seen"),)),
        ]
    )
    assert ("failed", "failed", "not seen") == (await first, await second, await third)
    assert ([], ["marker"], {}) == (deeds.performed, deeds.left_out, shard.machine.sums)


async def test_what_was_loaded_is_told_and_acted_on_once_it_is_committed() -> None:
    deeds = await Deeds.make()
    deeds.shard.carry_out(deeds.shard.machine.add(b"a", 0, None))
    again = Deeds(deeds.rig)
    await again.shard.load()
    seen = asyncio.get_running_loop().create_future()
    again.shard.carry_out([Write((), (Respond(seen, "seen"),)), "marker"])
    assert ({b"a": 1}, False, []) == (again.shard.machine.sums, seen.done(), again.performed)
    again.copy()
    assert ("seen", ["marker"]) == (await seen, again.performed)


async def test_a_refused_write_does_not_hide_what_is_not_committed() -> None:
    """The first write is in the log of too few replicas, the second is refused: what the first changed is not told."""
    deeds = await Deeds.make()
    shard, loop = deeds.shard, asyncio.get_running_loop()
    first, second, third = loop.create_future(), loop.create_future(), loop.create_future()
    shard.carry_out(shard.machine.add(b"a", 0, first))
    deeds.set_isr(ME)
    shard.carry_out(shard.machine.add(b"a", 0, second))
    assert ("failed", "failed", {b"a": 1}) == (await first, await second, shard.machine.sums)
    shard.carry_out([Write((), (Respond(third, "seen"),), (Respond(third, "not seen"),)), "marker"])
    assert ("not seen", [], ["marker"]) == (await third, deeds.performed, deeds.left_out)
    deeds.set_isr(ME, OTHER)
    last = loop.create_future()
    shard.carry_out([Write((), (Respond(last, "seen"),), (Respond(last, "not seen"),))])
    assert not last.done(), "the other replica does not have it yet"
    deeds.copy()
    assert "seen" == await last


async def test_writes_that_are_refused_one_after_the_other_wait_for_the_same_commit() -> None:
    """A partition may have too few replicas for hours, and clients repeat their requests all the while."""
    deeds = await Deeds.make()
    shard, loop = deeds.shard, asyncio.get_running_loop()
    first = loop.create_future()
    shard.carry_out(shard.machine.add(b"a", 0, first))
    deeds.set_isr(ME)
    assert "failed" == await first
    before = len(deeds.partition._state._waiting_for_commit)
    for _ in range(10):
        token = loop.create_future()
        shard.carry_out(shard.machine.add(b"a", 0, token))
        assert "failed" == await token
    assert before == len(deeds.partition._state._waiting_for_commit)
    deeds.set_isr(ME, OTHER)
    written, seen = loop.create_future(), loop.create_future()
    shard.carry_out([*shard.machine.add(b"a", 0, written), Write((), (Respond(seen, "seen"),))])
    assert (False, False) == (written.done(), seen.done())
    deeds.copy()
    assert (2, "seen") == (await written, await seen)
    assert 0 == len(deeds.partition._state._waiting_for_commit)


async def test_what_waits_is_told_when_the_partition_was_deleted() -> None:
    deeds = await Deeds.make()
    shard, loop = deeds.shard, asyncio.get_running_loop()
    written, seen = loop.create_future(), loop.create_future()
    shard.carry_out(shard.machine.add(b"a", 0, written))
    deeds.partition.fail_waiting(UnknownPartitionError("t-0 was deleted"))
    assert "failed" == await written
    shard.carry_out([Write((), (Respond(seen, "seen"),), (Respond(seen, "not seen"),)), "marker"])
    shard.unload()
    assert ("not seen", [], ["marker"]) == (await seen, deeds.performed, deeds.left_out)
