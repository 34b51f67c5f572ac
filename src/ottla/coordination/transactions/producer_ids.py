"""Producer ids, one at a time, from blocks that the cluster allocates: every id is unique in the cluster."""

import asyncio
from collections.abc import Awaitable, Callable

from ottla.model.ids import ProducerId


class ProducerIds:
    """`allocate` gets a new block, durable before it returns. Ids left in a block at a crash are never used."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._block = range(0)
        self._turn = asyncio.Lock()

    async def next(self) -> ProducerId:
        """An id that no other producer has."""
        async with self._turn:
            if not self._block:
                self._block = await self._allocate()
            first, self._block = self._block[0], self._block[1:]
            return ProducerId(first)
