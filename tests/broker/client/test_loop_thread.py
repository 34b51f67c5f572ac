"""A loop in a thread: answers, errors, timeouts, misuse, and an end that leaves nothing behind."""

import asyncio
import os
import threading

import pytest

from ottla.client.loop_thread import LoopThread
from ottla.model.errors import MisuseError


async def answer(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def fail() -> None:
    raise ValueError("as it should")


def test_answers_and_errors_come_back_to_the_caller() -> None:
    thread = LoopThread("a client")
    assert 5 == thread.call(answer(5))
    with pytest.raises(ValueError, match="as it should"):
        thread.call(fail())
    thread.close()


def test_what_takes_too_long_is_cancelled() -> None:
    thread = LoopThread("a client")
    ended = threading.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        thread.call(endless(), timeout=0.01)
    assert ended.wait(20)
    thread.close()


def test_closing_cancels_what_runs_and_ends_the_thread() -> None:
    thread = LoopThread("a client")
    began, told = threading.Event(), []

    async def wait() -> None:
        began.set()
        await asyncio.Event().wait()

    def ask() -> None:
        try:
            thread.call(wait())
        except MisuseError as error:
            told.append(str(error))

    asker = threading.Thread(target=ask)
    asker.start()
    assert began.wait(20)
    thread.close()
    asker.join(20)
    assert ["a client is closed"] == told
    assert "a client" not in [each.name for each in threading.enumerate()]
    with pytest.raises(MisuseError, match="is closed"):
        thread.call(answer(1))
    thread.post(lambda: None)
    thread.close()


def test_waiting_for_itself_is_refused() -> None:
    thread = LoopThread("a client")

    async def ask() -> str:
        with pytest.raises(MisuseError) as refusal:
            thread.call(answer(1))
        return str(refusal.value)

    assert "cannot be called from one of its callbacks" in thread.call(ask())
    thread.close()


def test_a_forked_child_is_told_to_make_its_own() -> None:
    thread = LoopThread("a client")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            thread.call(answer(1))
        except MisuseError as error:
            status = 0 if "after a fork" in str(error) else 2
        finally:
            os._exit(status)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    thread.close()
