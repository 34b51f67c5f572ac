"""Which requests may become Python objects now: how many bytes of them in one round of the event loop, and in all.

A request of a few kilobytes can name thousands of partitions. A client that sends one behind the other would have the
loop to itself, and answers that wait for somebody would keep all their requests in memory. So a request that is too
much now waits in its connection's buffer, its connection behind those that came before. Produce and Fetch do not come
here: they are answered from the bytes as they arrived.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

ROUND_BYTES_MAX: Final = 2 * 1024
"""In one round of the event loop, but for a single request that is larger; most have a hundred, and take 50 µs."""

HELD_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of requests that are not answered yet, but for a single one."""

_PARKED_APIS: Final = frozenset({11, 14})
"""JoinGroup and SyncGroup wait for requests of others: to make those wait for these would be for ever."""


class Admission:
    """Counts the bytes of requests; who is not admitted is called back once, in order, when it may be otherwise."""

    __slots__ = ("_held_bytes", "_is_due", "_loop", "_round_bytes", "_waiting")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._round_bytes = 0
        self._held_bytes = 0
        self._is_due = False
        self._waiting: deque[Callable[[], None]] = deque()

    def admit(self, api_key: int, size: int, resume: Callable[[], None]) -> bool:
        """Whether a request may be worked on; `release` is then told of its answer. If not, `resume` will be called."""
        if self._is_too_much(api_key, size):
            self._waiting.append(resume)
            self._schedule()
            return False
        self._round_bytes += size
        self._schedule()
        if api_key not in _PARKED_APIS:
            self._held_bytes += size
        return True

    def release(self, api_key: int, size: int) -> None:
        """An admitted request is answered."""
        if api_key not in _PARKED_APIS:
            self._held_bytes -= size
        if self._waiting:
            self._schedule()

    def _is_too_much(self, api_key: int, size: int) -> bool:
        if self._round_bytes and self._round_bytes + size > ROUND_BYTES_MAX:
            return True
        is_held = api_key not in _PARKED_APIS and self._held_bytes > 0
        return is_held and self._held_bytes + size > HELD_BYTES_MAX

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._next_round)

    def _next_round(self) -> None:
        self._is_due = False
        self._round_bytes = 0
        # Those who come back to wait are behind those who wait already, and not asked again in this round.
        for _ in range(len(self._waiting)):
            if self._round_bytes >= ROUND_BYTES_MAX or self._held_bytes >= HELD_BYTES_MAX:
                break
            self._waiting.popleft()()
