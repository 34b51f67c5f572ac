"""A filter as tokens, each with its position."""

import re
from enum import Enum
from typing import Final, NamedTuple

from ottla.console.filters.errors import FilterError

TEXT_MAX: Final = 4_096
"""The longest filter, in characters."""
_NUMBER_MAX: Final = 40


class Kind(Enum):
    """What a token is."""

    NAME = "name"
    TEXT = "text"
    NUMBER = "number"
    SIGN = "sign"
    END = "end"


class Token(NamedTuple):
    """`value` is the name, the sign, the text without quotes, or the number."""

    kind: Kind
    value: str | int | float
    position: int


_TOKEN: Final = re.compile(
    r"""(?P<space>\s+)
    |(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<name>[^\W\d][\w$]*)
    |(?P<sign>==|!=|<=|>=|&&|\|\||[<>!().,\[\]])
    |(?P<quote>["'])""",
    re.VERBOSE,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", '"': '"', "'": "'", "/": "/"}


def tokens_of(text: str) -> list[Token]:
    """All tokens, with one of kind END at the end. Raises `FilterError`."""
    if len(text) > TEXT_MAX:
        raise FilterError(f"the filter is longer than {TEXT_MAX} characters", text, TEXT_MAX)
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise FilterError(f"unexpected character {text[position]!r}{_hint(text, position)}", text, position)
        kind = match.lastgroup
        if kind == "quote":
            value, end = _quoted(text, position)
            found.append(Token(Kind.TEXT, value, position))
            position = end
            continue
        if kind == "number":
            found.append(Token(Kind.NUMBER, _number(match[0], text, position), position))
        elif kind != "space":
            found.append(Token(Kind.NAME if kind == "name" else Kind.SIGN, match[0], position))
        position = match.end()
    found.append(Token(Kind.END, "", len(text)))
    return found


def _number(word: str, text: str, position: int) -> int | float:
    if len(word) > _NUMBER_MAX:
        raise FilterError("the number is too long", text, position)
    return int(word) if word.lstrip("-").isdigit() else float(word)


def _quoted(text: str, start: int) -> tuple[str, int]:
    quote = text[start]
    parts: list[str] = []
    position = start + 1
    while position < len(text):
        character = text[position]
        if character == quote:
            return "".join(parts), position + 1
        if character != "\\":
            parts.append(character)
            position += 1
            continue
        escaped = text[position + 1 : position + 2]
        if escaped == "u" and re.fullmatch(r"[0-9a-fA-F]{4}", text[position + 2 : position + 6]):
            code = int(text[position + 2 : position + 6], 16)
            if 0xD800 <= code < 0xE000:
                raise FilterError("half a character; write the character itself", text, position)
            parts.append(chr(code))
            position += 6
        elif escaped in _ESCAPES and escaped:
            parts.append(_ESCAPES[escaped])
            position += 2
        else:
            raise FilterError(r"unknown escape; write \\ for a backslash, or \" \n \t \r \0 \u00e4", text, position)
    raise FilterError("the text is not closed; a quote is missing", text, start)


def _hint(text: str, position: int) -> str:
    if text[position] == "=":
        return "; write == to compare"
    if text[position] in "&|":
        return f"; write {text[position] * 2}"
    return ""
