"""How far the image has applied the topic, and tasks that wait until it has applied more."""

import asyncio


class AppliedOffset:
    """Everything below `offset` is applied. Belongs to one event loop."""

    def __init__(self) -> None:
        self.offset = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def advance(self, offset: int) -> None:
        """More was applied; wakes those that wait for it."""
        self.offset = max(self.offset, offset)
        for wanted, waiter in self._waiters:
            if wanted <= self.offset and not waiter.done():
                waiter.set_result(None)
        self._waiters = [each for each in self._waiters if not each[1].done()]

    async def wait(self, offset: int) -> None:
        """Returns when everything below `offset` is applied."""
        if offset <= self.offset:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append((offset, waiter))
        await waiter
