"""Which logins are tried when there are more than places for them."""

import asyncio

import pytest

from ottla.registry.service.login_places import LoginPlaces, TooManyLoginsError
from tests.waiting import settle


class Logins:
    """Logins that are tried until they are ended."""

    def __init__(self, places: LoginPlaces) -> None:
        self._places = places
        self.tried: list[str | None] = []
        self._ends: list[asyncio.Event] = []

    def begin(self, address: str | None) -> "asyncio.Task[None]":
        return asyncio.create_task(self._run(address))

    async def _run(self, address: str | None) -> None:
        async with self._places.of(address):
            end = asyncio.Event()
            self.tried.append(address)
            self._ends.append(end)
            await end.wait()

    async def end_one(self) -> None:
        """Ends the one that was tried first."""
        self._ends.pop(0).set()
        await settle()


async def test_addresses_take_turns() -> None:
    logins = Logins(LoginPlaces(at_once_max=2))
    running = [logins.begin(address) for address in ("a", "a", "a", "a", "b", "c", "b", None)]
    await settle()
    for _ in range(8):
        await logins.end_one()
    await asyncio.gather(*running)
    assert ["a", "a", "b", "a", "c", None, "b", "a"] == logins.tried


async def test_an_address_may_have_so_many() -> None:
    logins = Logins(LoginPlaces(at_once_max=1, per_address_max=2))
    running = [logins.begin(address) for address in ("a", "a", "b", None, None, None)]
    await settle()
    with pytest.raises(TooManyLoginsError, match="2 other logins from a are under way"):
        await logins.begin("a")
    for _ in running:
        await logins.end_one()
    await asyncio.gather(*running)


async def test_the_newest_of_the_busiest_address_makes_room() -> None:
    logins = Logins(LoginPlaces(at_once_max=1, waiting_max=3))
    _, first, newest, _ = running = [logins.begin(address) for address in ("a", "a", "a", "b")]
    await settle()
    with pytest.raises(TooManyLoginsError, match="3 logins are waiting"):
        await logins.begin("a")
    after = logins.begin("c")
    with pytest.raises(TooManyLoginsError, match="3 logins are waiting"):
        await newest
    for _ in range(4):
        await logins.end_one()
    await asyncio.gather(*(each for each in running if each is not newest), after)
    assert (["a", "a", "b", "c"], True) == (logins.tried, first.done())


async def test_a_login_that_is_cancelled_leaves_its_place() -> None:
    logins = Logins(LoginPlaces(at_once_max=1))
    first, *waiting = (logins.begin(address) for address in ("a", "b", "c", "d"))
    await settle()
    waiting[0].cancel()
    ending = asyncio.create_task(logins.end_one())
    await asyncio.sleep(0)
    waiting[1].cancel()  # while its turn comes
    await ending
    assert ["a", "d"] == logins.tried
    waiting[2].cancel()
    await asyncio.gather(first, *waiting, return_exceptions=True)
    last = logins.begin("e")
    await settle()
    assert ["a", "d", "e"] == logins.tried
    last.cancel()
