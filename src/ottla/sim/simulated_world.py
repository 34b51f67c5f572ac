"""The world of a simulated run: machines, clients, faults and checks; first with faults, then healed.

`SimulatedWorld` has the parts and the phases. `fault_injector.py` chooses faults, `workloads/` has the clients,
`checkers/` the invariants. The seed decides everything.
"""

import asyncio
import gc
import logging
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.metadata.changes import image_of
from ottla.metadata.image import ClusterImage
from ottla.metadata.store import Entry
from ottla.sim.clients import ClientMachine
from ottla.sim.fault_limits import FaultLimits
from ottla.sim.history import History
from ottla.sim.loop import DeadlockError, Process, SpinError, VirtualLoop
from ottla.sim.machine import PORT, Machine
from ottla.sim.machine_clock import MachineClock
from ottla.sim.network import Wire
from ottla.sim.random import SimRandom
from ottla.sim.store import SimMetadata

if TYPE_CHECKING:
    from ottla.sim.checkers import Checker

SESSION_TIMEOUT_MS: Final = 3_000
LOOK_SECONDS: Final = 0.1
SETTINGS: Final = {
    "num.partitions": "2",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    "replica.lag.time.max.ms": "2000",
    "group.initial.rebalance.delay.ms": "200",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "log.roll.ms": "5000",
    "log.retention.check.interval.ms": "10000",
    "replica.high.watermark.checkpoint.interval.ms": "2000",
    "log.flush.offset.checkpoint.interval.ms": "4000",
}
"""Settings of a small cluster with short timeouts."""


class Program(NamedTuple):
    """A client that runs until the end of the run."""

    process: Process | None
    task: asyncio.Task[None]
    make: Callable[[], Coroutine[Any, Any, None]]
    may_be_killed: bool


