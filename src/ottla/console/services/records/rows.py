"""Records as rows of the viewer, and as what a filter asks of them. Decodes by schema where one is known."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ottla.console.filters.syntax import Root
from ottla.console.services.records.query import Decode
from ottla.console.services.records.shown import NULL, ROW_CHARACTERS, Shown, pretty, pretty_json, show, show_json
from ottla.console.web.human import time_text
from ottla.model.ids import TopicPartition
from ottla.records.record import Headers
from ottla.registry.serde.framing import KEY_HEADER, PREFIX_BYTES, VALUE_HEADER

if TYPE_CHECKING:
    from ottla.registry.serde.schema_reader import ReadPart, SchemaReader

TIMESTAMP_TYPES: Final = {0: "CreateTime", 1: "LogAppendTime"}
_UNREAD: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow:
    """One record in the viewer: key and value are cut."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: Shown
    value: Shown
    header_count: int

    @property
    def time(self) -> str:
        """The time in UTC, to the millisecond; "none" if the record has none."""
        return "none" if self.timestamp < 0 else time_text(self.timestamp, with_milliseconds=True).removesuffix(" UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRecord:
    """One record with all that fits on a page."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: Shown
    value: Shown
    headers: Sequence[tuple[str, Shown]]


class ReadRecord:
    """One record of a batch. What a filter or a row needs is decoded when it is asked for, once."""

    __slots__ = (
        "_find_headers",
        "_headers",
        "_parts",
        "_trees",
        "key",
        "offset",
        "partition",
        "reader",
        "timestamp",
        "topic",
        "value",
    )

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        find_headers: Callable[[], Headers] | None,
        reader: "SchemaReader | None",
    ) -> None:
        self.topic, self.partition = partition
        self.offset, self.timestamp = offset, timestamp
        self.key, self.value = key, value
        self._find_headers = find_headers
        self._headers: Headers | None = None if find_headers is not None else ()
        self.reader = reader
        self._parts: dict[Root, ReadPart | None] | None = None
        self._trees: dict[Root, Any] | None = None

    @property
    def headers(self) -> Headers:
        """The headers in order."""
        if self._headers is None:
            self._headers = () if self._find_headers is None else self._find_headers()
        return self._headers

    def data(self, part: Root) -> bytes | None:
        """The bytes of the key or value."""
        return self.key if part is Root.KEY else self.value

    def text(self, part: Root) -> str | None:
        """The key or value as text; with a schema, its JSON."""
        data = self.data(part)
        if data is None:
            return None
        read = self.read(part)
        if read is not None and read.error is None:
            return read.value if isinstance(read.value, str) else msgspec.json.encode(read.value).decode()
        return data.decode("utf-8", "replace")

    def tree(self, part: Root) -> Any:
        """The key or value as JSON has it; None if it is not JSON and has no schema."""
        if self._trees is None:
            self._trees = {}
        found = self._trees.get(part, _UNREAD)
        if found is _UNREAD:
            found = self._trees[part] = self._tree(part)
        return found

    def _tree(self, part: Root) -> Any:
        data = self.data(part)
        if not data:
            return None
        read = self.read(part)
        if read is not None and read.error is None:
            return read.value
        try:
            return msgspec.json.decode(data)
        except (ValueError, RecursionError):
            # Not JSON, numbers that no number can hold, or texts that are not UTF-8.
            return None

    def header(self, name: str) -> bytes | None:
        """The last header of this name."""
        return next((value for key, value in reversed(self.headers) if key == name), None)

    def read(self, part: Root) -> "ReadPart | None":
        """The key or value by its schema; None if it has none."""
        if self.reader is None:
            return None
        if self._parts is None:
            self._parts = {}
        if part not in self._parts:
            data = self.data(part)
            is_key = part is Root.KEY
            is_framed = (
                self.reader is not None and data is not None and has_schema_id(self.headers, data, is_key=is_key)
            )
            self._parts[part] = (
                self.reader.read(self.topic, self.headers, data, is_key=is_key)
                if self.reader is not None and is_framed
                else None
            )
        return self._parts[part]

    def row(self, decode: Decode, timestamp_type: int) -> RecordRow:
        """The record as a row."""
        return RecordRow(
            partition=self.partition,
            offset=self.offset,
            timestamp=self.timestamp,
            timestamp_type=TIMESTAMP_TYPES[timestamp_type],
            key=self._shown(Root.KEY, decode),
            value=self._shown(Root.VALUE, decode),
            header_count=len(self.headers),
        )

    def _shown(self, part: Root, decode: Decode) -> Shown:
        data = self.data(part)
        if data is None:
            return NULL
        read = self.read(part) if decode in (Decode.AUTO, Decode.JSON) else None
        if read is None or read.schema is None:
            return show(data, decode)
        if read.error is not None:
            raw = show(data, decode, characters_max=ROW_CHARACTERS)
            return Shown(text=raw.text, kind=raw.kind, size_bytes=raw.size_bytes, is_cut=raw.is_cut, error=read.error)
        return show_json(read.value, data, str(read.schema["type"]).lower(), _schema_name(read))

    def open(self, decode: Decode, timestamp_type: int) -> OpenRecord:
        """The record with all that fits on a page."""
        return OpenRecord(
            partition=self.partition,
            offset=self.offset,
            timestamp=self.timestamp,
            timestamp_type=TIMESTAMP_TYPES[timestamp_type],
            key=self._pretty(Root.KEY, decode),
            value=self._pretty(Root.VALUE, decode),
            headers=[(name, show(value, Decode.AUTO, characters_max=2_000)) for name, value in self.headers],
        )

    def _pretty(self, part: Root, decode: Decode) -> Shown:
        data = self.data(part)
        read = self.read(part) if decode in (Decode.AUTO, Decode.JSON) else None
        if data is None or read is None or read.schema is None:
            return pretty(data, decode)
        error = read.error
        if error is None:
            try:
                return pretty_json(read.value, data, str(read.schema["type"]).lower(), _schema_name(read))
            except RecursionError:
                error = "nested too deeply to be shown"
        raw = pretty(data, decode)
        return Shown(text=raw.text, kind=raw.kind, size_bytes=raw.size_bytes, is_cut=raw.is_cut, error=error)


def has_schema_id(headers: Headers, data: bytes, *, is_key: bool) -> bool:
    """Whether a key or value says which schema it has: by its first bytes, or in a header."""
    wanted = KEY_HEADER if is_key else VALUE_HEADER
    return (len(data) > PREFIX_BYTES and data[0] == 0) or any(name == wanted for name, _ in headers)


def _schema_name(read: "ReadPart") -> str:
    schema = read.schema or {}
    return str(schema.get("subject") or schema.get("id") or schema.get("guid") or "")
