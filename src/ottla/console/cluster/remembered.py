"""Answers of the cluster that take long and may be some seconds old, kept for the pages of one user."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Answer:
    """One answer, and the question that is under way for a newer one."""

    __slots__ = ("asked", "asked_at", "has_value", "value")

    def __init__(self) -> None:
        self.asked: asyncio.Task[Any] | None = None
        self.asked_at = 0.0
        """When the answer that is known was asked for, or the one that is under way."""
        self.has_value = False
        self.value: Any = None


class Remembered:
    """Asks again when an answer is too old, once for all who want it; who gives up does not end the question."""

    def __init__(self) -> None:
        self._answers: dict[str, _Answer] = {}

    async def get(
        self,
        name: str,
        seconds: float,
        ask: Callable[[], Coroutine[Any, Any, T]],
        *,
        patience_seconds: float | None = None,
    ) -> T:
        """What `ask` returned within the last `seconds`, else what it returns now.

        With `patience_seconds` it waits no longer than that for a new answer, and returns the old one then. Raises
        TimeoutError if there is none, and what `ask` raises, which is not remembered.
        """
        now = asyncio.get_running_loop().time()
        answer = self._answers.setdefault(name, _Answer())
        if answer.asked is None:
            if answer.has_value and now - answer.asked_at < seconds:
                known: T = answer.value
                return known
            answer.asked_at = now
            answer.asked = asyncio.create_task(self._ask(name, answer, ask))
            # If no page waits for it any more, the error is dropped: the next page asks again.
            answer.asked.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            async with asyncio.timeout(patience_seconds):
                await asyncio.shield(answer.asked)
        except TimeoutError:
            if not answer.has_value:
                raise
        newest: T = answer.value
        return newest

    def forget(self, name: str) -> None:
        """What is known under this name, or asked for now, is not true any more."""
        self._answers.pop(name, None)

    def close(self) -> None:
        """Ends the questions that are under way."""
        for answer in self._answers.values():
            if answer.asked is not None:
                answer.asked.cancel()
        self._answers.clear()

    async def _ask(self, name: str, answer: _Answer, ask: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            answer.value = await ask()
            answer.has_value = True
        except BaseException:
            if self._answers.get(name) is answer:
                del self._answers[name]
            raise
        finally:
            answer.asked = None
