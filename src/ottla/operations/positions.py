"""Positions in a topic as people write them: `beginning`, `end`, an offset, `-10`, a time, `1h` ago. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ottla.model.errors import InvalidRequestError, MisuseError
from ottla.operations.durations import BadDurationError, parse_duration

_NUMBER: Final = re.compile(r"-?\d{1,18}")


class BadPositionError(InvalidRequestError):
    """The text is not a position in a topic."""


class BadTimeError(MisuseError):
    """The text is not a time."""


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
    """What `text` means at `now_ms`; raises `BadPositionError`. A time without a zone is local."""
    if text in ("beginning", "start", "earliest"):
        return Beginning()
    if text in ("end", "latest"):
        return End()
    if _NUMBER.fullmatch(text):
        number = int(text)
        return FromEnd(-number) if text.startswith("-") else AtOffset(number)
    try:
        return AtTime(now_ms - parse_duration(text))
    except BadDurationError:
        pass
    try:
        moment = datetime.fromisoformat(text)
        local = moment if moment.tzinfo is not None else moment.astimezone()
        return AtTime(int(local.astimezone(UTC).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise BadPositionError(
            f"{text!r} is not a valid position; write beginning, end, an offset, -10 for ten offsets before the end, "
            "a time such as 2024-05-01T12:00, or a duration such as 1h"
        ) from None


def parse_past(text: str, now_ms: int) -> int:
    """A time in ms: ISO 8601, local without a zone, or a duration before now. Raises `BadTimeError`."""
    return _time(text, now_ms, -1)


def parse_future(text: str, now_ms: int) -> int:
    """A time in ms: ISO 8601, local without a zone, or a duration from now on. Raises `BadTimeError`."""
    return _time(text, now_ms, 1)


def _time(text: str, now_ms: int, sign: int) -> int:
    try:
        return now_ms + sign * parse_duration(text)
    except BadDurationError:
        pass
    try:
        position = parse_position(text, now_ms)
    except BadPositionError:
        position = None
    if not isinstance(position, AtTime):
        raise BadTimeError(
            f"{text!r} is not a valid time; write one such as 2024-05-01T12:00, or a duration such as 2h"
        )
    return position.timestamp
