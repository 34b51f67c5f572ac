"""Bytes of a record as a form shows and returns them: as text, as hexadecimal digits, or null. Pure.

A form changes text: it turns line ends into CR LF and drops a first line end. Bytes for which that would matter, and
those that are not printable UTF-8, are shown as hexadecimal digits, so that an unchanged form returns the same bytes.
"""

import binascii
from collections.abc import Iterable

import msgspec

from ottla.client.values import Header
from ottla.console.errors import InvalidFormError

TEXT, HEX, NULL = "text", "hex", "null"
FORMS = ((TEXT, "text"), (HEX, "hexadecimal"), (NULL, "null"))
_HEX_PREFIX = "hex:"
_BYTES_PER_LINE = 16


def form_of_bytes(data: bytes | None) -> tuple[str, str]:
    """The form in which bytes are edited, and their text in it."""
    if data is None:
        return NULL, ""
    text = _plain(data)
    return (HEX, data.hex(" ")) if text is None else (TEXT, text)


def bytes_of_form(form: str, text: str, name: str) -> bytes | None:
    """The bytes that a form returns. Raises `InvalidFormError`, which names the field."""
    field = name.partition(",")[0]
    if form == NULL:
        return None
    if form == HEX:
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise InvalidFormError(f"{name}: not hexadecimal digits, two for each byte", field) from None
    if form != TEXT:
        raise InvalidFormError(f"{name}: {form!r} is not one of {TEXT}, {HEX} and {NULL}", f"{field}_form")
    return text.replace("\r\n", "\n").encode()


def header_lines(headers: Iterable[Header]) -> str:
    """One header per line: name=value, name=hex:0a ff, or the name alone for null."""
    lines = []
    for name, value in headers:
        if value is None:
            lines.append(name)
            continue
        text = _plain(value)
        is_plain = text is not None and "\n" not in text and not text.startswith(_HEX_PREFIX)
        lines.append(f"{name}={text if is_plain else _HEX_PREFIX + value.hex(' ')}")
    return "\n".join(lines)


def header_text(value: bytes | None) -> str | None:
    """A header's value to look at: its text, or hexadecimal digits; None for null."""
    if value is None:
        return None
    text = _plain(value)
    return value.hex(" ") if text is None else text


def headers_of_lines(text: str) -> tuple[Header, ...]:
    """The headers of such lines. Raises `InvalidFormError`."""
    headers: list[Header] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not name:
            raise InvalidFormError(f"headers, line {number}: {line!r} has no name; write name=value", "headers")
        if not equals:
            headers.append((name, None))
        elif value.startswith(_HEX_PREFIX):
            headers.append((name, bytes_of_form(HEX, value[len(_HEX_PREFIX) :], f"headers, line {number}")))
        else:
            headers.append((name, value.encode()))
    return tuple(headers)


def shown_bytes(data: bytes | None, most: int = 65_536) -> tuple[str, str, bool]:
    """Bytes to look at: their form (JSON, text, hexadecimal, null), the text, and whether it was cut."""
    if data is None:
        return NULL, "null", False
    is_cut = len(data) > most
    some = data[:most]
    if not is_cut:
        try:
            pretty = msgspec.json.format(some, indent=2).decode()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        else:
            if len(pretty) <= 4 * most:
                return "JSON", pretty, False
    try:
        text = some.decode("utf-8", "strict" if not is_cut else "ignore")
    except UnicodeDecodeError:
        return "hexadecimal", _dump(some), is_cut
    if "\x00" in text:
        return "hexadecimal", _dump(some), is_cut
    return "text", text, is_cut


def one_line(data: bytes | None, most: int = 120) -> str | None:
    """Bytes in one short line, for tables; None for null."""
    if data is None:
        return None
    text = data[: 4 * most].decode("utf-8", "backslashreplace")
    flat = " ".join(text.split())
    return flat if len(flat) <= most and len(data) <= 4 * most else flat[:most] + "…"


def _plain(data: bytes) -> str | None:
    """Text that survives a form; None if these bytes do not."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if text.startswith("\n") or any(ord(each) < 32 and each not in "\n\t" for each in text):
        return None
    return text


def _dump(data: bytes) -> str:
    """Lines with the place, 16 bytes and their ASCII characters."""
    lines = []
    for at in range(0, len(data), _BYTES_PER_LINE):
        some = data[at : at + _BYTES_PER_LINE]
        digits = binascii.hexlify(some, " ").decode()
        characters = "".join(chr(each) if 32 <= each < 127 else "." for each in some)
        lines.append(f"{at:08x}  {digits:<{3 * _BYTES_PER_LINE}} {characters}")
    return "\n".join(lines)
