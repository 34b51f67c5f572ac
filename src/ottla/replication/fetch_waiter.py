"""A fetch that waits until there is enough to read, or until its time is up. Partitions wake it; it never polls."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.replication.timers import Timers

if TYPE_CHECKING:
    from ottla.replication.partition import Partition


class FetchWaiter:
    """Waits at several partitions at once; calls `on_ready` once, from within the event that ends the wait."""

    __slots__ = ("_is_over", "_is_replica", "_on_ready", "_partitions", "_timer", "is_committed", "missing_bytes")

    def __init__(
        self,
        partitions: Iterable["Partition"],
        *,
        missing_bytes: int,
        is_committed: bool,
        max_wait_ms: int,
        timers: Timers,
        on_ready: Callable[[], None],
        is_replica: bool = False,
    ) -> None:
        self.missing_bytes = missing_bytes
        self.is_committed = is_committed
        """Whether only records below the last stable offset count."""
        self._partitions = tuple(partitions)
        self._on_ready = on_ready
        self._is_replica = is_replica
        self._is_over = False
        for partition in self._partitions:
            (partition.replica_waiters if is_replica else partition.fetch_waiters)[self] = None
        self._timer = timers.after(max_wait_ms, self.finish)

    def on_progress(self, added_bytes: int) -> None:
        """That many more bytes can be read."""
        self.missing_bytes -= added_bytes
        if self.missing_bytes <= 0:
            self.finish()

    def cancel(self) -> None:
        """Stops waiting without calling `on_ready`."""
        self._is_over = True
        self._timer.cancel()
        for partition in self._partitions:
            (partition.replica_waiters if self._is_replica else partition.fetch_waiters).pop(self, None)
        self._partitions = ()

    def finish(self) -> None:
        """Ends the wait, however much there is to read; does nothing if it has ended."""
        if not self._is_over:
            self.cancel()
            self._on_ready()
