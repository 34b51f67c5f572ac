"""Producer ids, one at a time, from blocks that the cluster hands out: no two producers ever get the same."""

import asyncio
from collections.abc import Awaitable, Callable

from ottla.model.ids import ProducerId


class ProducerIds:
    """`allocate` fetches a new block, durable before it returns; what is left of a block at a crash is never used."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._block = range(0)
        self._turn = asyncio.Lock()

    async def next(self) -> ProducerId:
        """An id that nobody was given."""
        async with self._turn:
            if not self._block:
                self._block = await self._allocate()
            first, self._block = self._block[0], self._block[1:]
            return ProducerId(first)
