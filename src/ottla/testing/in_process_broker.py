"""A broker in a thread of the test process: the fastest to start, with the same code, sockets and files.

It shares memory and interpreter with the test; use `process_broker.py` for load tests.
"""

import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.client.loop_thread import LoopThread
from ottla.model.errors import MisuseError, OttlaError
from ottla.testing.broker_handle import BrokerDidNotStartError, BrokerHandle
from ottla.testing.sparse_copy import copy_folder

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.env.real_disk import RealDisk
    from ottla.security.scram_argument import ScramUser
    from ottla.testing.killable_network import KillableNetwork
    from ottla.testing.killable_store import KillableStore

_PAUSE_SECONDS: Final = 10.0


class InProcessBroker(BrokerHandle):
    """A broker in a thread. `broker` is the broker itself, whose event loop belongs to that thread."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str] | None = None, *, metadata: Path | None = None
    ) -> None:
        super().__init__(folder, settings, metadata=metadata)
        self._thread: LoopThread | None = None
        self._broker: Broker | None = None
        self._resumed: threading.Event | None = None
        self._disk: RealDisk | None = None
        self._network: KillableNetwork | None = None
        self._store: KillableStore | None = None

    @property
    def is_paused(self) -> bool:
        """Whether it is paused."""
        return self._resumed is not None

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped or killed."""
        return self._thread is not None

    @property
    def broker(self) -> "Broker":
        """The running broker. Only for reading."""
        if self._broker is None:
            raise MisuseError("the broker is not running; `start` it first")
        return self._broker

    def start(self) -> None:
        """Starts it on its data, and returns when it is ready."""
        if self._thread is not None:
            raise MisuseError(f"the broker at {self.bootstrap} is already running")
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
        self._on_started(self._broker)

    def _listeners(self) -> str:
        """The config `listeners`: after the first start, with the ports that it took."""
        return f"PLAINTEXT://{self.host}:{self._port_to_listen_on()}"

    def _first_users(self) -> "Sequence[ScramUser]":
        """The users to create before the broker listens."""
        return ()

    def _on_started(self, broker: "Broker") -> None:
        self.port = broker.port

    async def _start(self, disk: "RealDisk") -> "Broker":
        from ottla.broker.broker import Broker
        from ottla.broker.configs.configuration import BrokerConfig
        from ottla.env.inline_helper import InlineHelper
        from ottla.env.real_clock import RealClock
        from ottla.env.real_random import RealRandom
        from ottla.env.world import World
        from ottla.testing.killable_network import KillableNetwork
        from ottla.testing.killable_store import KillableStore

        given = {"log.dirs": str(self.data), "listeners": self._listeners()}
        config = BrokerConfig.parse(settings={**self.settings, **given})
        clock = RealClock()
        self._network = KillableNetwork()
        self._store = None
        if self.metadata is not None:
            session_ms = config.broker_session_timeout_ms
            self._store = KillableStore(str(self.metadata), clock, shared=True, lease_timeout_ms=session_ms)
        # Compaction runs in process: a child process would outlive a kill.
        world = World(
            clock=clock,
            disk=disk,
            network=self._network,
            random=RealRandom(),
            start_helper=InlineHelper,
        )
        broker = Broker(config, world=world, store=self._store, first_users=self._first_users())
        await broker.start()
        return broker

    def stop(self) -> None:
        """Stops it cleanly."""
        self._refuse_while_paused("stopped")
        self._clear_away()

    def kill(self) -> None:
        """Ends it at once. The files are kept as they are now: what the broker writes during shutdown is undone."""
        if self._thread is None:
            return
        kept = self.folder / "data-when-killed"
        # Before a paused broker continues: it must not answer requests that came meanwhile.
        self._thread.post(self._cut)
        self.resume()
        self._thread.call(self._keep(kept))
        self._clear_away()
        shutil.rmtree(self.data)
        kept.rename(self.data)

    def _cut(self) -> None:
        """Closes the listener and every connection, and refuses writes to the metadata store: others do not see what
        the broker does to its files from now on."""
        listener = self.broker.parts.listeners
        listener.stop_accepting()
        for connection in list(listener.connections):
            connection.close("the broker is killed")
        if self._network is not None:
            self._network.die()
        if self._store is not None:
            self._store.die()

    async def _keep(self, target: Path) -> None:
        # No other code of the broker runs meanwhile, except the thread of the metadata file, whose log can be copied
        # at any moment.
        copy_folder(self.data, target)
        if self._store is not None:
            # Other brokers notice a dead process at once.
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
        """Makes it hang."""
        if self._thread is None:
            raise MisuseError("the broker is not running, so it cannot be paused")
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
        """Continues a paused broker."""
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, replicas: int = 1
    ) -> str:
        """Creates a topic and returns its name."""
        self._refuse_while_paused("asked for a topic")
        return super().create_topic(name, partitions, configs, replicas)

    def _refuse_while_paused(self, wish: str) -> None:
        if self._resumed is not None:
            raise MisuseError(f"the broker at {self.bootstrap} is paused, so it cannot be {wish}; `resume` it first")
