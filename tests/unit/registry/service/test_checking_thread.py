"""The thread for checks: one after the other, with limits."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import cast

import pytest

from ottla.registry.service.checking_thread import CheckingThread
from ottla.registry.state.errors import RegistryError
from ottla.registry.state.schema_checks import SchemaCheck
from tests.waiting import settle


class Check:
    """Some pieces of work; each waits for a release."""

    def __init__(self, pieces: int = 1) -> None:
        self.versions: Sequence[None] = [None] * pieces
        self.release = threading.Event()
        self.done = 0

    def pieces(self) -> Iterator[None]:
        for _ in self.versions:
            self.release.wait(10)
            self.done += 1
            yield


def as_check(check: Check) -> SchemaCheck:
    return cast(SchemaCheck, check)


async def test_a_check_ends_at_its_limit_of_time() -> None:
    times = iter(range(100))
    thread = CheckingThread(seconds_max=3, now=lambda: float(next(times)))
    check = Check(10)
    check.release.set()
    with pytest.raises(RegistryError, match="10 versions takes more than 3 seconds") as refused:
        await thread.run(as_check(check))
    assert (503, 4) == (refused.value.status, check.done)
    after = Check()
    after.release.set()
    await thread.run(as_check(after))
    assert 1 == after.done
    thread.close()


async def test_few_may_wait_and_not_for_long() -> None:
    thread = CheckingThread(waiting_max=1, wait_seconds_max=0.05)
    first = Check()
    running = asyncio.create_task(thread.run(as_check(first)))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(thread.run(as_check(Check())))
    await asyncio.sleep(0)
    with pytest.raises(RegistryError, match="1 checks of large schemas are waiting") as refused:
        await thread.run(as_check(Check()))
    assert 503 == refused.value.status
    with pytest.raises(RegistryError, match=r"busy with checks of large schemas for 0\.05 seconds"):
        await waiting
    first.release.set()
    await running
    thread.close()


async def test_a_check_whose_client_goes_away_keeps_the_thread() -> None:
    thread = CheckingThread()
    first, second = Check(), Check()
    running = asyncio.create_task(thread.run(as_check(first)))
    await settle()
    running.cancel()
    second.release.set()
    after = asyncio.create_task(thread.run(as_check(second)))
    await asyncio.sleep(0.05)  # in which the thread would take the second check if it were free
    assert 0 == second.done
    first.release.set()
    await after
    assert (1, 1) == (first.done, second.done)
    thread.close()
