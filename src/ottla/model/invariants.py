"""Invariants: conditions that must always be true. A violation is a bug, and stops the broker."""

from typing import NoReturn


class InvariantViolation(BaseException):
    """The program has a bug and its memory cannot be trusted; caught only to stop.

    Not an `Exception`, so that no handler for ordinary failures swallows it.
    """


def violated(what: str) -> NoReturn:
    """Raises for a violated invariant; `what` names it, with the values that violate it."""
    raise InvariantViolation(what)
