"""What a command prints: tables and facts for people, JSON for programs; drawn on a terminal, aligned when piped.

A group id or a client id may hold any character, and any client can choose one. All text for people passes through
`printable`, so that no name can move the cursor, recolour the terminal or fake a line of output.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_NUMBERS: Final = (int, float)
MISSING: Final = "-"
"""Stands in a table where there is no value."""

Cell = str | int | float | None

_shown_width = 0
"""Width of the line of progress on stderr; 0 if there is none."""

_SHORT_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_MAYBE_UNPRINTABLE: Final = re.compile(r"[^ -~]")
_UNSAFE_IN_JSON: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What JSON may hold as it stands and a terminal may obey: DEL, C1 controls, and characters that turn text around."""


def printable(text: str) -> str:
    """The text with every character that is not printable written as an escape: \\n, \\x1b, \\u202e."""
    return _MAYBE_UNPRINTABLE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        # A byte of the environment that is not UTF-8.
        return f"\\x{code - 0xDC00:02x}"
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def printable_bytes(data: bytes) -> bytes:
    """The same for bytes that are probably UTF-8; bytes that are not are written as \\xff."""
    return printable(data.decode("utf-8", "surrogateescape")).encode()


def show_line(text: str) -> None:
    """Shows a line of progress on stderr, in place of the last one; whatever is printed next removes it."""
    global _shown_width
    sys.stderr.write(f"\r{text.ljust(_shown_width)}")
    sys.stderr.flush()
    _shown_width = len(text)


def clear_line() -> None:
    """Removes the line of progress, if there is one."""
    global _shown_width
    if _shown_width:
        sys.stderr.write(f"\r{' ' * _shown_width}\r")
        sys.stderr.flush()
        _shown_width = 0


def print_json(value: Any) -> None:
    """One JSON document, indented."""
    clear_line()
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    print(_safe_json(text) if sys.stdout.isatty() else text)


def json_line(value: Any, *, is_for_terminal: bool = False) -> bytes:
    """One JSON object on a line of its own."""
    line = msgspec.json.encode(value) + b"\n"
    return _safe_json(line.decode()).encode() if is_for_terminal else line


def _safe_json(text: str) -> str:
    """The same document, with characters that a terminal may obey written as JSON's own escapes."""
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def tell(*lines: str) -> None:
    """Lines for a person, on stdout."""
    clear_line()
    for line in lines:
        print(printable(line))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Rows under their headings; numbers to the right. Drawn on a terminal, plain and aligned elsewhere."""
    clear_line()
    shown = [list(row) for row in rows]
    right = [_is_numeric([row[at] for row in shown]) for at in range(len(columns))]
    texts = [["" if cell is None else printable(str(cell)) for cell in row] for row in shown]
    if sys.stdout.isatty():
        _draw(columns, texts, right)
        return
    widths = [max(len(heading), *(len(row[at]) for row in texts), 0) for at, heading in enumerate(columns)]
    for row in [[heading.upper() for heading in columns], *texts]:
        placed = zip(row, widths, right, strict=True)
        print("  ".join(cell.rjust(width) if number else cell.ljust(width) for cell, width, number in placed).rstrip())


def print_list(documents: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, as_json: bool) -> None:
    """A list of things: as JSON, or as a table with these headings, each with the field that it shows."""
    if as_json:
        print_json(documents)
    else:
        print_table(list(columns), [[_cell(each[field]) for field in columns.values()] for each in documents])


def _cell(value: Any) -> Cell:
    if isinstance(value, bool):
        return "yes" if value else ""
    return MISSING if value in (None, "") else value


def _is_numeric(cells: Sequence[Cell]) -> bool:
    """Whether a column holds numbers, some of them perhaps missing."""
    numbers = [cell for cell in cells if cell is not None and cell != MISSING]
    return bool(numbers) and all(isinstance(cell, _NUMBERS) for cell in numbers)


def print_facts(facts: Mapping[str, Cell]) -> None:
    """Names and values, one pair per line."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        tell(f"{name.ljust(width)}  {'' if value is None else value}".rstrip())


def human_bytes(size: float) -> str:
    """A size in a readable unit: 1.5 MiB."""
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


def say(*lines: str) -> None:
    """Remarks for a person, on stderr, so that stdout holds only what was asked for."""
    clear_line()
    for line in lines:
        print(printable(line), file=sys.stderr)


def say_errors(errors: Iterable[Exception]) -> None:
    """What brokers refused, one line per refusal, on stderr."""
    say(*(f"ottla: {error}" for error in errors))


def _draw(columns: Sequence[str], rows: list[list[str]], right: Sequence[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, number in zip(columns, right, strict=True):
        table.add_column(heading, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)
