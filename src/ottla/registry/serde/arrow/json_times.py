"""Dates and times as text, as Spark reads them without a format: lenient about digits, strict otherwise.

For example `2024-5-1`, `2024-05-01T12:00`, `2024-05-01 12:00:00.123456+02:00`. A time without a zone is UTC.
"""

import re
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Final

_DATE: Final = r"(?P<year>\d{4})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
_TIME: Final = (
    r"(?:[T ](?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d{1,9}))?)?"
    r"(?:\s*(?P<zone>Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?))?)?"
)
_TIMESTAMP: Final = re.compile(rf"\s*{_DATE}{_TIME})?)?\s*", re.ASCII)
_DAY: Final = re.compile(rf"\s*{_DATE}(?:[T ].*)?)?)?\s*", re.ASCII | re.DOTALL)


def parse_timestamp(text: str) -> datetime:
    """A timestamp; raises ValueError if the text is not one."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise ValueError(text)
    fraction = (found["fraction"] or "")[:6].ljust(6, "0")
    return datetime(
        int(found["year"]),
        int(found["month"] or 1),
        int(found["day"] or 1),
        int(found["hour"] or 0),
        int(found["minute"] or 0),
        int(found["second"] or 0),
        int(fraction),
        tzinfo=_zone(found["zone"]),
    )


def parse_date(text: str) -> date:
    """A date; raises ValueError if the text is not one."""
    found = _DAY.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return date(int(found["year"]), int(found["month"] or 1), int(found["day"] or 1))


def _zone(text: str | None) -> timezone:
    if text is None or text[0] not in "+-":
        return UTC
    digits = text[1:].replace(":", "")
    hours, minutes = (digits[:-2], digits[-2:]) if len(digits) > 2 else (digits, "0")
    span = timedelta(hours=int(hours), minutes=int(minutes))
    if int(minutes) > 59 or span > timedelta(hours=18):
        raise ValueError(text)
    return timezone(span if text[0] == "+" else -span)
