"""Invariants: what must hold whatever happens outside. A broken one is a bug, and stops the broker."""

from typing import NoReturn


class InvariantViolation(BaseException):
    """The program is wrong and its memory cannot be trusted; never caught except to stop.

    Not an `Exception`, so that no handler for ordinary failures swallows it.
    """


def violated(what: str) -> NoReturn:
    """Raises for a broken invariant; `what` says which, with the values that broke it."""
    raise InvariantViolation(what)
