"""How long parsing and comparing may take: set by the thread that does it, asked by every loop that may take long.

Sizes and steps bound the work on any schema, but not to the seconds that other clients can wait for it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class TimeLimitExceededError(Exception):
    """The work on schemas took longer than it may."""


_IS_OVER: ContextVar[Callable[[], bool] | None] = ContextVar("_IS_OVER", default=None)


@contextmanager
def limited(is_over: Callable[[], bool]) -> Iterator[None]:
    """Within this block, work on schemas of this thread ends with `TimeLimitExceededError` once `is_over` is true."""
    token = _IS_OVER.set(is_over)
    try:
        yield
    finally:
        _IS_OVER.reset(token)


def check_time() -> None:
    """Raises `TimeLimitExceededError`. Called for each step that takes about as long as a hundred of these calls."""
    is_over = _IS_OVER.get()
    if is_over is not None and is_over():
        raise TimeLimitExceededError
