"""The first of several who answers."""

import asyncio

import pytest

from ottla.client.errors import CannotConnectError
from ottla.client.network.first_answer import NobodyAnswersError, first_answer
from ottla.model.errors import MisuseError

NEVER = 3600.0


class Asked:
    """What each one does who is asked, and who was asked and given up."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.given_up: list[str] = []

    async def answers(self, name: str) -> str:
        self.begun.append(name)
        return name

    async def is_silent(self, name: str) -> str:
        self.begun.append(name)
        try:
            await asyncio.sleep(NEVER)
        except asyncio.CancelledError:
            self.given_up.append(name)
            raise
        return name

    async def fails(self, name: str) -> str:
        self.begun.append(name)
        raise CannotConnectError(f"{name} is down")

    async def is_broken(self, name: str) -> str:
        self.begun.append(name)
        raise MisuseError(f"{name} cannot be asked that")


def test_who_answers_is_the_last_to_be_asked() -> None:
    asked = Asked()
    attempts = [lambda: asked.answers("a"), lambda: asked.answers("b")]
    assert "a" == asyncio.run(first_answer(attempts, NEVER))
    assert (["a"], []) == (asked.begun, asked.given_up)


def test_a_failure_is_not_waited_for() -> None:
    asked = Asked()
    attempts = [lambda: asked.fails("a"), lambda: asked.answers("b")]
    assert "b" == asyncio.run(first_answer(attempts, NEVER))


def test_others_are_asked_beside_one_who_is_silent() -> None:
    asked = Asked()
    attempts = [lambda: asked.is_silent("a"), lambda: asked.is_silent("b"), lambda: asked.answers("c")]
    assert "c" == asyncio.run(first_answer(attempts, 0.001))
    assert (["a", "b", "c"], ["a", "b"]) == (asked.begun, asked.given_up)


def test_nobody_answers_and_all_reasons_are_told() -> None:
    asked = Asked()
    with pytest.raises(NobodyAnswersError, match="a is down; b is down") as nobody:
        asyncio.run(first_answer([lambda: asked.fails("a"), lambda: asked.fails("b")], NEVER))
    assert [CannotConnectError, CannotConnectError] == [type(each) for each in nobody.value.failures]


def test_what_nobody_could_answer_is_asked_once() -> None:
    asked = Asked()
    with pytest.raises(MisuseError, match="a cannot be asked that"):
        asyncio.run(first_answer([lambda: asked.is_broken("a"), lambda: asked.answers("b")], NEVER))
    assert ["a"] == asked.begun
