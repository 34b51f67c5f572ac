"""A finding of `ottla doctor`: what was looked at, what was found, how bad it is, and what to change."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is. Only a problem makes the command fail."""

    OK = "ok"
    WARNING = "warning"
    """A broker runs, but slower or less safely than it could."""
    PROBLEM = "problem"
    """A broker does not start, or may lose records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the report."""

    area: str
    subject: str
    level: Level
    found: str
    change: str | None = None
    """What to do; None if everything is fine."""


def count_of(findings: Iterable[Finding], level: Level) -> int:
    """The number of findings of that level."""
    return sum(each.level is level for each in findings)
