"""What a command prints: tables and facts for people, JSON for programs; drawn on a terminal, aligned when piped."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_NUMBERS: Final = (int, float)
MISSING: Final = "-"
"""Stands in a table where there is no value."""

Cell = str | int | float | None


def print_json(value: Any) -> None:
    """One JSON document, indented."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def json_line(value: Any) -> bytes:
    """One JSON object on a line of its own."""
    return msgspec.json.encode(value) + b"\n"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, title: str | None = None) -> None:
    """Rows under their headings; numbers to the right. Plain and aligned unless a person looks at a terminal."""
    shown = [list(row) for row in rows]
    right = [_is_numeric([row[at] for row in shown]) for at in range(len(columns))]
    texts = [["" if cell is None else str(cell) for cell in row] for row in shown]
    if sys.stdout.isatty():
        _draw(columns, texts, right, title)
        return
    widths = [max(len(heading), *(len(row[at]) for row in texts), 0) for at, heading in enumerate(columns)]
    if title is not None:
        print(title)
    for row in [[heading.upper() for heading in columns], *texts]:
        placed = zip(row, widths, right, strict=True)
        print("  ".join(cell.rjust(width) if number else cell.ljust(width) for cell, width, number in placed).rstrip())


def _is_numeric(cells: Sequence[Cell]) -> bool:
    """Whether a column holds numbers, some of them perhaps missing."""
    numbers = [cell for cell in cells if cell is not None and cell != MISSING]
    return bool(numbers) and all(isinstance(cell, _NUMBERS) for cell in numbers)


def print_facts(facts: Mapping[str, Cell]) -> None:
    """Names and values, one pair a line."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        print(f"{name.ljust(width)}  {'' if value is None else value}".rstrip())


def human_bytes(size: float) -> str:
    """A size as a person says it: 1.5 MiB."""
    if size < 0:
        return "unknown"
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.0f} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def human_count(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun: 1 record, 1,234 records."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def say(words: str) -> None:
    """A remark for a person, on stderr, where it is in nobody's way."""
    print(words, file=sys.stderr)


def _draw(columns: Sequence[str], rows: list[list[str]], right: Sequence[bool], title: str | None) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, number in zip(columns, right, strict=True):
        table.add_column(heading, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)
