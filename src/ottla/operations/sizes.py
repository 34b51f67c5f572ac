"""Sizes as people write them: `16k`, `10 MB`, `1g`. Pure."""

from typing import Final

from ottla.model.errors import MisuseError

_K, _M, _G = 1 << 10, 1 << 20, 1 << 30
_UNITS: Final = {
    "": 1,
    "b": 1,
    "k": _K,
    "kb": _K,
    "kib": _K,
    "m": _M,
    "mb": _M,
    "mib": _M,
    "g": _G,
    "gb": _G,
    "gib": _G,
}


class BadSizeError(MisuseError):
    """The text is not a size."""


def parse_size(text: str) -> int:
    """Bytes, with k, m or g for powers of 1024, as in 16k. Raises `BadSizeError`."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = _UNITS.get(text[len(digits) :].strip().lower())
    if not digits.isascii() or not digits.isdigit() or unit is None or int(digits) * unit == 0:
        raise BadSizeError(f"{text!r} is not a valid size; write bytes, or a number with k, m or g")
    return int(digits) * unit
