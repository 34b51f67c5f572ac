"""Threads that read the image, and changes that wait for them."""

import asyncio
import threading

import pytest

from ottla.registry.service import image_access
from ottla.registry.service.applied_offset import AppliedOffset
from ottla.registry.service.image_access import ImageAccess
from ottla.registry.state.errors import RegistryError
from tests.waiting import settle


async def test_a_change_waits_for_readers_and_new_readers_wait_for_the_change() -> None:
    access = ImageAccess()
    release, began = threading.Event(), asyncio.Event()
    loop, story = asyncio.get_running_loop(), []

    def read() -> None:
        loop.call_soon_threadsafe(began.set)
        release.wait(10)
        story.append("first read")

    async def change() -> None:
        async with access.change():
            story.append("change")

    first = asyncio.create_task(access.read(read))
    await began.wait()
    changing = asyncio.create_task(change())
    await asyncio.sleep(0)
    second = asyncio.create_task(access.read(lambda: story.append("second read")))
    await settle()
    assert [] == story
    release.set()
    await asyncio.gather(first, changing, second)
    assert ["first read", "change", "second read"] == story
    access.close()


async def test_a_change_does_not_wait_for_readers_that_have_no_thread_yet() -> None:
    access = ImageAccess()
    release = threading.Event()
    story: list[str] = []

    def read() -> None:
        release.wait(10)
        story.append("read")

    reading = [asyncio.create_task(access.read(read)) for _ in range(15)]
    await settle()

    async def change() -> None:
        async with access.change():
            story.append("change")

    changing = asyncio.create_task(change())
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(changing, *reading)
    assert ["read"] * 2 + ["change"] + ["read"] * 13 == story
    access.close()


async def test_too_many_readers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_access, "_WAITING_MAX", 3)
    monkeypatch.setattr(image_access, "_WAIT_SECONDS_MAX", 0.1)
    access = ImageAccess()
    release = threading.Event()
    reading = [asyncio.create_task(access.read(lambda: release.wait(10))) for _ in range(2)]
    await settle()
    waiting = [asyncio.create_task(access.read(lambda: None)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(RegistryError, match="3 requests are waiting") as refused:
        await access.read(lambda: None)
    assert 503 == refused.value.status
    for each in waiting:
        with pytest.raises(RegistryError, match="busy parsing schemas"):
            await each
    release.set()
    await asyncio.gather(*reading)
    await access.read(lambda: None)
    access.close()


async def test_a_reader_that_is_cancelled_still_holds_the_image() -> None:
    access = ImageAccess()
    release, began = threading.Event(), asyncio.Event()
    loop, story = asyncio.get_running_loop(), []

    def read() -> None:
        loop.call_soon_threadsafe(began.set)
        release.wait(10)
        story.append("read")

    reading = asyncio.create_task(access.read(read))
    await began.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    loop.call_later(0.05, release.set)
    async with access.change():
        assert ["read"] == story
    access.close()


async def test_an_error_in_a_thread_is_raised_and_frees_the_image() -> None:
    access = ImageAccess()

    def fail() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError):
        await access.read(fail)
    async with access.change():
        pass
    access.close()


async def test_waiting_for_an_offset() -> None:
    applied = AppliedOffset()
    await applied.wait(0)
    waiting = [asyncio.create_task(applied.wait(offset)) for offset in (1, 5, 5)]
    await asyncio.sleep(0)
    applied.advance(3)
    await waiting[0]
    assert [True, False, False] == [each.done() for each in waiting]
    waiting[1].cancel()
    await asyncio.sleep(0)
    applied.advance(5)
    await waiting[2]
    applied.advance(2)
    assert 5 == applied.offset
