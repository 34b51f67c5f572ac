"""One question that several can answer: asked of one after the other, without waiting long for one who is silent."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from ottla.model.errors import RetriableError

T = TypeVar("T")


class NobodyAnswersError(RetriableError):
    """Every one that was asked failed; `failures` has what each said, in the order of their failing."""

    def __init__(self, failures: list[RetriableError]) -> None:
        super().__init__("; ".join(map(str, failures)))
        self.failures = failures


async def first_answer(attempts: Iterable[Callable[[], Coroutine[Any, Any, T]]], patience_seconds: float) -> T:
    """What the first attempt gives that succeeds.

    The next one begins when one has failed, or when none has ended for `patience_seconds`; those that are still under
    way when one succeeds are given up. Raises what is not a `RetriableError` at once, and `NobodyAnswersError`.
    """
    upcoming = iter(attempts)
    # A list, so that what ends at the same time is looked at in the same order each time.
    under_way: list[asyncio.Task[T]] = []
    failures: list[RetriableError] = []
    try:
        while True:
            attempt = next(upcoming, None)
            if attempt is not None:
                under_way.append(asyncio.create_task(attempt()))
            elif not under_way:
                raise NobodyAnswersError(failures)
            await asyncio.wait(
                under_way,
                timeout=None if attempt is None else patience_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in [each for each in under_way if each.done()]:
                under_way.remove(task)
                try:
                    return task.result()
                except RetriableError as error:
                    failures.append(error)
    finally:
        # Not waited for: who asked has its answer, or goes.
        for task in under_way:
            if not task.cancel() and not task.cancelled():
                # It failed at the same moment; the event loop must not tell of it.
                task.exception()
