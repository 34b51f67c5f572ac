"""Batches of Produce requests that wait until their partition's gate can decide about them.

The batches of one connection for one partition stay in order: while one waits, those behind it wait, too. Other
connections and other partitions are not held up.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import RetriableError
from ottla.records.batch import Batch
from ottla.replication.partition import Partition
from ottla.transport.connection import Connection

HELD_BYTES_MAX: Final = 64 * 1024 * 1024
CONNECTION_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of one connection, so that others can wait, too."""


class UndecidedError(Exception):
    """A gate must ask before it can decide about a batch. `decided` is done when it knows more; None for a batch that
    is only behind another one."""

    def __init__(self, batch: Batch, decided: "asyncio.Future[None] | None") -> None:
        super().__init__("the gate has to ask first")
        self.batch = batch
        self.decided = decided


class SchemasUnknownError(RetriableError):
    """It cannot be found out now whether the schema ids of a batch are valid. Nothing was written; try again."""

    code = ErrorCode.REQUEST_TIMED_OUT


Resume = Callable[[Batch], None]
"""Deals with a batch; raises `UndecidedError` if the gate has to ask again."""


class _Held(NamedTuple):
    batch: Batch
    resume: Resume


_Place = tuple[Connection, Partition]


class HeldBatches:
    """The batches that wait, for all clients."""

    def __init__(self) -> None:
        self.places: Final[dict[_Place, deque[_Held]]] = {}
        """The queues, by connection and partition; none is empty."""
        self.bytes = 0
        self._bytes_by_connection: Counter[Connection] = Counter()

    def has(self, connection: Connection, partition: Partition) -> bool:
        """Whether a batch of this connection waits for the gate of this partition."""
        return bool(self.places) and (connection, partition) in self.places

    def hold(self, connection: Connection, partition: Partition, undecided: UndecidedError, resume: Resume) -> None:
        """Keeps a copy of the batch, and resumes it in its turn. Raises `SchemasUnknownError` if too much waits."""
        batch = undecided.batch
        for held_bytes, bytes_max in (
            (self.bytes, HELD_BYTES_MAX),
            (self._bytes_by_connection[connection], CONNECTION_BYTES_MAX),
        ):
            # One batch may always wait, however large: it would be refused for ever.
            if held_bytes and held_bytes + batch.size_bytes > bytes_max:
                raise SchemasUnknownError(
                    f"batches of {held_bytes} bytes in total already wait for the schema registry; try again later"
                )
        self._add(connection, batch.size_bytes)
        place = connection, partition
        held = _Held(batch.copied(), resume)
        if place in self.places:
            self.places[place].append(held)
            return
        self.places[place] = deque([held])
        if undecided.decided is not None:
            self._continue_after(undecided.decided, place)

    def _add(self, connection: Connection, size: int) -> None:
        self.bytes += size
        self._bytes_by_connection[connection] += size
        if not self._bytes_by_connection[connection]:
            del self._bytes_by_connection[connection]

    def _continue_after(self, decided: "asyncio.Future[None]", place: _Place) -> None:
        decided.add_done_callback(lambda _: self._drain(place))

    def _drain(self, place: _Place) -> None:
        queue = self.places[place]
        while queue:
            held = queue[0]
            try:
                held.resume(held.batch)
            except UndecidedError as undecided:
                if undecided.decided is not None:
                    self._continue_after(undecided.decided, place)
                return
            except BaseException:
                # The batches behind it must not wait for ever.
                asyncio.get_running_loop().call_soon(self._drain, place)
                self._drop(place, queue)
                raise
            self._drop(place, queue)
        del self.places[place]

    def _drop(self, place: _Place, queue: deque[_Held]) -> None:
        self._add(place[0], -queue.popleft().batch.size_bytes)
