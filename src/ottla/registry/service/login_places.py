"""Which logins are tried at the brokers now: few at a time, and client addresses take turns.

An address that tries many passwords waits behind itself. What was accepted before is tried apart from all addresses, so
that wrong passwords do not keep out a client that could log in before, not even one with the same address.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

AT_ONCE_MAX: Final = 8
PER_ADDRESS_MAX: Final = 16
"""Logins of one address that are tried or wait."""
WAITING_MAX: Final = 256


class TooManyLoginsError(Exception):
    """The login must not be tried now; the message says why."""


class LoginPlaces:
    """Belongs to one event loop."""

    def __init__(
        self,
        *,
        at_once_max: int = AT_ONCE_MAX,
        per_address_max: int = PER_ADDRESS_MAX,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        self._at_once_max = at_once_max
        self._per_address_max = per_address_max
        self._waiting_max = waiting_max
        self._tried: Counter[str | None] = Counter()
        self._waiting: dict[str | None, deque[asyncio.Future[None]]] = {}
        """By address, in the order of their turns."""

    @asynccontextmanager
    async def of(self, address: str | None) -> AsyncIterator[None]:
        """A place for one login of this address; None for a login that was accepted before.

        Raises `TooManyLoginsError`.
        """
        if self._tried.total() < self._at_once_max and not self._waiting:
            self._tried[address] += 1
        else:
            await self._wait_turn(address)
        try:
            yield
        finally:
            self._leave(address)

    async def _wait_turn(self, address: str | None) -> None:
        """Returns when the login has a place."""
        count = self._tried[address] + len(self._waiting.get(address, ()))
        if address is not None and count >= self._per_address_max:
            raise TooManyLoginsError(f"{count} other logins from {address} are under way")
        if sum(map(len, self._waiting.values())) >= self._waiting_max:
            self._make_room(address)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.done() or turn.cancelled():
                self._forget(address, turn)
            elif turn.exception() is None:
                self._leave(address)
            raise

    def _make_room(self, address: str | None) -> None:
        """Ends the newest waiting login of the address that has most of them, unless that is this one."""
        counts = {each: len(turns) for each, turns in self._waiting.items() if each is not None}
        busiest = max(counts, key=counts.__getitem__, default=None)
        error = TooManyLoginsError(f"{self._waiting_max} logins are waiting")
        if busiest is None or (address is not None and counts.get(address, 0) >= counts[busiest]):
            raise error
        turn = self._waiting[busiest][-1]
        self._forget(busiest, turn)
        turn.set_exception(error)

    def _forget(self, address: str | None, turn: "asyncio.Future[None]") -> None:
        turns = self._waiting.get(address)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[address]

    def _leave(self, address: str | None) -> None:
        """Gives the place to the address that has the fewest; of several, to the one that waited longest for a turn."""
        self._tried[address] -= 1
        if not self._tried[address]:
            del self._tried[address]
        while self._waiting:
            chosen = min(self._waiting, key=lambda each: self._tried[each])
            turns = self._waiting.pop(chosen)
            turn = turns.popleft()
            if turns:
                self._waiting[chosen] = turns
            if not turn.done():  # cancelled, and not yet forgotten
                turn.set_result(None)
                self._tried[chosen] += 1
                return
