"""What both rivals share: the body of a record that tells when it is due, and what became of it."""

from dataclasses import dataclass
from typing import Final

VALUE_BYTES: Final = 100
MARK: Final = b"due="
"""Every value begins with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A delivered record: when it was due, and when the consumer had it."""

    due_ms: int
    arrived_ms: float

    @property
    def late_ms(self) -> float:
        """Negative if it was early."""
        return self.arrived_ms - self.due_ms


def body_of(due_ms: int) -> bytes:
    """A record's value: the time, and filling."""
    return (MARK + b"%015d;" % due_ms).ljust(VALUE_BYTES, b"x")


def due_of(body: bytes) -> int:
    """The time in a record's value."""
    return int(body[len(MARK) : len(MARK) + 15])
