"""Limits the requests that become Python objects: their bytes in one round of the event loop, and in all.

A request of a few kilobytes can name thousands of partitions. A client that sends many of them would block the event
loop, and requests that wait to be answered would use up the memory. So a request that exceeds a limit waits in its
connection's buffer, in the order of arrival. Produce and Fetch are not limited here: they do not become objects.

How long a request takes cannot be told from its size. So the limit of a round is halved after each round that took too
long, and doubled after each that did not.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from ottla.env.ports import Clock

ROUND_BYTES_MAX: Final = 8 * 1024
"""In one round of the event loop, except for a single larger request; most have 100 bytes and take 50 µs. The requests
of a rebalance of 50 members fit into one round: those that must wait for another one cost a fifth more."""

ROUND_BYTES_LEAST: Final = 64
"""The limit after many slow rounds: about one request, since one is always admitted."""

ROUND_SECONDS_MAX: Final = 0.005
"""A round that takes longer is slow: all that the event loop did meanwhile, also for requests of earlier rounds."""

HELD_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of requests that are not answered yet, except for a single larger one."""

_PARKED_APIS: Final = frozenset({11, 14})
"""JoinGroup and SyncGroup wait for requests of other members, which must therefore not wait for these."""


_BULK_APIS: Final = frozenset({8, 14})
_BULK_BYTES: Final = 100
_BULK_SHARE: Final = 4
"""An OffsetCommit of 50 offsets has 1,000 bytes, and takes little longer than one of a single offset, with 100. So does
the SyncGroup with which a leader brings the assignments of all members, compared with that of another member."""


class Admission:
    """Counts the bytes of requests. Connections that are not admitted are called back in order when there is room."""

    __slots__ = (
        "_clock",
        "_held_bytes",
        "_is_due",
        "_is_round_full",
        "_loop",
        "_round_began",
        "_round_bytes",
        "_round_bytes_max",
        "_waiting",
    )

    def __init__(self, clock: Clock) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._round_began = 0.0
        self._round_bytes = 0
        self._round_bytes_max = ROUND_BYTES_MAX
        self._held_bytes = 0
        self._is_due = False
        self._is_round_full = False
        """Whether the limit of the round has refused a request."""
        self._waiting: deque[Callable[[], None]] = deque()

    def admit(self, api_key: int, size: int, resume: Callable[[], None]) -> bool:
        """Whether a request may be handled now, until `release`. If not, `resume` will be called."""
        # Nothing is done with each offset or assignment alone: it takes a small part of the time of other elements.
        cost = size
        if api_key in _BULK_APIS and size > 2 * _BULK_BYTES:
            cost = _BULK_BYTES + size // _BULK_SHARE
        round_bytes = self._round_bytes
        if round_bytes and round_bytes + cost > self._round_bytes_max:
            self._is_round_full = True
            self._wait(resume)
            return False
        if api_key not in _PARKED_APIS:
            held_bytes = self._held_bytes
            if held_bytes > 0 and held_bytes + size > HELD_BYTES_MAX:
                self._wait(resume)
                return False
            self._held_bytes = held_bytes + size
        self._round_bytes = round_bytes + cost
        if not self._is_due:
            self._schedule()
        return True

    def _wait(self, resume: Callable[[], None]) -> None:
        self._waiting.append(resume)
        self._schedule()

    def release(self, api_key: int, size: int) -> None:
        """An admitted request was answered."""
        if api_key not in _PARKED_APIS:
            self._held_bytes -= size
        if self._waiting:
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._round_began = self._clock.monotonic()
            self._loop.call_soon(self._next_round)

    def _next_round(self) -> None:
        self._is_due = False
        self._round_bytes = 0
        if self._clock.monotonic() - self._round_began > ROUND_SECONDS_MAX:
            self._round_bytes_max = max(self._round_bytes_max // 2, ROUND_BYTES_LEAST)
        elif self._round_bytes_max < ROUND_BYTES_MAX:
            self._round_bytes_max *= 2
        # A connection that was served and has to wait again goes to the end of the queue; it is called again in a later
        # round.
        for _ in range(len(self._waiting)):
            if self._round_bytes >= self._round_bytes_max or self._held_bytes >= HELD_BYTES_MAX:
                break
            admitted_bytes, self._is_round_full = self._round_bytes, False
            self._waiting.popleft()()
            if self._is_round_full:
                # Those behind it would only be refused, one after the other. It keeps its place if it was not served.
                if self._round_bytes == admitted_bytes:
                    self._waiting.rotate(1)
                break
