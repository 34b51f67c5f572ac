"""What may happen to a cluster, chosen from a seed: each life has some kinds of danger, and its own rhythm.

What may be harmed at a time is in `harm.py`; what is lost from disks that no process uses, in `losses.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.model.ids import TopicPartition
from ottla.sim.disk_copies import CHECKED_FROM, held_by, places, segments
from ottla.sim.life import Life, chosen
from ottla.sim.machine import DATA_DIR, Machine
from ottla.sim.random import SimRandom

KINDS: Final = (
    "kill", "crash", "restart", "freeze", "cut", "one-way cut", "isolate", "cut from store", "store outage",
    "expire session", "store loses answers", "lossy network", "breaking connections", "slow link", "clock jump",
    "full disk", "failing sync", "clients cut off",
)  # fmt: skip
RARE_KINDS: Final = ("long clock jump", "clock drift", "slow disk", "rotten bit", "kill client")
"""Drawn by a generator of their own."""
RARE_SHARE: Final = 0.12
HOUR_MS: Final = 3_600_000


class Dangers:
    """See the module's docstring; `run` until the life is calm."""

    def __init__(self, life: Life, rare: SimRandom, kinds: list[str] | None = None) -> None:
        self._life = life
        self._harm = life.harm
        self._random = life.random.fork()
        self.kinds = kinds if kinds is not None else chosen(self._random, KINDS, 0.3)
        if kinds is None:
            self.kinds += [each for each in RARE_KINDS if rare.random() < RARE_SHARE]
            self.kinds += ["blackout"] if life.is_flushed else []
        self._pause_seconds = 0.4 + (3 if kinds is None else 0.6) * self._random.random()

    async def run(self) -> None:
        """One danger after another, some at the same time."""
        deeds: dict[str, Callable[[Machine], Awaitable[None]]] = {
            "kill": self._kill,
            "crash": self._crash,
            "restart": self._restart,
            "freeze": self._freeze,
            "cut": self._cut,
            "one-way cut": self._cut_one_way,
            "isolate": self._isolate,
            "cut from store": self._cut_from_store,
            "store outage": self._store_outage,
            "expire session": self._expire,
            "store loses answers": self._lose_answers,
            "lossy network": self._lossy,
            "breaking connections": self._breaking,
            "slow link": self._slow,
            "clock jump": self._clock_jump,
            "full disk": self._full_disk,
            "failing sync": self._failing_sync,
            "clients cut off": self._cut_clients,
            "long clock jump": self._long_clock_jump,
            "clock drift": self._drift,
            "slow disk": self._slow_disk,
            "rotten bit": self._rot,
            "kill client": self._kill_client,
            "blackout": self._black_out,
        }
        life, random = self._life, self._random
        life.history.note(f"dangers: {', '.join(self.kinds)}")
        while not life.is_calm:
            await asyncio.sleep(self._pause_seconds * (0.2 + 1.6 * random.random()))
            kind = self.kinds[random.randrange(len(self.kinds))]
            machine = life.machines[random.randrange(len(life.machines))]
            if not life.is_calm:
                life.run_beside(self._do(kind, deeds[kind], machine))

    async def _do(self, kind: str, deed: Callable[[Machine], Awaitable[None]], machine: Machine) -> None:
        self._life.history.note(f"danger: {kind} ({machine.host})")
        self._life.history.fault_counts[kind] += 1
        await deed(machine)

    async def _a_while(self, most: float = 8.0) -> None:
        """Until the danger ends, or the life is calm."""
        await self._life.wait_until(lambda: self._life.is_calm, 0.1 + most * self._random.random() ** 2)

    # Machines and processes

    async def _kill(self, machine: Machine) -> None:
        machine.kill()
        await self._a_while()
        if machine.is_up:
            machine.boot()

    async def _crash(self, machine: Machine) -> None:
        if not self._harm.may_crash(machine):
            return
        self._harm.on_machine_lost(machine)
        machine.crash()
        await self._a_while()
        machine.boot()

    async def _black_out(self, _: Machine) -> None:
        machines = [each for each in self._life.machines if self._harm.may_crash(each)]
        for machine in machines:
            self._harm.on_machine_lost(machine)
            machine.crash()
        await self._a_while(3)
        for machine in machines:
            machine.boot()

    async def _restart(self, machine: Machine) -> None:
        if not self._harm.may_stop():
            return
        await machine.stop()
        await self._a_while(3)
        if machine.is_up:
            machine.boot()

    async def _freeze(self, machine: Machine) -> None:
        process = machine.process
        if process is not None:
            process.stop()
            await self._a_while(10)
            if process.is_stopped:
                process.resume()

    async def _kill_client(self, _: Machine) -> None:
        """Kills a client that writes; another takes its place, with the same transactional id."""
        names = [name for name, program in self._life.programs.items() if program.may_be_killed]
        name = names[self._random.randrange(len(names))]
        program = self._life.programs[name]
        if program.process is None or not program.process.is_alive:
            return
        self._life.history.note(f"{name} is killed")
        program.process.end()
        self._life.wire.end_process(program.process)
        await self._a_while(15)
        self._life.begin(name, program.make, may_be_killed=True)

    # The network

    async def _cut(self, machine: Machine) -> None:
        await self._cut_for_a_while([(machine.host, self._other(machine))], both=True)

    async def _cut_one_way(self, machine: Machine) -> None:
        await self._cut_for_a_while([(machine.host, self._other(machine))], both=False)

    async def _isolate(self, machine: Machine) -> None:
        others = [each.host for each in self._life.machines if each is not machine]
        await self._cut_for_a_while([(machine.host, each) for each in others], both=self._random.random() < 0.7)

    async def _cut_clients(self, machine: Machine) -> None:
        await self._cut_for_a_while(
            [(each, machine.host) for each in self._life.clients], both=self._random.random() < 0.7
        )

    async def _cut_for_a_while(self, links: list[tuple[str, str]], *, both: bool) -> None:
        every = [*links, *((target, source) for source, target in links if both)]
        for source, target in every:
            self._life.wire.cut(source, target)
        await self._a_while()
        for source, target in every:
            self._life.wire.heal(source, target)

    def _other(self, machine: Machine) -> str:
        others = [each.host for each in self._life.machines if each is not machine]
        return others[self._random.randrange(len(others))]

    async def _lossy(self, _: Machine) -> None:
        self._life.wire.faults.lost_share = 0.1 * self._random.random()
        await self._a_while()
        self._life.wire.faults.lost_share = 0.0

    async def _breaking(self, _: Machine) -> None:
        self._life.wire.faults.break_share = 0.03 * self._random.random()
        await self._a_while()
        self._life.wire.faults.break_share = 0.0

    async def _slow(self, machine: Machine) -> None:
        other = self._other(machine)
        self._life.wire.slow(machine.host, other, 500 * self._random.random())
        await self._a_while()
        self._life.wire.slow(machine.host, other, 0)

    # The store

    async def _cut_from_store(self, machine: Machine) -> None:
        store = machine.store
        if store is not None:
            self._life.ensemble.cut(store)
            await self._a_while()
            self._life.ensemble.heal(store)

    async def _store_outage(self, _: Machine) -> None:
        self._life.ensemble.begin_outage()
        await self._a_while()
        self._life.ensemble.end_outage()

    async def _expire(self, machine: Machine) -> None:
        if machine.store is not None and machine.store.session is not None:
            self._life.ensemble.expire(machine.store.session.token)

    async def _lose_answers(self, _: Machine) -> None:
        faults = self._life.ensemble.faults
        faults.lost_answer_share = faults.lost_request_share = 0.3 * self._random.random()
        await self._a_while()
        faults.lost_answer_share = faults.lost_request_share = 0.0

    # Clocks and disks

    async def _clock_jump(self, machine: Machine) -> None:
        machine.clock.jump(int((self._random.random() - 0.5) * 20_000))

    async def _long_clock_jump(self, machine: Machine) -> None:
        machine.clock.jump(int((self._random.random() - 0.5) * 4 * HOUR_MS))

    async def _drift(self, machine: Machine) -> None:
        machine.clock.drift(0.98 + 0.04 * self._random.random())
        await self._a_while()
        machine.clock.drift(1.0)

    async def _slow_disk(self, machine: Machine) -> None:
        machine.disk.latency_seconds = 2 * self._random.random() ** 2
        await self._a_while()
        machine.disk.latency_seconds = 0.0

    async def _rot(self, machine: Machine) -> None:
        """A bit turns over in a copy that others have, too, while no process runs that could have seen it before."""
        if not self._harm.may_crash(machine) or not self._harm.is_none():
            return
        machine.kill()
        partitions = held_by(machine.disk, DATA_DIR)
        self._turn_over(machine, partitions[self._random.randrange(len(partitions))])
        await self._a_while(2)
        machine.boot()

    def _turn_over(self, machine: Machine, partition: TopicPartition) -> None:
        disk = machine.disk
        batches = [place for path in segments(disk, f"{DATA_DIR}/{partition}") for place in places(disk, path)]
        if not batches:
            return
        path, start, size, _, _ = batches[self._random.randrange(len(batches))]
        position = start + CHECKED_FROM + self._random.randrange(size - CHECKED_FROM)
        disk.flip(path, position, self._random.randrange(8))
        self._life.rotten.add((machine.id, *partition))
        self._life.history.note(f"{machine.host}: a bit turns over in {path} at {position}")

    async def _full_disk(self, machine: Machine) -> None:
        machine.may_fail = True
        machine.disk.capacity = machine.disk.used_bytes() + self._random.randrange(20_000)
        await self._a_while()
        machine.disk.capacity = None
        machine.kill()
        await self._a_while(2)
        machine.may_fail = False
        if machine.is_up:
            machine.boot()

    async def _failing_sync(self, machine: Machine) -> None:
        """The next change of the disk fails; afterwards the broker is started anew, as an operator would.

        Nobody can say what a disk has that failed, so this is one loss more, as a power cut is.
        """
        if not self._life.is_flushed:
            if not self._harm.is_none():
                return
            self._harm.on_machine_lost(machine)
        machine.may_fail = True
        machine.disk.fail_at(machine.disk.operation_count + self._random.randrange(20), OSError(5, "simulated"))
        await self._a_while()
        machine.kill()
        # If no process ran that it could strike, it must not strike the next one.
        machine.disk.faults.forget_plans()
        await self._a_while(2)
        machine.may_fail = False
        if machine.is_up:
            machine.boot()
