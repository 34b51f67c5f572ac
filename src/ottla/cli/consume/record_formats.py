"""Records into lines: what `ottla consume` prints. Pure.

A format is one of `OutputFormat`, or a template such as `%t %p %o %k %s\\n` with kcat's letters and escapes:

| letter | stands for | letter | stands for |
|---|---|---|---|
| `%t` | topic | `%s` | value |
| `%p` | partition | `%S` | length of the value, -1 for null |
| `%o` | offset | `%R` | length of the value as four bytes, big-endian |
| `%T` | timestamp | `%k` | key |
| `%h` | headers, `name=value,…` | `%K` | length of the key, -1 for null |

`%%` is a percent sign; `\\n`, `\\r`, `\\t`, `\\0`, `\\\\` and `\\x0a` are characters. A template must end
its lines itself.
"""

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from ottla.cli.consume.decoded_record import DecodedRecord
from ottla.cli.output import json_line, printable_bytes
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.records.record import Record


class OutputFormat(StrEnum):
    """How a record becomes a line."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"
    RAW = "raw"


class Field(StrEnum):
    """What a line can show of a record."""

    TOPIC = "topic"
    PARTITION = "partition"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    HEADERS = "headers"
    KEY = "key"
    VALUE = "value"


class TimeFormat(StrEnum):
    """How a timestamp is written."""

    EPOCH = "epoch"
    ISO = "iso"
    LOCAL = "local"


class BadTemplateError(MisuseError):
    """A format that is neither a known word nor a valid template."""


Format = Callable[[TopicPartition, Record], bytes]
_Part = Callable[[TopicPartition, Record], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineStyle:
    """How the parts of a record are printed, in every format."""

    fields: tuple[Field, ...] = ()
    """The fields of a line, in order; the value follows unless it is one of them."""
    separator: bytes = b"\t"
    null_mark: bytes = b"null"
    time_format: TimeFormat = TimeFormat.EPOCH
    is_escaped: bool = False
    """Whether characters that a terminal would obey are written as escapes."""


_ENCODE: Final[dict[OutputFormat, Callable[[bytes], bytes]]] = {
    OutputFormat.TEXT: bytes,
    OutputFormat.HEX: lambda data: data.hex().encode(),
    OutputFormat.BASE64: base64.b64encode,
}
_NO_LENGTH: Final = -1


def record_format(text: str, style: LineStyle) -> Format:
    """A function from a record to its bytes, line end included. Raises `BadTemplateError`."""
    if text not in {each.value for each in OutputFormat}:
        return _template_format(text, style)
    kind = OutputFormat(text)
    if kind is OutputFormat.JSON:
        return lambda partition, record: _as_json(partition, record, is_for_terminal=style.is_escaped)
    if kind is OutputFormat.RAW:
        show = printable_bytes if style.is_escaped else bytes
        return lambda _, record: show(record.value or b"")
    encode, null_mark = _ENCODE[kind], style.null_mark
    if not style.fields and not style.is_escaped:
        # The usual case, without the detour over a list of fields.
        return lambda _, record: (null_mark if record.value is None else encode(record.value)) + b"\n"
    parts = _parts(encode, style)
    fields = style.fields if Field.VALUE in style.fields else (*style.fields, Field.VALUE)
    chosen = [parts[field] for field in fields]
    return lambda partition, record: style.separator.join([part(partition, record) for part in chosen]) + b"\n"


def _parts(encode: Callable[[bytes], bytes], style: LineStyle) -> dict[Field, _Part]:
    null_mark = style.null_mark

    def shown(data: bytes | None) -> bytes:
        return null_mark if data is None else encode(data)

    def escaped(data: bytes | None) -> bytes:
        return null_mark if data is None else printable_bytes(encode(data))

    show = escaped if style.is_escaped else shown

    def headers(_: TopicPartition, record: Record) -> bytes:
        names = [(name.encode("utf-8", "surrogateescape"), value) for name, value in record.headers]
        return b",".join(
            (printable_bytes(name) if style.is_escaped else name) + b"=" + show(value) for name, value in names
        )

    return {
        Field.TOPIC: lambda partition, _: partition.topic.encode(),
        Field.PARTITION: lambda partition, _: b"%d" % partition.partition,
        Field.OFFSET: lambda _, record: b"%d" % record.offset,
        Field.TIMESTAMP: lambda _, record: time_text(record.timestamp, style.time_format).encode(),
        Field.HEADERS: headers,
        Field.KEY: lambda _, record: show(record.key),
        Field.VALUE: lambda _, record: show(record.value),
    }


# Templates

_TOKEN: Final = re.compile(
    r"%(?P<letter>.?)|\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>.?))|(?P<text>[^%\\]+)", re.DOTALL
)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_LETTERS: Final = {
    "t": Field.TOPIC,
    "p": Field.PARTITION,
    "o": Field.OFFSET,
    "T": Field.TIMESTAMP,
    "h": Field.HEADERS,
    "k": Field.KEY,
    "s": Field.VALUE,
}
_LENGTHS: Final[dict[str, _Part]] = {
    "S": lambda _, record: b"%d" % _length(record.value),
    "K": lambda _, record: b"%d" % _length(record.key),
    "R": lambda _, record: _length(record.value).to_bytes(4, "big", signed=True),
}


def _template_format(text: str, style: LineStyle) -> Format:
    if "%" not in text and "\\" not in text:
        known = ", ".join(OutputFormat)
        raise BadTemplateError(rf"{text!r} is not one of {known}, nor a template such as '%t %p %o %k %s\n'")
    named = _parts(bytes, style)
    parts = [_template_part(found, named, is_escaped=style.is_escaped) for found in _TOKEN.finditer(text)]
    return lambda partition, record: b"".join([part(partition, record) for part in parts])


def _template_part(found: re.Match[str], named: dict[Field, _Part], *, is_escaped: bool) -> _Part:
    letter, escape = found["letter"], found["escape"]
    if letter is not None and letter != "%":
        if letter in _LETTERS:
            return named[_LETTERS[letter]]
        if letter in _LENGTHS:
            length = _LENGTHS[letter]
            return (lambda partition, record: printable_bytes(length(partition, record))) if is_escaped else length
        raise BadTemplateError(
            f"%{letter} is not known; use {' '.join(f'%{each}' for each in (*_LETTERS, *_LENGTHS, '%'))}"
        )
    if letter == "%":
        literal = b"%"
    elif found["hex"] is not None:
        literal = bytes.fromhex(found["hex"])
    elif escape is not None:
        if escape not in _ESCAPES:
            raise BadTemplateError(rf"\{escape} is not known; use \n \r \t \0 \\ or \xHH")
        literal = _ESCAPES[escape]
    else:
        literal = found["text"].encode("utf-8", "surrogateescape")
    return lambda _, __: literal


def _length(data: bytes | None) -> int:
    return _NO_LENGTH if data is None else len(data)


# Parts that need more than one line

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(timestamp: int, kind: TimeFormat) -> str:
    """A timestamp in ms since 1970 as it is printed; one outside of the calendar stays a number."""
    if kind is TimeFormat.EPOCH or timestamp < 0:
        return str(timestamp)
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp)
        if kind is TimeFormat.LOCAL:
            return moment.astimezone().replace(tzinfo=None).isoformat(" ", "milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(timestamp)
    return moment.replace(tzinfo=None).isoformat("T", "milliseconds") + "Z"


def _as_json(partition: TopicPartition, record: Record, *, is_for_terminal: bool) -> bytes:
    names = [name for name, _ in record.headers]
    headers: Any = {name: json_bytes(value) for name, value in record.headers}
    if len(headers) < len(names):
        headers = [[name, json_bytes(value)] for name, value in record.headers]
    document = {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": headers,
    }
    if isinstance(record, DecodedRecord):
        for name, data, part in (
            ("key", record.raw_key, record.key_part),
            ("value", record.raw_value, record.value_part),
        ):
            document[name] = part.value if part.error is None else json_bytes(data)
            document[f"{name}_schema"] = part.schema
    return json_line(document, is_for_terminal=is_for_terminal)


def json_bytes(data: bytes | None) -> Any:
    """UTF-8 as text, other bytes as base64 in a wrapper that `ottla produce --format json` reads back."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
