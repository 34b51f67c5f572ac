"""A broker in a thread of the test's own process: the fastest to start, with the same code, sockets and files.

What it does not have is a process's own memory and interpreter: a load test wants `process_broker.py`.
"""

import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.client.loop_thread import LoopThread
from ottla.model.errors import MisuseError, OttlaError
from ottla.testing.broker_handle import BrokerDidNotStartError, BrokerHandle
from ottla.testing.sparse_copy import copy_folder

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.env.real_disk import RealDisk
    from ottla.testing.mortal_network import MortalNetwork
    from ottla.testing.mortal_store import MortalStore

_PAUSE_SECONDS: Final = 10.0


class InProcessBroker(BrokerHandle):
    """See `BrokerHandle`. `broker` is the broker itself, whose loop belongs to another thread."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str] | None = None, *, metadata: Path | None = None
    ) -> None:
        super().__init__(folder, settings, metadata=metadata)
        self._thread: LoopThread | None = None
        self._broker: Broker | None = None
        self._resumed: threading.Event | None = None
        self._disk: RealDisk | None = None
        self._network: MortalNetwork | None = None
        self._store: MortalStore | None = None

    @property
    def is_paused(self) -> bool:
        """See `BrokerHandle`."""
        return self._resumed is not None

    @property
    def is_running(self) -> bool:
        """See `BrokerHandle`."""
        return self._thread is not None

    @property
    def broker(self) -> "Broker":
        """The broker while it runs. Use it only to look at."""
        if self._broker is None:
            raise MisuseError("the broker does not run; `start` it first")
        return self._broker

    def start(self) -> None:
        """See `BrokerHandle`."""
        if self._thread is not None:
            raise MisuseError(f"the broker at {self.bootstrap} runs already")
        from ottla.env.real_disk import RealDisk

        thread, disk = LoopThread("ottla broker"), RealDisk()
        try:
            self._broker = thread.call(self._start(disk))
        except BaseException as error:
            thread.close()
            disk.close()
            if isinstance(error, OttlaError | OSError):
                raise BrokerDidNotStartError(f"the broker in {self.folder} did not start: {error}") from error
            raise
        self._thread, self._disk = thread, disk
        self.port = self._broker.port

    async def _start(self, disk: "RealDisk") -> "Broker":
        from ottla.broker.broker import Broker
        from ottla.broker.configuration import BrokerConfig
        from ottla.env.inline_helper import InlineHelper
        from ottla.env.real_clock import RealClock
        from ottla.env.real_random import RealRandom
        from ottla.env.world import World
        from ottla.testing.mortal_network import MortalNetwork
        from ottla.testing.mortal_store import MortalStore

        given = {"log.dirs": str(self.data), "listeners": f"PLAINTEXT://127.0.0.1:{self.port}"}
        config = BrokerConfig.parse(settings={**self.settings, **given})
        clock = RealClock()
        self._network = MortalNetwork()
        self._store = None
        if self.metadata is not None:
            session_ms = config.broker_session_timeout_ms
            self._store = MortalStore(str(self.metadata), clock, shared=True, lease_timeout_ms=session_ms)
        # Compaction happens in place of in a child: a test's folder is small, and a child would outlive a kill.
        world = World(
            clock=clock,
            disk=disk,
            network=self._network,
            random=RealRandom(),
            start_helper=InlineHelper,
        )
        broker = Broker(config, world=world, store=self._store)
        await broker.start()
        return broker

    def stop(self) -> None:
        """See `BrokerHandle`."""
        self._refuse_while_paused("stopped")
        self._clear_away()

    def kill(self) -> None:
        """See `BrokerHandle`. The files are kept as they are at this moment; what is done to them afterwards, while
        the broker's remains are cleared away, is undone."""
        if self._thread is None:
            return
        kept = self.folder / "data-when-killed"
        # Before a paused one goes on: it shall not answer what came meanwhile.
        self._thread.post(self._cut)
        self.resume()
        self._thread.call(self._keep(kept))
        self._clear_away()
        shutil.rmtree(self.data)
        kept.rename(self.data)

    def _cut(self) -> None:
        """Closes the port and every connection, in the middle of whatever is being said, and refuses what the broker
        would say to its cluster: nobody hears of what it does to its files from now on."""
        listener = self.broker.listener
        listener.stop_accepting()
        for connection in list(listener.connections):
            connection.close("the broker is killed")
        if self._network is not None:
            self._network.die()
        if self._store is not None:
            self._store.die()

    async def _keep(self, target: Path) -> None:
        # No other code of the broker runs while this does: it has one thread, but for the metadata file's, whose log
        # is made to be found at any moment.
        copy_folder(self.data, target)
        if self._store is not None:
            # Of a process that dies, the others are told at once.
            await self._store.end_session()

    def _clear_away(self) -> None:
        thread, broker, disk = self._thread, self._broker, self._disk
        self._thread = self._broker = self._disk = None
        if thread is None or broker is None or disk is None:
            return
        try:
            thread.call(broker.stop())
        finally:
            thread.close()
            disk.close()

    def pause(self) -> None:
        """See `BrokerHandle`."""
        if self._thread is None:
            raise MisuseError("the broker does not run, so it cannot be paused")
        if self._resumed is not None:
            return
        is_paused, resumed = threading.Event(), threading.Event()

        def hang() -> None:
            is_paused.set()
            resumed.wait()

        self._resumed = resumed
        self._thread.post(hang)
        if not is_paused.wait(_PAUSE_SECONDS):
            self.resume()
            raise MisuseError(f"the broker at {self.bootstrap} is too busy to be paused")

    def resume(self) -> None:
        """See `BrokerHandle`."""
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, replicas: int = 1
    ) -> str:
        """See `BrokerHandle`."""
        self._refuse_while_paused("asked for a topic")
        return super().create_topic(name, partitions, configs, replicas)

    def _refuse_while_paused(self, wish: str) -> None:
        if self._resumed is not None:
            raise MisuseError(f"the broker at {self.bootstrap} is paused, so it cannot be {wish}; `resume` it first")
