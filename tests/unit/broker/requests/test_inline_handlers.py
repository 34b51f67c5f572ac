"""Coroutines begun at once: their value without a task, or a task that goes on where they wait."""

import asyncio

import pytest

from ottla.broker.requests.inline_handlers import Suspended, start_eagerly


async def answer(*steps: "asyncio.Future[int]") -> list[int]:
    return [await step for step in steps]


async def test_one_that_need_not_wait() -> None:
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    done.set_result(3)
    assert [3, 3] == start_eagerly(answer(done, done))


async def test_one_that_waits_twice() -> None:
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    begun = start_eagerly(answer(first, second))
    assert isinstance(begun, Suspended)

    async def go_on() -> list[int]:
        result: list[int] = await begun
        return result

    task = loop.create_task(go_on())
    first.set_result(1)
    await asyncio.sleep(0)
    assert not task.done()
    second.set_result(2)
    assert [1, 2] == await task


async def test_its_errors_are_its_own() -> None:
    async def fail() -> None:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        start_eagerly(fail())
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    begun = start_eagerly(answer(future))
    future.set_exception(ValueError("later"))
    with pytest.raises(ValueError, match="later"):
        await begun


async def test_its_task_can_be_cancelled() -> None:
    heard: list[str] = []

    async def patient(future: "asyncio.Future[int]") -> None:
        try:
            await future
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    loop = asyncio.get_running_loop()
    begun = start_eagerly(patient(loop.create_future()))

    async def go_on() -> None:
        await begun

    task = loop.create_task(go_on())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ["cancelled"] == heard
