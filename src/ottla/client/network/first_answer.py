"""Sends a request to one broker after the other until one responds, without waiting long for a silent one."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from ottla.model.errors import RetriableError

T = TypeVar("T")


class NobodyAnswersError(RetriableError):
    """Every attempt failed; `failures` has their errors in order."""

    def __init__(self, failures: list[RetriableError]) -> None:
        super().__init__("; ".join(map(str, failures)))
        self.failures = failures


async def first_answer(attempts: Iterable[Callable[[], Coroutine[Any, Any, T]]], patience_seconds: float) -> T:
    """The result of the first attempt that succeeds.

    The next attempt starts when one has failed, or after `patience_seconds` without a result. When one succeeds the
    others are cancelled. Raises an error that is not retriable at once, and `NobodyAnswersError` if all failed.
    """
    upcoming = iter(attempts)
    # A list, so that attempts that end at the same time are always handled in the same order.
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
        # Cancelled without waiting: the caller has its result, or is cancelled itself.
        for task in under_way:
            if not task.cancel() and not task.cancelled():
                # It failed at the same moment; reading the error keeps the event loop from logging it.
                task.exception()
