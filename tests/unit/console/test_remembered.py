"""Answers that are kept for a while: asked for once, and not lost when a page gives up."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ottla.console.cluster.remembered import Remembered


class Asked:
    """A question that is answered with its number, when it is told to."""

    def __init__(self) -> None:
        self.count = 0
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.count += 1
        number = self.count
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return number


@pytest.fixture
async def remembered() -> AsyncIterator[Remembered]:
    remembered = Remembered()
    yield remembered
    remembered.close()


@pytest.fixture
def asked() -> Asked:
    return Asked()


async def test_all_who_want_it_share_one_question(remembered: Remembered, asked: Asked) -> None:
    both = [asyncio.ensure_future(remembered.get("x", 60, asked)) for _ in range(2)]
    await asyncio.sleep(0)
    asked.gate.set()
    assert [1, 1, 1] == [*await asyncio.gather(*both), await remembered.get("x", 60, asked)]
    assert 2 == await remembered.get("y", 60, asked)


async def test_who_gives_up_does_not_end_the_question(remembered: Remembered, asked: Asked) -> None:
    with pytest.raises(TimeoutError):
        await remembered.get("x", 60, asked, patience_seconds=0)
    asked.gate.set()
    assert 1 == await remembered.get("x", 60, asked)
    assert 1 == asked.count


async def test_an_old_answer_is_better_than_a_long_wait(remembered: Remembered, asked: Asked) -> None:
    asked.gate.set()
    assert 1 == await remembered.get("x", 0, asked)
    asked.gate.clear()
    assert 1 == await remembered.get("x", 0, asked, patience_seconds=0)
    assert 2 == asked.count
    asked.gate.set()
    # The question that is under way is answered first.
    assert 2 == await remembered.get("x", 0, asked)


async def test_a_failure_is_told_and_not_remembered(remembered: Remembered, asked: Asked) -> None:
    asked.gate.set()
    asked.error = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        await remembered.get("x", 60, asked)
    asked.error = None
    assert 2 == await remembered.get("x", 60, asked)


async def test_what_is_forgotten_is_asked_again_even_while_it_is_asked(remembered: Remembered, asked: Asked) -> None:
    first = asyncio.ensure_future(remembered.get("x", 60, asked))
    await asyncio.sleep(0)
    remembered.forget("x")
    asked.gate.set()
    assert 2 == await remembered.get("x", 60, asked)
    assert 1 == await first
    assert 2 == await remembered.get("x", 60, asked)


async def test_the_end_ends_questions(remembered: Remembered, asked: Asked) -> None:
    waiting = asyncio.ensure_future(remembered.get("x", 60, asked))
    await asyncio.sleep(0)
    remembered.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
