"""Who may begin when more want to than may at once."""

import asyncio

import pytest

from ottla.registry.service.turns import TooManyWaitingError, Turns
from tests.waiting import settle


class Works:
    """Pieces of work that last until they are ended."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.begun: list[str | None] = []
        self._ends: list[asyncio.Event] = []

    def begin(self, client: str | None) -> "asyncio.Task[None]":
        return asyncio.create_task(self._run(client))

    async def _run(self, client: str | None) -> None:
        async with self._turns.of(client):
            end = asyncio.Event()
            self.begun.append(client)
            self._ends.append(end)
            await end.wait()

    async def end_one(self) -> None:
        """Ends the one that began first."""
        self._ends.pop(0).set()
        await settle()


async def test_clients_take_turns() -> None:
    works = Works(Turns(at_once_max=2, waiting_max=10))
    running = [works.begin(client) for client in ("a", "a", "a", "a", "b", "c", "b", None)]
    await settle()
    for _ in range(8):
        await works.end_one()
    await asyncio.gather(*running)
    assert ["a", "a", "b", "a", "c", None, "b", "a"] == works.begun


async def test_a_client_may_have_so_many() -> None:
    works = Works(Turns(at_once_max=1, waiting_max=10, per_client_max=2))
    running = [works.begin(client) for client in ("a", "a", "b", None, None, None)]
    await settle()
    with pytest.raises(TooManyWaitingError, match="2 others of a are under way"):
        await works.begin("a")
    for _ in running:
        await works.end_one()
    await asyncio.gather(*running)


async def test_the_newest_of_the_busiest_client_makes_room() -> None:
    works = Works(Turns(at_once_max=1, waiting_max=3))
    _, first, newest, _ = running = [works.begin(client) for client in ("a", "a", "a", "b")]
    await settle()
    with pytest.raises(TooManyWaitingError, match="3 are waiting"):
        await works.begin("a")
    after = works.begin("c")
    with pytest.raises(TooManyWaitingError, match="3 are waiting"):
        await newest
    for _ in range(4):
        await works.end_one()
    await asyncio.gather(*(each for each in running if each is not newest), after)
    assert (["a", "a", "b", "c"], True) == (works.begun, first.done())


async def test_one_that_is_cancelled_gives_its_turn_to_the_next() -> None:
    works = Works(Turns(at_once_max=1, waiting_max=10))
    first, *waiting = (works.begin(client) for client in ("a", "b", "c", "d"))
    await settle()
    waiting[0].cancel()
    ending = asyncio.create_task(works.end_one())
    await asyncio.sleep(0)
    waiting[1].cancel()  # while its turn comes
    await ending
    assert ["a", "d"] == works.begun
    waiting[2].cancel()
    await asyncio.gather(first, *waiting, return_exceptions=True)
    last = works.begin("e")
    await settle()
    assert ["a", "d", "e"] == works.begun
    last.cancel()
