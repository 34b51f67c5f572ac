"""The lines of the keys of a TOML text: `tomllib` reads values, but does not report their lines. Pure.

Tables (`[a.b]`) and keys (`c = …`) are found line by line. Everything in an inline table or an array has the line of
its key. The text must be valid TOML.
"""

import re
from typing import Final

Path = tuple[str, ...]

_HEADER: Final = re.compile(r"\s*\[{1,2}(?P<keys>[^\[\]]+)\]{1,2}\s*(#.*)?$")
_KEY: Final = re.compile(
    r"\s*(?P<keys>(?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=(?P<rest>.*)"
)
_PART: Final = re.compile(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)")
_MULTILINE: Final = ('"""', "'''")


def lines_of(text: str) -> dict[Path, int]:
    """The line of every table and key, counted from 1, by its path."""
    found: dict[Path, int] = {}
    table: Path = ()
    closing: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if closing is not None:
            closing = None if closing in line else closing
            continue
        if header := _HEADER.match(line):
            table = _parts(header["keys"])
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            path = table + _parts(key["keys"])
            for depth in range(len(table) + 1, len(path) + 1):
                found.setdefault(path[:depth], number)
            for quote in _MULTILINE:
                if key["rest"].lstrip().startswith(quote) and key["rest"].count(quote) == 1:
                    closing = quote
    return found


def line_of(lines: dict[Path, int], path: Path) -> int:
    """The line of a path, or of the nearest table around it; 0 if there is none."""
    for depth in range(len(path), 0, -1):
        if path[:depth] in lines:
            return lines[path[:depth]]
    return 0


def _parts(keys: str) -> Path:
    return tuple(next(group for group in found if group) if any(found) else "" for found in _PART.findall(keys))
