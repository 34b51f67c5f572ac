"""Who may begin when there are more requests for some work than may be done at once: clients take turns.

A client that asks for much waits behind itself, and does not keep others out.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

_NO_LIMIT: Final = 2**31 - 1


class TooManyWaitingError(Exception):
    """The request cannot wait for its turn: too many others do. The message says which limit was reached."""


class Turns:
    """Belongs to one event loop. A client is a name, or None for one whose number of requests is not limited."""

    def __init__(self, *, at_once_max: int, waiting_max: int, per_client_max: int = _NO_LIMIT) -> None:
        """`per_client_max` counts requests that wait, and those whose turn it is."""
        self._at_once_max = at_once_max
        self._waiting_max = waiting_max
        self._per_client_max = per_client_max
        self._active: Counter[str | None] = Counter()
        self._waiting: dict[str | None, deque[asyncio.Future[None]]] = {}
        """By client, in the order of their turns."""

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def of(self, client: str | None) -> AsyncIterator[None]:
        """A turn of the client. Raises `TooManyWaitingError`."""
        await self.take(client)
        try:
            yield
        finally:
            self.end(client)

    async def take(self, client: str | None) -> None:
        """Returns when it is the client's turn; `end` must follow. Raises `TooManyWaitingError`."""
        if self._active.total() < self._at_once_max and not self._waiting:
            self._active[client] += 1
            return
        count = self._active[client] + len(self._waiting.get(client, ()))
        if client is not None and count >= self._per_client_max:
            raise TooManyWaitingError(f"{count} others of {client} are under way")
        if self.waiting >= self._waiting_max:
            self._make_room(client)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.done() or turn.cancelled():
                self._forget(client, turn)
            elif turn.exception() is None:
                self.end(client)
            raise

    def end(self, client: str | None) -> None:
        """The turn goes to the client that has the fewest; of several, to the one that waited longest for one."""
        self._active[client] -= 1
        if not self._active[client]:
            del self._active[client]
        while self._waiting:
            chosen = min(self._waiting, key=lambda each: self._active[each])
            turns = self._waiting.pop(chosen)
            turn = turns.popleft()
            if turns:
                self._waiting[chosen] = turns
            if not turn.done():  # cancelled, and not yet forgotten
                turn.set_result(None)
                self._active[chosen] += 1
                return

    def _make_room(self, client: str | None) -> None:
        """Ends the newest waiting request of the client that has most of them, unless that is this one."""
        counts = {each: len(turns) for each, turns in self._waiting.items() if each is not None}
        busiest = max(counts, key=counts.__getitem__, default=None)
        error = TooManyWaitingError(f"{self._waiting_max} are waiting")
        if busiest is None or (client is not None and counts.get(client, 0) >= counts[busiest]):
            raise error
        turn = self._waiting[busiest][-1]
        self._forget(busiest, turn)
        turn.set_exception(error)

    def _forget(self, client: str | None, turn: "asyncio.Future[None]") -> None:
        turns = self._waiting.get(client)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[client]
