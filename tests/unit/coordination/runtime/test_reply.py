"""Answers of shards without a task: at once, later, and awaited."""

import asyncio
from typing import Any

import pytest

from ottla.coordination.runtime.reply import NoAnswer, Reply


def test_an_answer_that_comes_later() -> None:
    told: list[Any] = []
    reply = Reply(lambda outcome: f"answer to {outcome}")
    reply.when_done(told.append)
    assert not reply.done()
    assert [] == told
    reply.set_result(1)
    assert reply.done()
    assert ["answer to 1"] == told
    assert "answer to 1" == reply.answer


def test_an_error_becomes_an_answer_too() -> None:
    reply = Reply(repr)
    reply.set_exception(ValueError("too large"))
    assert reply.done()
    assert "ValueError('too large')" == reply.answer


@pytest.mark.parametrize("is_early", [True, False])
async def test_it_may_be_awaited(is_early: bool) -> None:
    reply = Reply(str)
    if is_early:
        reply.set_result(7)
    else:
        asyncio.get_running_loop().call_soon(reply.set_result, 7)
    assert "7" == await reply


def test_an_answer_that_cannot_be_made_fails_its_own_request_only() -> None:
    told: list[Any] = []
    reply = Reply(int)
    reply.when_done(told.append)
    reply.set_result("seven")
    assert reply.done()
    (answer,) = told
    assert isinstance(answer, NoAnswer)
    assert "seven" in str(answer.error)


@pytest.mark.parametrize("is_early", [True, False])
async def test_a_failure_is_raised_where_the_answer_is_awaited(is_early: bool) -> None:
    reply = Reply(str)
    if is_early:
        reply.fail(ValueError("too large"))
    else:
        asyncio.get_running_loop().call_soon(reply.fail, ValueError("too large"))
    with pytest.raises(ValueError, match="too large"):
        await reply
