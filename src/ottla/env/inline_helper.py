"""A helper without a process, for simulations, in which one thread must do everything, and for small tests."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class InlineHelper:
    """The `Helper` port in the same process. Other tasks get a turn before and after the job, as with a process."""

    __slots__ = ()

    async def run(self, function: Callable[..., T], /, *args: Any) -> T:
        """Calls the function at once."""
        await asyncio.sleep(0)
        answer = function(*args)
        await asyncio.sleep(0)
        return answer

    async def close(self) -> None:
        """Does nothing."""
