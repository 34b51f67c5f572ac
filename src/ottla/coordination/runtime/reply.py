"""A token for `Shard.hand`: the answer to a request that a shard decides, without a task that waits for it."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, NamedTuple


class NoAnswer(NamedTuple):
    """The answer of a request that cannot be answered, because of a failure that was not foreseen."""

    error: Exception


class Reply:
    """Becomes done once, at once or later, and may be awaited.

    `answer_of(outcome)` makes the answer of the shard's response or error. If that fails, the answer is a `NoAnswer`:
    the shard has others to answer.
    """

    __slots__ = ("_answer_of", "_on_answer", "answer", "is_done")

    def __init__(self, answer_of: Callable[[Any], Any]) -> None:
        self._answer_of = answer_of
        self.is_done = False
        """Whether there is an answer; `done` says the same, as for a future."""
        self._on_answer: Callable[[Any], None] | None = None
        self.answer: Any = None

    def done(self) -> bool:
        """Whether there is an answer."""
        return self.is_done

    def set_result(self, outcome: Any) -> None:
        """The shard has responded, or its write can never succeed."""
        try:
            answer = self._answer_of(outcome)
        except Exception as error:
            answer = NoAnswer(error)
        self._set(answer)

    set_exception = set_result

    def fail(self, error: Exception) -> None:
        """The shard has failed: there can be no answer."""
        self._set(NoAnswer(error))

    def _set(self, answer: Any) -> None:
        self.is_done = True
        self.answer = answer
        if self._on_answer is not None:
            self._on_answer(answer)

    def __await__(self) -> Generator[Any, Any, Any]:
        """Returns the answer; raises the error of a `NoAnswer`."""
        if not self.is_done:
            waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self.when_done(lambda answer: None if waiting.done() else waiting.set_result(answer))
            yield from waiting
        if type(self.answer) is NoAnswer:
            raise self.answer.error
        return self.answer

    def when_done(self, on_answer: Callable[[Any], None]) -> None:
        """Calls back with the answer, which has not come yet; the callback must not raise."""
        self._on_answer = on_answer
