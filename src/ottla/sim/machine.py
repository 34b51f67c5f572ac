"""A broker's machine: its disk, its clock, and the broker that runs on it, is killed, crashes and comes back."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.env.inline_helper import InlineHelper
from ottla.env.world import World
from ottla.model.errors import OttlaError
from ottla.sim.disk import SimDisk
from ottla.sim.loop import Process, VirtualLoop
from ottla.sim.machine_clock import MachineClock
from ottla.sim.network import SimNetwork, Wire
from ottla.sim.random import SimRandom
from ottla.sim.store import SimMetadata, SimStore

DATA_DIR: Final = "/data"
PORT: Final = 9092
RESTART_SECONDS: Final = 1.0
STORE_TIMEOUT_MS: Final = 6_000


class Machine:
    """One machine. `note` is called with what happens to it, `broken` with what must never happen."""

    def __init__(
        self,
        broker_id: int,
        loop: VirtualLoop,
        wire: Wire,
        ensemble: SimMetadata,
        random: SimRandom,
        *,
        settings: Mapping[str, str],
        note: Callable[[str], None],
        broken: Callable[[str], None],
    ) -> None:
        self.id: Final = broker_id
        self.host: Final = f"broker-{broker_id}"
        self.clock: Final = MachineClock(loop)
        self.disk = SimDisk(random.randrange(1 << 32))
        self.disk.now_ms = self.clock.now_ms
        self.broker: Broker | None = None
        self.store: SimStore | None = None
        self.process: Process | None = None
        self.is_up = True
        self.may_fail = False
        """Whether a broker may fail because of what was done to its disk."""
        self.accepts_older_metadata = False
        """Whether its next broker accepts an older metadata store."""
        self._loop = loop
        self._wire = wire
        self._ensemble = ensemble
        self._random = random
        self.settings = dict(settings)
        """The configs of its next broker."""
        self._note = note
        self._broken = broken
        self._lives = 0

    @property
    def is_running(self) -> bool:
        """Whether there is a broker process."""
        return self.process is not None

    @property
    def is_serving(self) -> bool:
        """Whether its broker has started, and is registered as far as it knows."""
        return self.broker is not None and self.broker.is_ready and self.broker.is_registered

    def excuses(self, error: BaseException) -> bool:
        """Whether an error may come from what was done to the disk."""
        return self.may_fail and isinstance(error, (OSError, OttlaError))

    def boot(self) -> None:
        """Starts the broker, and restarts it if it fails."""
        if self.process is not None:
            return
        self._lives += 1
        self._note(f"{self.host} starts")
        if not self.is_up:
            self.is_up = True
            self._wire.set_up(self.host)
        process = self.process = self._loop.process(f"{self.host} life {self._lives}")
        self.store = SimStore(self._ensemble, self.clock, process.name, request_timeout_ms=STORE_TIMEOUT_MS)
        settings = {
            "node.id": str(self.id),
            "listeners": f"PLAINTEXT://{self.host}:{PORT}",
            "log.dirs": DATA_DIR,
            **self.settings,
        }
        world = World(
            clock=self.clock,
            disk=self.disk,
            network=SimNetwork(self._wire, self.host),
            random=self._random.fork(),
            start_helper=InlineHelper,
        )
        self.broker = Broker(
            BrokerConfig.parse(settings=settings),
            world=world,
            store=self.store,
            accept_older_metadata=self.accepts_older_metadata,
        )
        process.spawn(self._live(process, self.broker))

    async def _live(self, process: Process, broker: Broker) -> None:
        try:
            await broker.start()
            self._note(f"{self.host} serves")
            error = await broker.wait_failure()
        except (OttlaError, OSError) as failed:
            # As under a supervisor: the store or the disk may be available at the next attempt.
            self._note(f"{self.host} does not start: {type(failed).__name__}")
        else:
            self._note(f"{self.host} fails: {type(error).__name__}")
            if not self.excuses(error):
                self._broken(f"{self.host}: background task failed: {error!r}")
        if self.process is process:
            context = self._wire.context
            self._loop.call_soon(self.kill, context=context)
            self._loop.call_later(RESTART_SECONDS, self._boot_again, process, context=context)

    def _boot_again(self, after: Process) -> None:
        if self.process is None and self.is_up and after.name.endswith(f" {self._lives}"):
            self.boot()

    def kill(self) -> None:
        """Ends the process at once, like kill -9; what it wrote is still there."""
        if self.process is None:
            return
        self._note(f"{self.host} is killed")
        self._end_process()
        self.disk = self.disk.kill()

    def crash(self) -> None:
        """Cuts the machine's power: what was not synced may be lost, and its connections do not close."""
        if not self.is_up:
            return
        self._note(f"{self.host} loses power")
        self._wire.set_down(self.host)
        self.is_up = False
        self._end_process()
        self.disk = self.disk.crash(self._random.fork())

    def _end_process(self) -> None:
        if self.process is not None:
            self.process.end()
            self._wire.end_process(self.process)
        if self.store is not None:
            self._ensemble.heal(self.store)
            self.store.crash()
        self.process = self.broker = self.store = None

    async def stop(self) -> None:
        """Stops the broker as SIGTERM does, and waits for it; kills it if it takes too long."""
        process, broker = self.process, self.broker
        if process is None or broker is None:
            return
        self._note(f"{self.host} stops")
        task = process.spawn(broker.stop())
        await asyncio.wait([task], timeout=30)
        if self.process is process:
            if (
                task.done()
                and not task.cancelled()
                and (error := task.exception()) is not None
                and not self.excuses(error)
            ):
                self._broken(f"{self.host}: stopping failed: {error!r}")
            self._note(f"{self.host} has stopped" if task.done() else f"{self.host} does not stop")
            self._end_process()
            self.disk = self.disk.kill()
