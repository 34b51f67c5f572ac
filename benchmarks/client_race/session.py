"""What every client in the race does: open, send or read records, close.

Covers the frame and what is the same for all: records, batches, waits. The clients are in the modules beside this one.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

import uvloop

T = TypeVar("T")

PARTITIONS: Final = 4
KEYS: Final = [b"%08d" % number for number in range(1000)]
BATCH_BYTES: Final = 131_072
LINGER_MS: Final = 5
POLL_RECORDS: Final = 10_000
POLL_MS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Where a client runs, and with what."""

    bootstrap: str
    topic: str
    value: bytes


class Session:
    """One client, from the first connection on. `work` alone is timed."""

    name: ClassVar[str]
    share: ClassVar[int] = 1
    """How many times the records of the slowest it gets, so that all take about as long."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane

    def open(self) -> None:
        """Connects, and does what is done once; a consumer asks for nothing yet."""

    def work(self, count: int) -> None:
        """Sends `count` records, until they are acknowledged; or reads as many."""
        raise NotImplementedError

    def close(self) -> None:
        """Leaves nothing behind."""


class AsyncSession(Session):
    """One whose client needs an event loop: the same for all of them."""

    def open(self) -> None:
        """Starts the loop and the client in it."""
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.run(self.opened())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """In the loop."""
        return self._runner.run(work)

    async def opened(self) -> None:
        """`open` in the loop."""

    async def worked(self, count: int) -> None:
        """`work` in the loop."""
        raise NotImplementedError

    async def closed(self) -> None:
        """`close` in the loop."""

    def work(self, count: int) -> None:
        """See `worked`."""
        self.run(self.worked(count))

    def close(self) -> None:
        """Ends the client, then the loop."""
        self.run(self.closed())
        self._runner.close()


def check_read(read: int, size: int, lane: Lane) -> None:
    """Fails if a client read anything but what was written: its time would say nothing."""
    if size != read * len(lane.value):
        raise RuntimeError(f"{read} values of {lane.topic} have {size} bytes, not {len(lane.value)} each")
