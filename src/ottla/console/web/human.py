"""Numbers, sizes, rates and times for people: short to read, exact on hover. Filters of the templates; pure."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup, escape

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_THOUSANDS: Final = ("", "k", "M", "G", "T")
_NONE: Final = Markup('<span class="none" title="not known">–</span>')
_SPANS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def short_number(value: float) -> str:
    """Three significant digits with k, M, G: 999, 1.23k, 45.6M."""
    size = abs(value)
    for unit in _THOUSANDS:
        if size < 999.5 or unit == _THOUSANDS[-1]:
            break
        size /= 1000
        value /= 1000
    if unit == "" and float(value).is_integer():
        return f"{int(value)}"
    return f"{value:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}{unit}"


def count(value: float | None) -> Markup:
    """A count with separators; short from 100,000 on, exact on hover."""
    if value is None:
        return _NONE
    exact = f"{value:,.0f}"
    if abs(value) < 100_000:
        return Markup("{}").format(exact)
    return _hover(short_number(value), exact)


def bytes_(value: float | None) -> Markup:
    """A size in binary units, exact on hover."""
    if value is None or value < 0:
        return _NONE
    return _hover(short_bytes(value), f"{value:,.0f} bytes")


def short_bytes(value: float) -> str:
    """A size in binary units: 0 B, 1.50 KiB, 3.12 GiB."""
    size = float(value)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.{2 if size < 10 else 1 if size < 100 else 0}f} {unit}"


def rate(value: float | None, unit: str = "") -> Markup:
    """A rate per second; the unit is for the hover text."""
    if value is None:
        return _NONE
    return _hover(short_number(round(value, 2)), f"{value:,.2f} {unit}/s".replace("  ", " "))


def byte_rate(value: float | None) -> Markup:
    """A rate in bytes per second."""
    return _NONE if value is None else _hover(f"{short_bytes(value)}/s", f"{value:,.0f} bytes/s")


def span(seconds: float) -> str:
    """A span of time in its two largest units: 2 min 40 s, 3 d 4 h, 120 ms."""
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    left = round(seconds)
    parts: list[str] = []
    for size, unit in _SPANS:
        if left >= size or parts:
            parts.append(f"{left // size} {unit}")
            left %= size
        if len(parts) == 2:
            break
    return " ".join(each for each in parts if not each.startswith("0 ")) or "0 s"


def duration(seconds: float | None) -> Markup:
    """A span in seconds, exact on hover."""
    return _NONE if seconds is None else _hover(span(seconds), f"{seconds:,.3f} s")


def duration_ms(milliseconds: float | None) -> Markup:
    """A span in milliseconds, exact on hover."""
    return _NONE if milliseconds is None else _hover(span(milliseconds / 1000), f"{milliseconds:,.0f} ms")


def time_text(at_ms: float, *, with_milliseconds: bool = False) -> str:
    """An instant, in UTC, which it says."""
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{int(at_ms)} ms since 1970"
    milliseconds = f".{at.microsecond // 1000:03d}" if with_milliseconds else ""
    return f"{at:%Y-%m-%d %H:%M:%S}{milliseconds} UTC"


def when(at_ms: float | None) -> Markup:
    """An instant in milliseconds since 1970, in UTC; milliseconds on hover."""
    if at_ms is None or at_ms < 0:
        return _NONE
    exact = time_text(at_ms, with_milliseconds=True)
    return Markup('<time data-ms="{:.0f}" title="{}">{}</time>').format(at_ms, exact, time_text(at_ms))


def ago(now_ms: Callable[[], int]) -> Callable[[float | None], Markup]:
    """The filter that says how long ago an instant was; the instant on hover."""

    def ago_(at_ms: float | None) -> Markup:
        if at_ms is None or at_ms < 0:
            return _NONE
        words = f"{span(max(0.0, (now_ms() - at_ms) / 1000))} ago"
        return Markup('<time data-ms="{:.0f}" title="{}">{}</time>').format(
            at_ms, time_text(at_ms, with_milliseconds=True), words
        )

    return ago_


def plural(number: int, one: str, many: str | None = None) -> str:
    """1 topic, 1,234 topics."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _hover(short: str, exact: str) -> Markup:
    return Markup('<span title="{}">{}</span>').format(escape(exact), escape(short))