class SimulatedWorld:
    """The world of one run. Must be created inside of its event loop."""

    def __init__(
        self, loop: VirtualLoop, seed: int, *, brokers: int = 3, settings: Mapping[str, str] = SETTINGS
    ) -> None:
        self.loop = loop
        self.seed = seed
        self.random = SimRandom(seed)
        self.history = History(loop)
        self.wire = Wire(loop, self.random.fork())
        self.ensemble = SimMetadata(MachineClock(loop), self.random.fork(), session_timeout_ms=SESSION_TIMEOUT_MS)
        self.machines = [
            Machine(
                number,
                loop,
                self.wire,
                self.ensemble,
                self.random.fork(),
                settings=settings,
                note=self.history.note,
                broken=lambda what: self.history.violated("brokers go on", what),
            )
            for number in range(1, brokers + 1)
        ]
        self.clients: dict[str, ClientMachine] = {}
        self.checkers: list[Checker] = []
        self.is_calm = False
        """Whether no more faults are injected."""
        self.healed_at = 0.0
        """When that was so, in the world's time."""
        self.whole_at = 0.0
        """When every replica was in sync again after that."""
        self.is_over = False
        """Whether clients should stop."""
        self.works: list[asyncio.Task[None]] = []
        self.programs: dict[str, Program] = {}
        """The tasks of clients by name, which stop at the end of the run."""
        self.numbers: dict[str, Iterator[int]] = defaultdict(partial(count, 1))
        """Counters of clients by name, over all their processes."""
        self.rotten: set[tuple[int, str, int]] = set()
        """(broker, topic, partition) of replicas with a flipped bit."""
        self.fault_limits = FaultLimits(self)
        """Losses that are not yet repaired."""
        self.is_flushed = False
        """Whether acknowledged records are synced, so that all machines may lose power at once."""
        loop.set_exception_handler(self._on_unexpected)

    def _on_unexpected(self, _: asyncio.AbstractEventLoop, what: dict[str, Any]) -> None:
        error = what.get("exception")
        if error is not None and not any(each.excuses(error) for each in self.machines):
            self.history.violated("nothing unexpected", f"{what.get('message')}: {error!r}")

    # Parts

    def client(self, name: str) -> ClientMachine:
        """The machine of a client with this name, created on first use."""
        if name not in self.clients:
            bootstrap = [(each.host, PORT) for each in self.machines]
            self.clients[name] = ClientMachine(name, self.loop, self.wire, self.random.fork(), bootstrap)
        return self.clients[name]

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> tuple[Process, asyncio.Task[None]]:
        """Runs a client in its own process."""
        process = self.loop.process(name)
        return process, process.spawn(work)

    def begin(self, name: str, make: Callable[[], Coroutine[Any, Any, None]], *, may_be_killed: bool = False) -> None:
        """Runs a client until the end of the run; also to replace a killed one."""
        process, task = self.spawn(name, make())
        self.programs[name] = Program(process, task, make, may_be_killed)

    def run_beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs a task of the simulator for the rest of the run."""
        task = self.loop.create_task(work)
        self.works.append(task)
        return task

    def truth(self) -> ClusterImage:
        """The present image of the metadata store."""
        entries: list[Entry] = self.ensemble.table.entries()
        return image_of(self.ensemble.table.revision, entries)

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has."""
        return len(self.truth().topics[topic].partitions)

    # Phases

    def flush_each(self) -> None:
        """Makes brokers sync before they acknowledge; before the cluster is booted."""
        self.is_flushed = True
        self.history.note("everything is flushed before it is acknowledged")
        for machine in self.machines:
            machine.settings["log.flush.interval.messages"] = "1"

    def boot(self) -> None:
        """Starts all machines and the checkers."""
        for machine in self.machines:
            machine.boot()
        self.run_beside(self._look())
        self.run_beside(self._follow_store())

    async def _follow_store(self) -> None:
        """Traces every change of leaders, ISRs and registered brokers."""
        told: dict[str, str] = {}
        while True:
            image = self.truth()
            now = {
                f"{topic.name}-{index}": f"leader {partition.leader} epoch {partition.leader_epoch} isr "
                f"{list(partition.isr)} of {list(partition.replicas)}"
                + (f", eligible {list(partition.eligible)}" if partition.eligible else "")
                for topic in image.topics.values()
                for index, partition in enumerate(topic.partitions)
            }
            now["registered"] = f"{sorted(image.brokers)}, controller {image.controller}"
            for name, state in now.items():
                if told.get(name) != state:
                    self.history.note(f"{name}: {state}")
            told = now
            await self.ensemble.wait_changed()

    async def _look(self) -> None:
        second = 0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for checker in self.checkers:
                checker.look(self)
            if self.loop.time() >= second + 1:
                second = int(self.loop.time())
                end_offsets = ",".join(f"{len(each)}" for each in self.history.acked.values())
                self.history.note(
                    f"tick {self.loop.steps} steps, revision {self.ensemble.table.revision}, acked {end_offsets}"
                )

    async def wait_until(self, what: Callable[[], bool], seconds: float) -> bool:
        """Whether the condition became true within that time."""
        deadline = self.loop.time() + seconds
        while not what():
            if self.loop.time() >= deadline:
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return True

    def heal(self) -> None:
        """Ends all faults."""
        self.is_calm = True
        self.healed_at = self.loop.time()
        self.history.note("healed")
        self.wire.heal_all()
        self.ensemble.end_outage()
        self.ensemble.faults.lost_answer_share = self.ensemble.faults.lost_request_share = 0.0
        for machine in self.machines:
            if machine.store is not None:
                self.ensemble.heal(machine.store)
            machine.disk.capacity = None
            machine.disk.latency_seconds = 0.0
            machine.clock.set_right()
            machine.disk.heal()
            if machine.may_fail:
                machine.kill()
            if machine.process is not None and machine.process.is_stopped:
                machine.process.resume()
            machine.boot()

    def has_begun(self) -> bool:
        """Whether all brokers are ready and see each other, so that replicas are placed on all of them."""
        return all(
            each.is_serving and each.broker is not None and len(each.broker.image.brokers) == len(self.machines)
            for each in self.machines
        )

    def is_manned(self) -> bool:
        """Whether every client runs: only the successor of a killed client completes its work."""
        return all(each.process is None or each.process.is_alive for each in self.programs.values())

    def is_whole(self) -> bool:
        """Whether every broker is ready, and every replica of every partition is in sync."""
        if not all(machine.is_serving for machine in self.machines):
            return False
        image = self.truth()
        return all(
            set(partition.isr) == set(partition.replicas)
            and partition.leader in partition.isr
            and not partition.adding
            and not partition.removing
            for topic in image.topics.values()
            for partition in topic.partitions
        )


Story = Callable[[SimulatedWorld], Coroutine[Any, Any, None]]
"""What happens in a simulation."""


def run(story: Story, seed: int, *, brokers: int = 3, to_first: bool = False) -> History:
    """Runs one simulation on its own loop, and cleans up; with `to_first`, only to the first violation."""
    loop = VirtualLoop()
    world = SimulatedWorld(loop, seed, brokers=brokers)
    history = world.history
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    hook = sys.unraisablehook
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        asyncio.set_event_loop(loop)
        task = loop.create_task(story(world))
        if to_first:
            history.on_violation = loop.stop
        try:
            loop.run_until_complete(task)
        except (DeadlockError, SpinError) as error:
            history.violated("time goes on", str(error))
        except RuntimeError:
            if not to_first or not history.violations:
                raise
        return history
    finally:
        # Tasks of dead processes are unwound here, where they have no effect; their errors are not reported.
        sys.unraisablehook = lambda _: None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loop.forget()
            asyncio.set_event_loop(None)
            loop.close()
            del task, world
            # The errors of what is unwound hold what it would have awaited until the next collection.
            while gc.collect():
                pass
        sys.unraisablehook = hook
        logging.disable(level)
        if was_collecting:
            gc.enable()


def chosen(random: SimRandom, kinds: Sequence[str], share: float) -> list[str]:
    """Some of these, each with this probability, at least one."""
    some = [each for each in kinds if random.random() < share]
    return some or [kinds[random.randrange(len(kinds))]]
