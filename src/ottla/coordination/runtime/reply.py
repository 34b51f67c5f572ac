"""A token for `Shard.hand`: the answer to a request that a shard decides, without a task that waits for it."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any


class Reply:
    """Becomes done once, at once or later, and may be awaited.

    `answer_of(outcome)` makes the answer of the shard's response or error.
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
        self.is_done = True
        self.answer = self._answer_of(outcome)
        if self._on_answer is not None:
            self._on_answer(self.answer)

    set_exception = set_result

    def __await__(self) -> Generator[Any, Any, Any]:
        """Returns the answer."""
        if not self.is_done:
            waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self.when_done(lambda answer: None if waiting.done() else waiting.set_result(answer))
            yield from waiting
        return self.answer

    def when_done(self, on_answer: Callable[[Any], None]) -> None:
        """Calls back with the answer, which has not come yet; the callback must not raise."""
        self._on_answer = on_answer
