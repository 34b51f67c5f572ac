"""Durations as people write them: `90s`, `15m`, `PT1H30M`. Pure."""

import re
from typing import Final

from ottla.model.errors import MisuseError

_SHORT: Final = re.compile(r"(\d{1,9})(ms|s|m|h|d|w)")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_ISO: Final = re.compile(
    r"P(?=.)(?:(\d{1,9})W)?(?:(\d{1,9})D)?(?:T(?=.)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,9})?)S)?)?"
)
_ISO_UNITS_MS: Final = (604_800_000, 86_400_000, 3_600_000, 60_000, 1000)


class BadDurationError(MisuseError):
    """The text is not a duration."""


def parse_duration(text: str, *, bare_unit: str | None = None) -> int:
    """A duration in ms, written short or as in ISO 8601; a number alone counts in `bare_unit`, if there is one."""
    if bare_unit is not None and re.fullmatch(r"\d{1,15}", text):
        return int(text) * _UNITS_MS[bare_unit]
    short = _SHORT.fullmatch(text)
    if short is not None:
        return int(short[1]) * _UNITS_MS[short[2]]
    iso = _ISO.fullmatch(text.upper())
    if iso is not None:
        pairs = zip(iso.groups(), _ISO_UNITS_MS, strict=True)
        return sum(round(float(part) * unit) for part, unit in pairs if part is not None)
    raise BadDurationError(f"{text!r} is not a valid duration; write one such as 90s, 15m, 2h, 1d or PT1H30M")


def human_duration(span_ms: int) -> str:
    """A duration in its largest unit: 3 d, 15 m, 2.5 s."""
    for unit in ("d", "h", "m"):
        if span_ms >= _UNITS_MS[unit]:
            return f"{span_ms / _UNITS_MS[unit]:.3g} {unit}"
    return f"{span_ms / 1000:.3g} s"
