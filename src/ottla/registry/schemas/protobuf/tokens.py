"""The tokens of a `.proto` text."""

import re
from typing import Final, NamedTuple

from ottla.registry.schemas.parsed_schema import InvalidSchemaError

IDENTIFIER: Final = 1
INTEGER: Final = 2
FLOAT: Final = 3
STRING: Final = 4
SYMBOL: Final = 5
END: Final = 6
_BAD: Final = 7

# Whitespace and comments, then one token. No part can match the same text in two ways, so the time is linear.
_TOKEN: Final = re.compile(
    r"(?:[ \t\r\n\f\v]+|//[^\n]*|/\*[\s\S]*?\*/)*"
    r"(?:([A-Za-z_][A-Za-z0-9_]*)"
    r"|(0[xX][0-9a-fA-F]+(?![.\w])|0[0-7]*(?![.\w])|[1-9][0-9]*(?![.\w]))"
    r"|((?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![.\w])|[0-9]+[eE][+-]?[0-9]+(?![.\w]))"
    r"""|("(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')"""
    r"|([{}\[\]()<>=;,.:+\-]|/(?!\*))"
    r"|(\Z)"
    r"|([\s\S]))"
)

_ESCAPE: Final = re.compile(
    r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([abfnrtv\\'\"?])|)", re.ASCII
)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Tokens(NamedTuple):
    """Three lists of the same length; the last token is END."""

    kinds: list[int]
    texts: list[str]
    offsets: list[int]


def place_of(text: str, offset: int) -> str:
    """The place as people read it: line and column from 1."""
    line = text.count("\n", 0, offset) + 1
    return f"line {line}, column {offset - text.rfind(chr(10), 0, offset)}"


def tokens_of(text: str) -> Tokens:
    """The tokens of a text, without comments. Raises `InvalidSchemaError`."""
    kinds: list[int] = []
    texts: list[str] = []
    offsets: list[int] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastindex
        assert kind is not None
        if kind == _BAD:
            offset = match.start(_BAD)
            raise InvalidSchemaError(f"{place_of(text, offset)}: {_complaint(text, offset)}")
        kinds.append(kind)
        texts.append(match.group(kind))
        offsets.append(match.start(kind))
        if kind == END:
            break
    return Tokens(kinds, texts, offsets)


def _complaint(text: str, offset: int) -> str:
    if text.startswith("/*", offset):
        return "the comment is not closed"
    character = text[offset]
    if character in "\"'":
        return "the string is not closed on its line"
    if character.isascii() and character.isdigit():
        return "malformed number"
    return f"unexpected character {character!r}"


def unquoted(text: str, literal: str, offset: int) -> str:
    """The value of a quoted string literal that starts at an offset of a text; see `Scalar` for bytes beyond UTF-8."""
    body = literal[1:-1]
    if "\\" not in body:
        return body
    data = bytearray()
    position = 0
    for match in _ESCAPE.finditer(body):
        data += body[position : match.start()].encode("utf-8", "surrogatepass")
        position = match.end()
        octal, hexadecimal, short, long, simple = match.groups()
        if octal is not None:
            data.append(int(octal, 8) & 0xFF)
        elif hexadecimal is not None:
            data.append(int(hexadecimal, 16))
        elif short is not None or long is not None:
            code = int(short or long, 16)
            if code > 0x10FFFF:
                raise InvalidSchemaError(f"{place_of(text, offset)}: {match.group()} is not a Unicode character")
            data += chr(code).encode("utf-8", "surrogatepass")
        elif simple is not None:
            data += _ESCAPED.get(simple, simple).encode()
        else:
            raise InvalidSchemaError(f"{place_of(text, offset)}: invalid escape sequence in string")
    data += body[position:].encode("utf-8", "surrogatepass")
    return data.decode("utf-8", "surrogateescape")
