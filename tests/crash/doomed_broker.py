"""A broker inside this process, in a thread of its own, that leaves what a killed one would leave at chosen points.

Everything of it is real: its disk is watched (`watched_disk.py`), and it is spoken to over a socket. It lives on after
the point, which does not matter: what counts is the next broker, opened on the copy.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Self, TypeVar

from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.env.world import real_world
from tests.crash.watched_disk import Point, WatchedDisk

T = TypeVar("T")
PATIENCE_S: Final = 30.0

SETTINGS: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}


class DoomedBroker:
    """Serves between `__enter__` and `__exit__`; `watch` says at which points its files are copied.

    Coordinators of the `held` topics are loading until they are released.
    """

    def __init__(self, data: Path, *, settings: Mapping[str, str] | None = None, held: Iterable[str] = ()) -> None:
        self.address = ""
        self._settings = {**SETTINGS, **(settings or {}), "log.dirs": str(data)}
        self._disk = WatchedDisk(data, data.with_name(f"{data.name}-left"), held)
        self._loop = asyncio.new_event_loop()
        self._is_over = asyncio.Event()
        self._is_started = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._live, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_started.wait(PATIENCE_S)
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join(PATIENCE_S)
        if self._failure is not None:
            raise self._failure

    def watch(self, points: Mapping[str, Point]) -> None:
        """From now on these are waited for."""
        self._on_loop(lambda: self._disk.watch(dict(points)))

    def release(self, topic: str) -> None:
        """The topic's coordinators are loaded soon."""
        self._on_loop(lambda: self._disk.release(topic))

    def kill(self, name: str = "now", *, loses_unsynced: bool = False) -> Path:
        """What it would leave if it were killed now."""
        return self._on_loop(lambda: self._disk.copy(name, loses_unsynced=loses_unsynced))

    def left_at(self, name: str) -> Path:
        """What it left at a point; it must have come there."""
        return self._on_loop(lambda: self._disk.copy_of(name))

    def has_reached(self, name: str) -> bool:
        """Whether it has come to a point."""
        return self._on_loop(lambda: self._disk.has_copied(name))

    def _on_loop(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE_S)

    def _live(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._is_started.set()

    async def _serve(self) -> None:
        world = replace(real_world(), disk=self._disk)
        async with Broker(BrokerConfig.parse(settings=self._settings), world=world) as broker:
            self.address = f"127.0.0.1:{broker.port}"
            self._is_started.set()
            await self._is_over.wait()
