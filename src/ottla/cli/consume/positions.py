"""Positions in a topic as people write them: `beginning`, `end`, an offset, `-10`, a time, `1h` ago. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ottla.model.errors import InvalidRequestError

_SPANS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SPAN: Final = re.compile(r"(\d{1,9})(ms|s|m|h|d|w)")
_NUMBER: Final = re.compile(r"-?\d{1,18}")


class BadPositionError(InvalidRequestError):
    """The text is not a position in a topic."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first record that is still there."""


@dataclass(frozen=True, slots=True)
class End:
    """The offset after the last record, now."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """An offset, the same in every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class FromEnd:
    """A number of offsets before the end of each partition."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time, in ms since 1970."""

    timestamp: int


Position = Beginning | End | AtOffset | FromEnd | AtTime


def parse_position(text: str, now_ms: int) -> Position:
    """What `text` means at that time of day; raises `BadPositionError`. A time without zone is local."""
    if text in ("beginning", "start", "earliest"):
        return Beginning()
    if text in ("end", "latest"):
        return End()
    if _NUMBER.fullmatch(text):
        number = int(text)
        return FromEnd(-number) if text.startswith("-") else AtOffset(number)
    span = _SPAN.fullmatch(text)
    if span is not None:
        return AtTime(now_ms - int(span[1]) * _SPANS[span[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadPositionError(
            f"{text!r} is not a valid position; write beginning, end, an offset, -10 for ten offsets before the end, "
            "a time such as 2024-05-01T12:00, or a duration such as 1h"
        ) from None
    local = moment if moment.tzinfo is not None else moment.astimezone()
    return AtTime(int(local.astimezone(UTC).timestamp() * 1000))
