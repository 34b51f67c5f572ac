"""Bytes of keys, values and headers as text for people: never as markup, and cut to what a row needs. Pure."""

import base64
import json
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ottla.console.services.records.query import Decode

ROW_CHARACTERS: Final = 300
PRETTY_CHARACTERS: Final = 200_000
"""More of one value is not put into a page; it can be downloaded."""
_ROW_BYTES: Final = 4 * ROW_CHARACTERS
_INTEGER_BYTES: Final = (1, 2, 4, 8)
_CONTROL: Final = {
    code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if chr(code) not in "\n\t\r"
} | {ord("\n"): "\\n", ord("\t"): "\\t", ord("\r"): "\\r"}
_DIRECTIONS: Final = {
    code: f"\\u{code:04x}" for code in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""Characters that change the direction of text could make a row look like another one."""
_SURROGATES: Final = {code: f"\\u{code:04x}" for code in range(0xD800, 0xE000)}
"""JSON may have half a character (`"\\ud800"`), which no page can have."""
_ESCAPED: Final = {**_CONTROL, **_DIRECTIONS, **_SURROGATES}
_VISIBLE: Final = {code: text for code, text in _ESCAPED.items() if chr(code) not in "\n\t"}
"""What is escaped in text of several lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A key, value or header as text. `kind` says how it was read: null, json, string, hex, base64, integer, avro…"""

    text: str
    kind: str
    size_bytes: int
    is_cut: bool = False
    schema: str = ""
    """The subject or id of its schema."""
    error: str = ""
    """Why it could not be read by its schema, or as it was asked for."""

    @property
    def is_null(self) -> bool:
        """Whether there is no value, not even an empty one."""
        return self.kind == "null"


NULL: Final = Shown(text="null", kind="null", size_bytes=0)


def show(data: bytes | None, decode: Decode, *, characters_max: int = ROW_CHARACTERS) -> Shown:
    """Bytes as one line of text, with control characters as escapes."""
    if data is None:
        return NULL
    match decode:
        case Decode.HEX:
            return _cut(data[:characters_max].hex(" "), "hex", data, characters_max)
        case Decode.BASE64:
            return _cut(base64.b64encode(data[:characters_max]).decode(), "base64", data, characters_max)
        case Decode.INTEGER:
            if len(data) in _INTEGER_BYTES:
                return Shown(text=f"{int.from_bytes(data, 'big', signed=True)}", kind="integer", size_bytes=len(data))
            shown = show(data, Decode.HEX, characters_max=characters_max)
            return _with_error(shown, f"not an integer: {len(data)} bytes, not 1, 2, 4 or 8")
        case Decode.JSON:
            return _json_line(data, characters_max)
        case Decode.STRING:
            return _text(data, characters_max)
    head = data[: 4 * characters_max + 4]
    if _is_text(head):
        looks_like_json = head[:1] in (b"{", b"[")
        return _text(data, characters_max, "json" if looks_like_json else "string")
    return show(data, Decode.HEX, characters_max=characters_max)


def show_json(value: Any, data: bytes, kind: str, schema: str, *, characters_max: int = ROW_CHARACTERS) -> Shown:
    """A value that was read by its schema, as one line of JSON."""
    line = msgspec.json.encode(value).decode()
    text = line[:characters_max].translate(_ESCAPED)
    return Shown(text=text, kind=kind, size_bytes=len(data), is_cut=len(line) > characters_max, schema=schema)


def pretty(data: bytes | None, decode: Decode) -> Shown:
    """Bytes as text of several lines: JSON indented, hex with positions."""
    if data is None:
        return NULL
    if decode in (Decode.AUTO, Decode.JSON) and len(data) <= PRETTY_CHARACTERS * 4:
        try:
            return pretty_json(json.loads(data), data, "json", "")
        except (ValueError, RecursionError):
            pass
    shown = show(data, decode, characters_max=PRETTY_CHARACTERS)
    if shown.kind == "hex":
        return Shown(
            text=hex_dump(data[: PRETTY_CHARACTERS // 5]),
            kind="hex",
            size_bytes=len(data),
            is_cut=len(data) > PRETTY_CHARACTERS // 5,
            error=shown.error,
        )
    if shown.kind in ("string", "json"):
        lines = data.decode("utf-8", "replace")
        return Shown(
            text=lines[:PRETTY_CHARACTERS].translate(_VISIBLE),
            kind=shown.kind,
            size_bytes=len(data),
            is_cut=len(lines) > PRETTY_CHARACTERS,
            error=shown.error,
        )
    return shown


def pretty_json(value: Any, data: bytes, kind: str, schema: str) -> Shown:
    """A decoded value as indented JSON, of which no more is made than fits: a few bytes that are nested deeply have
    long lines."""
    parts: list[str] = []
    size = 0
    for part in json.JSONEncoder(indent=2, ensure_ascii=False, default=str).iterencode(value):
        parts.append(part)
        size += len(part)
        if size > PRETTY_CHARACTERS:
            break
    text = "".join(parts)
    return Shown(
        text=text[:PRETTY_CHARACTERS].translate(_VISIBLE),
        kind=kind,
        size_bytes=len(data),
        is_cut=len(text) > PRETTY_CHARACTERS,
        schema=schema,
    )


def hex_dump(data: bytes) -> str:
    """Sixteen bytes to a line: position, hex, and the characters that are ASCII."""
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        lines.append(f"{start:08x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {letters}")
    return "\n".join(lines)


def _text(data: bytes, characters_max: int, kind: str = "string") -> Shown:
    return _cut(data[: 4 * characters_max + 4].decode("utf-8", "replace"), kind, data, characters_max)


def _json_line(data: bytes, characters_max: int) -> Shown:
    try:
        # Long values are not parsed for a row: their beginning is shown as it is.
        if len(data) <= _ROW_BYTES * 16:
            data_line = msgspec.json.format(data, indent=-1)
            return _cut(data_line[: 4 * characters_max + 4].decode("utf-8", "replace"), "json", data, characters_max)
        return _text(data, characters_max, "json")
    except (msgspec.DecodeError, RecursionError) as error:
        return _with_error(_text(data, characters_max), f"not JSON: {error}")


def _cut(text: str, kind: str, data: bytes, characters_max: int) -> Shown:
    is_cut = len(text) > characters_max or (kind in ("hex", "base64") and len(data) > characters_max)
    return Shown(text=text[:characters_max].translate(_ESCAPED), kind=kind, size_bytes=len(data), is_cut=is_cut)


def _with_error(shown: Shown, error: str) -> Shown:
    return Shown(text=shown.text, kind=shown.kind, size_bytes=shown.size_bytes, is_cut=shown.is_cut, error=error)


def _is_text(head: bytes) -> bool:
    """Whether bytes are UTF-8 with hardly any control characters; a character at the end may be cut."""
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:
            return False
        text = head[: error.start].decode()
        if not text:
            return False
    odd = sum(ord(each) < 32 and each not in "\n\t\r" for each in text)
    return odd * 20 <= len(text)
