"""Records into lines: what `ottla consume` prints. Pure."""

import base64
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any, Final

from ottla.cli.output import json_line
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
    """What can stand before the value."""

    PARTITION = "partition"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    HEADERS = "headers"
    KEY = "key"


Format = Callable[[TopicPartition, Record], bytes]

_ENCODE: Final[dict[OutputFormat, Callable[[bytes], bytes]]] = {
    OutputFormat.TEXT: bytes,
    OutputFormat.HEX: lambda data: data.hex().encode(),
    OutputFormat.BASE64: base64.b64encode,
}


def record_format(kind: OutputFormat, fields: Collection[Field], separator: bytes, null_mark: bytes) -> Format:
    """A function from a record to its bytes, line end included. JSON always has every field."""
    if kind is OutputFormat.JSON:
        return _as_json
    if kind is OutputFormat.RAW:
        return lambda _, record: record.value or b""
    encode = _ENCODE[kind]
    if not fields:
        return lambda _, record: (null_mark if record.value is None else encode(record.value)) + b"\n"

    def shown(data: bytes | None) -> bytes:
        return null_mark if data is None else encode(data)

    parts: dict[Field, Callable[[TopicPartition, Record], bytes]] = {
        Field.PARTITION: lambda partition, _: b"%d" % partition.partition,
        Field.OFFSET: lambda _, record: b"%d" % record.offset,
        Field.TIMESTAMP: lambda _, record: b"%d" % record.timestamp,
        Field.HEADERS: lambda _, record: b",".join(
            name.encode("utf-8", "surrogateescape") + b"=" + shown(value) for name, value in record.headers
        ),
        Field.KEY: lambda _, record: shown(record.key),
    }
    chosen = [parts[field] for field in Field if field in fields]

    def write(partition: TopicPartition, record: Record) -> bytes:
        return separator.join([*(part(partition, record) for part in chosen), shown(record.value)]) + b"\n"

    return write


def _as_json(partition: TopicPartition, record: Record) -> bytes:
    names = [name for name, _ in record.headers]
    headers: Any = {name: json_bytes(value) for name, value in record.headers}
    if len(headers) < len(names):
        headers = [[name, json_bytes(value)] for name, value in record.headers]
    return json_line(
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": json_bytes(record.key),
            "value": json_bytes(record.value),
            "headers": headers,
        }
    )


def json_bytes(data: bytes | None) -> Any:
    """Text where it is text, else base64 in a wrapper that `ottla produce --format json` reads back."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
