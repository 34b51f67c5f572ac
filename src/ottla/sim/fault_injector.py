"""Faults that happen to a cluster, chosen from a seed: each run has some kinds of faults, at its own pace.

`fault_limits.py` limits what may fail at a time; `losses.py` has losses of disks that no process uses.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.model.ids import TopicPartition
from ottla.sim.disk_copies import CHECKED_FROM, held_by, places, segments
from ottla.sim.machine import DATA_DIR, Machine
from ottla.sim.random import SimRandom
from ottla.sim.simulated_world import SimulatedWorld, chosen

KINDS: Final = (
    "kill", "crash", "restart", "freeze", "cut", "one-way cut", "isolate", "cut from store", "store outage",
    "expire session", "store loses answers", "lossy network", "breaking connections", "slow link", "clock jump",
    "full disk", "failing sync", "clients cut off",
)  # fmt: skip
RARE_KINDS: Final = ("long clock jump", "clock drift", "slow disk", "rotten bit", "kill client")
"""Chosen with a separate random generator."""
RARE_SHARE: Final = 0.12
HOUR_MS: Final = 3_600_000


class FaultInjector:
    """Injects faults until the calm phase of the run."""

    def __init__(self, world: SimulatedWorld, rare: SimRandom, kinds: list[str] | None = None) -> None:
        self._world = world
        self._fault_limits = world.fault_limits
        self._random = world.random.fork()
        self.kinds = kinds if kinds is not None else chosen(self._random, KINDS, 0.3)
        if kinds is None:
            self.kinds += [each for each in RARE_KINDS if rare.random() < RARE_SHARE]
            self.kinds += ["blackout"] if world.is_flushed else []
        self._pause_seconds = 0.4 + (3 if kinds is None else 0.6) * self._random.random()

    async def run(self) -> None:
        """Injects faults one after another, some at the same time."""
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
        world, random = self._world, self._random
        world.history.note(f"faults: {', '.join(self.kinds)}")
        while not world.is_calm:
            await asyncio.sleep(self._pause_seconds * (0.2 + 1.6 * random.random()))
            kind = self.kinds[random.randrange(len(self.kinds))]
            machine = world.machines[random.randrange(len(world.machines))]
            if not world.is_calm:
                world.run_beside(self._do(kind, deeds[kind], machine))

    async def _do(self, kind: str, deed: Callable[[Machine], Awaitable[None]], machine: Machine) -> None:
        self._world.history.note(f"fault: {kind} ({machine.host})")
        self._world.history.fault_counts[kind] += 1
        await deed(machine)

    async def _a_while(self, most: float = 8.0) -> None:
        """Waits until the fault ends, or the run is in its calm phase."""
        await self._world.wait_until(lambda: self._world.is_calm, 0.1 + most * self._random.random() ** 2)

    # Machines and processes

    async def _kill(self, machine: Machine) -> None:
        machine.kill()
        await self._a_while()
        if machine.is_up:
            machine.boot()

    async def _crash(self, machine: Machine) -> None:
        if not self._fault_limits.may_crash(machine):
            return
        self._fault_limits.on_machine_lost(machine)
        machine.crash()
        await self._a_while()
        machine.boot()

    async def _black_out(self, _: Machine) -> None:
        machines = [each for each in self._world.machines if self._fault_limits.may_crash(each)]
        for machine in machines:
            self._fault_limits.on_machine_lost(machine)
            machine.crash()
        await self._a_while(3)
        for machine in machines:
            machine.boot()

    async def _restart(self, machine: Machine) -> None:
        if not self._fault_limits.may_stop():
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
        """Kills a client that writes; another one replaces it, with the same transactional id."""
        names = [name for name, program in self._world.programs.items() if program.may_be_killed]
        name = names[self._random.randrange(len(names))]
        program = self._world.programs[name]
        if program.process is None or not program.process.is_alive:
            return
        self._world.history.note(f"{name} is killed")
        program.process.end()
        self._world.wire.end_process(program.process)
        await self._a_while(15)
        self._world.begin(name, program.make, may_be_killed=True)

    # The network

    async def _cut(self, machine: Machine) -> None:
        await self._cut_for_a_while([(machine.host, self._other(machine))], both=True)

    async def _cut_one_way(self, machine: Machine) -> None:
        await self._cut_for_a_while([(machine.host, self._other(machine))], both=False)

    async def _isolate(self, machine: Machine) -> None:
        others = [each.host for each in self._world.machines if each is not machine]
        await self._cut_for_a_while([(machine.host, each) for each in others], both=self._random.random() < 0.7)

    async def _cut_clients(self, machine: Machine) -> None:
        await self._cut_for_a_while(
            [(each, machine.host) for each in self._world.clients], both=self._random.random() < 0.7
        )

    async def _cut_for_a_while(self, links: list[tuple[str, str]], *, both: bool) -> None:
        every = [*links, *((target, source) for source, target in links if both)]
        for source, target in every:
            self._world.wire.cut(source, target)
        await self._a_while()
        for source, target in every:
            self._world.wire.heal(source, target)

    def _other(self, machine: Machine) -> str:
        others = [each.host for each in self._world.machines if each is not machine]
        return others[self._random.randrange(len(others))]

    async def _lossy(self, _: Machine) -> None:
        self._world.wire.faults.lost_share = 0.1 * self._random.random()
        await self._a_while()
        self._world.wire.faults.lost_share = 0.0

    async def _breaking(self, _: Machine) -> None:
        self._world.wire.faults.break_share = 0.03 * self._random.random()
        await self._a_while()
        self._world.wire.faults.break_share = 0.0

    async def _slow(self, machine: Machine) -> None:
        other = self._other(machine)
        self._world.wire.slow(machine.host, other, 500 * self._random.random())
        await self._a_while()
        self._world.wire.slow(machine.host, other, 0)

    # The store

    async def _cut_from_store(self, machine: Machine) -> None:
        store = machine.store
        if store is not None:
            self._world.ensemble.cut(store)
            await self._a_while()
            self._world.ensemble.heal(store)

    async def _store_outage(self, _: Machine) -> None:
        self._world.ensemble.begin_outage()
        await self._a_while()
        self._world.ensemble.end_outage()

    async def _expire(self, machine: Machine) -> None:
        if machine.store is not None and machine.store.session is not None:
            self._world.ensemble.expire(machine.store.session.token)

    async def _lose_answers(self, _: Machine) -> None:
        faults = self._world.ensemble.faults
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
        """Flips a bit in a replica that other brokers have too, while no process runs that could have read it."""
        if not self._fault_limits.may_crash(machine) or not self._fault_limits.is_none():
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
        self._world.rotten.add((machine.id, *partition))
        self._world.history.note(f"{machine.host}: a bit flips in {path} at {position}")

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
        """The next change of the disk fails; afterwards the broker is restarted, as an operator would do.

        The content of a failed disk is unknown, so this counts as a loss, like a power cut.
        """
        if not self._world.is_flushed:
            if not self._fault_limits.is_none():
                return
            self._fault_limits.on_machine_lost(machine)
        machine.may_fail = True
        machine.disk.fail_at(machine.disk.operation_count + self._random.randrange(20), OSError(5, "simulated"))
        await self._a_while()
        machine.kill()
        # If no process was running, the fault must not hit the next one.
        machine.disk.faults.forget_plans()
        await self._a_while(2)
        machine.may_fail = False
        if machine.is_up:
            machine.boot()
