"""One connection to a broker at the level of frames, and messages of exact versions made with kio.

Nothing of `ottla` is used here but the table of what is served, and the classes that kio lacks.
"""

import io
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime, timedelta
from struct import Struct
from types import NoneType, TracebackType, UnionType
from typing import Any, Final, Self, TypeVar, get_args, get_origin

import pytest
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.schema.index import PayloadEntityType
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.protocol import Entity

from ottla.protocol.apis import NEWER_THAN_KIO, SERVED, ApiKey
from ottla.protocol.newer_messages import newer_class
from tests.waiting import PATIENCE_SECONDS

CLIENT_ID: Final = b"wire"
LENGTH: Final = Struct(">i")
HEADER: Final = Struct(">hhi")
SHORT: Final = Struct(">h")
NO_TAGS: Final = b"\0"
TIMEOUT_S: Final = PATIENCE_SECONDS
CORRELATION_ID: Final = 0x01020304

TESTED: Final[set[ApiKey]] = set()
"""The APIs that some test goes through in every version."""

_DEFAULTS: Final[dict[str, object]] = {
    "string": "",
    "bytes": b"",
    "bool": False,
    "uuid": None,
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "datetime_i64": datetime(1970, 1, 1, tzinfo=UTC),
}
_WITH_TIMESTAMPS: Final = {
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
}
"""Refusals have timestamps of -1, which kio does not read."""
Test = TypeVar("Test", bound=Callable[..., object])


def every_version(api_key: ApiKey) -> Callable[[Test], Test]:
    """Runs a test once for each served version of an API."""
    TESTED.add(api_key)
    versions = SERVED[api_key]
    return pytest.mark.parametrize("version", range(versions.lowest, versions.highest + 1))


# Messages


def message_class(api_key: int, version: int, kind: PayloadEntityType) -> type[Entity]:
    """The class of a request or response in exactly this version: kio's, or ours where kio has none."""
    found: type[Entity]
    if api_key in set(NEWER_THAN_KIO) and version >= NEWER_THAN_KIO[ApiKey(api_key)]:
        found = newer_class(ApiKey(api_key), version, kind)
        return found
    module = load_payload_module(api_key, version, kind)
    found = next(value for value in vars(module).values() if getattr(value, "__type__", None) is kind)
    return found


def fill(message: type[Entity], values: Mapping[str, Any]) -> Entity:
    """A message with these values; those that its version lacks are left out, those that are missing get a default."""
    return message(**{field.name: _value(field, values) for field in fields(message)})


def is_flexible(api_key: int, version: int) -> bool:
    """Whether a version of an API has tagged fields, and so a header with them."""
    return bool(message_class(api_key, version, EntityType.request).__flexible__)


def request_body(api_key: int, version: int, values: Mapping[str, Any]) -> bytes:
    """A request without header and length."""
    message = message_class(api_key, version, EntityType.request)
    buffer = io.BytesIO()
    entity_writer(message)(buffer, fill(message, values))
    return buffer.getvalue()


def request_frame(
    api_key: int,
    version: int,
    values: Mapping[str, Any],
    *,
    correlation_id: int = CORRELATION_ID,
    client_id: bytes | None = CLIENT_ID,
    tags: bytes = NO_TAGS,
) -> bytes:
    """A whole request, length first."""
    name = SHORT.pack(-1) if client_id is None else SHORT.pack(len(client_id)) + client_id
    content = b"".join(
        (
            HEADER.pack(api_key, version, correlation_id),
            name,
            tags if is_flexible(api_key, version) else b"",
            request_body(api_key, version, values),
        )
    )
    return LENGTH.pack(len(content)) + content


def read_response(api_key: int, version: int, frame: bytes) -> tuple[int, Any]:
    """(correlation id, response) of a frame without its length, which must be used up to the last byte."""
    message = message_class(api_key, version, EntityType.response)
    start = LENGTH.size
    if is_flexible(api_key, version) and api_key != ApiKey.API_VERSIONS:
        assert NO_TAGS == frame[start : start + 1]
        start += 1
    if api_key in _WITH_TIMESTAMPS and any(frame[start : start + 2]):
        frame = frame[: start + 2] + frame[start + 2 :].replace(b"\xff" * 8, bytes(8))
    response, size = entity_reader(message)(memoryview(frame)[start:], 0)
    assert len(frame) == start + size, "bytes are left behind the response"
    return int.from_bytes(frame[: LENGTH.size], "big"), response


def _value(field: Field[Any], values: Mapping[str, Any]) -> object:
    nested = _nested_class(field.type)
    if field.name not in values:
        return _default(field, nested)
    value = values[field.name]
    if nested is not None and isinstance(value, Mapping):
        return fill(nested, value)
    if nested is not None and isinstance(value, Sequence):
        return tuple(fill(nested, each) for each in value)
    return tuple(value) if isinstance(value, list) else value


def _default(field: Field[Any], nested: type[Entity] | None) -> object:
    if field.default is not MISSING:
        return field.default
    if get_origin(field.type) is tuple:
        return ()
    if isinstance(field.type, UnionType):
        return None
    if nested is not None:
        return fill(nested, {})
    return _DEFAULTS.get(field.metadata["kafka_type"], 0)


def _nested_class(annotation: Any) -> type[Entity] | None:
    if isinstance(annotation, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not NoneType)
    if get_origin(annotation) is tuple:
        annotation = get_args(annotation)[0]
    return annotation if isinstance(annotation, type) and hasattr(annotation, "__header_schema__") else None


# The connection


class RawConnection(AbstractContextManager["RawConnection"]):
    """A blocking socket that sends bytes as they are, and receives frame by frame."""

    def __init__(self, address: str, *, timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    def send(self, content: bytes) -> None:
        """All of it."""
        self._socket.sendall(content)

    def end_sending(self) -> None:
        """Closes this side's half of the connection; responses are still received."""
        self._socket.shutdown(socket.SHUT_WR)

    def receive(self) -> bytes:
        """The next frame without its length."""
        (size,) = LENGTH.unpack(self._exactly(LENGTH.size))
        return self._exactly(size)

    def wait_closed(self) -> bytes:
        """What still came before the other side closed the connection; it must do so."""
        received = b""
        try:
            while piece := self._socket.recv(65536):
                received += piece
        except ConnectionResetError:
            pass
        return received

    def ask(self, api_key: int, version: int, values: Mapping[str, Any]) -> Any:
        """Sends a request and answers the response in kio's class of exactly this version."""
        self.send(request_frame(api_key, version, values))
        correlation_id, response = read_response(api_key, version, self.receive())
        assert CORRELATION_ID == correlation_id
        return response

    def ask_newest(self, api_key: ApiKey, values: Mapping[str, Any]) -> Any:
        """`ask` in the newest version that is served."""
        return self.ask(api_key, SERVED[api_key].highest, values)

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self._socket.recv(size - len(received))
            if not piece:
                raise EOFError(f"the connection was closed after {len(received)} of {size} bytes")
            received += piece
        return bytes(received)
