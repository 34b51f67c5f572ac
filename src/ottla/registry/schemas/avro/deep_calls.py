"""Runs recursive functions without the interpreter's stack, and stops them when they take too many calls.

Types that use each other by name make walks that are far deeper than a schema's text. Such a walk is a generator that
yields the generators it calls and receives what they return.
"""

from collections.abc import Generator
from typing import Any, TypeVar, cast

from ottla.registry.schemas.time_limit import check_time

T = TypeVar("T")
Walk = Generator["Walk[Any]", Any, T]


class TooManyCallsError(Exception):
    """The walk has made all the calls it may make."""


def run_walk(walk: Walk[T], calls_max: int) -> T:
    """What the walk returns. Raises `TooManyCallsError`."""
    stack: list[Walk[Any]] = [walk]
    calls = 1
    answer: Any = None
    while stack:
        try:
            called = stack[-1].send(answer)
        except StopIteration as done:
            stack.pop()
            answer = done.value
        else:
            calls += 1
            check_time()
            if calls > calls_max:
                raise TooManyCallsError
            stack.append(called)
            answer = None
    return cast(T, answer)
