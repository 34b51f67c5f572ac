"""Reads and writes all messages except Produce and Fetch with kio, as classes of one version.

Handlers see only one version of a request: a request of any served version is converted to the class of the newest one,
with the schema's defaults for missing fields. A response of the newest version's class is written in the version of the
request, without the fields that it lacks. The few messages whose old versions differ in shape are converted in
`reshape.py`. Where newer versions have ids instead of names, which cannot be translated here, older versions are
converted to the newest version with names (`LAST_BY_NAME`).

Modules of kio are imported when first needed: there are hundreds, and a client uses a dozen. The few versions that kio
does not have are in `newer_messages.py` and `newer_streams_messages.py`.
"""

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields
from datetime import timedelta
from functools import cache
from struct import Struct
from types import NoneType, UnionType
from typing import Any, Final, cast, get_args, get_origin

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError
from ottla.protocol.apis import LAST_BY_NAME, NEWER_THAN_KIO, SERVED, ApiKey
from ottla.protocol.classic_members import read_heartbeat, read_join_group, read_sync_group
from ottla.protocol.consumer_heartbeats import read_consumer_heartbeat
from ottla.protocol.offset_commits import read_offset_commit
from ottla.protocol.reshape import REQUESTS, RESPONSES, Reshape
from ottla.protocol.shapes import checked
from ottla.protocol.share_acknowledgements import read_share_acknowledgement


@contextmanager
def _without_hypothesis() -> Iterator[None]:
    """kio registers its types with Hypothesis if that is installed, which takes longer than starting a broker."""
    if "hypothesis" in sys.modules:
        yield
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # makes its import fail
    try:
        yield
    finally:
        del sys.modules["hypothesis"]


with _without_hypothesis():
    from kio.index import load_payload_module
    from kio.schema.errors import ErrorCode as WireErrorCode
    from kio.schema.index import PayloadEntityType
    from kio.serial import entity_reader, entity_writer
    from kio.serial.errors import SerialError
    from kio.static.constants import EntityType
    from kio.static.primitive import i32Timedelta

_LENGTH: Final = Struct(">i")
_RESPONSE_HEADER: Final = Struct(">ii")
_REQUEST_HEADER: Final = Struct(">ihhi")
_SHORT: Final = Struct(">h")
_NO_TAGS: Final = b"\0"

_DEFAULTS: Final[dict[str, object]] = {
    "string": "",
    "bytes": b"",
    "bool": False,
    "uuid": None,
    "error_code": WireErrorCode.none,
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
}
"""The default value of a field without its own default, by Kafka's type; any other type is a number."""


COMPILED: Final[dict[ApiKey, Callable[[int, memoryview], Any]]] = {
    ApiKey.OFFSET_COMMIT: read_offset_commit,
    ApiKey.JOIN_GROUP: read_join_group,
    ApiKey.HEARTBEAT: read_heartbeat,
    ApiKey.SYNC_GROUP: read_sync_group,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: read_consumer_heartbeat,
    ApiKey.SHARE_ACKNOWLEDGE: read_share_acknowledgement,
}
"""The requests that are not read by kio."""

_THROTTLED_LAST: Final = frozenset(
    {
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }
)
"""The APIs whose responses end with the throttle time."""
_BEFORE_LOGIN: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_ELEMENTS_BEFORE_LOGIN_MAX: Final = 100
"""What clients may send before they have logged in has no arrays, only tagged fields of newer versions."""
_NO_TIMESTAMP: Final = b"\xff" * 8
"""-1, in the responses of those APIs to a request that was refused."""


class BrokenMessageError(InvalidRequestError):
    """A body that cannot be read as the message it claims to be."""


LAST_WITH_CLUSTER_OPERATIONS: Final = 10
"""The last version of Metadata that can ask for the cluster's authorized operations; DescribeCluster replaced that."""


def wire_error(code: ErrorCode) -> WireErrorCode:
    """An error code as kio's type."""
    return WireErrorCode(int(code))


def milliseconds(count: int) -> i32Timedelta:
    """A duration as kio's type."""
    return cast("i32Timedelta", timedelta(milliseconds=count))


def newest_version(api_key: ApiKey, version: int, kind: PayloadEntityType = EntityType.response) -> int:
    """The version in whose class a message of this version is read, and may be written from."""
    last = LAST_BY_NAME.get(api_key, -1)
    if api_key is ApiKey.METADATA and kind is EntityType.request:
        last = LAST_WITH_CLUSTER_OPERATIONS
    return last if version <= last else SERVED[api_key].highest


def read_request(api_key: ApiKey, version: int, body: memoryview) -> Any:
    """A request's body as the newest served version's class; those of `COMPILED` as the class of their kernel."""
    read = COMPILED.get(api_key)
    if read is None:
        return _read(api_key, version, EntityType.request, body)
    try:
        return read(version, body)
    except ValueError as error:
        raise BrokenMessageError(f"{api_key.name} v{version} request cannot be read: {error}") from error


def read_response(api_key: ApiKey, version: int, frame: memoryview) -> tuple[int, Any]:
    """(correlation id, response) of a frame without its length; the response in the newest served version's class."""
    entity_class = _entity_class(api_key, version, EntityType.response)
    start = 4
    if entity_class.__header_schema__.__version__ >= 1:
        start = _skip_tags(frame, start)
    body = frame[start:]
    if api_key in _THROTTLED_LAST and any(body[: _SHORT.size]):
        # kio reads no timestamp below 0.
        code, rest = bytes(body[: _SHORT.size]), bytes(body[_SHORT.size :])
        body = memoryview(code + rest.replace(_NO_TIMESTAMP, bytes(len(_NO_TIMESTAMP))))
    return int.from_bytes(frame[:4], "big"), _read(api_key, version, EntityType.response, body)


def write_response(api_key: ApiKey, version: int, correlation_id: int, response: Any) -> bytes:
    """A whole response frame, length first."""
    entity_class = _entity_class(api_key, version, EntityType.response)
    buffer = io.BytesIO()
    buffer.write(_RESPONSE_HEADER.pack(0, correlation_id))
    if entity_class.__header_schema__.__version__ >= 1:
        buffer.write(_NO_TAGS)
    return _finish(buffer, entity_class, response, RESPONSES.get(api_key))


def frame_body(api_key: ApiKey, version: int, correlation_id: int, body: bytes, more_bytes: int = 0) -> bytes:
    """A response frame around a body that is encoded already; `more_bytes` of the body follow in other pieces."""
    tags = _response_tags(api_key, version)
    return _RESPONSE_HEADER.pack(4 + len(tags) + len(body) + more_bytes, correlation_id) + tags + body


@cache
def _response_tags(api_key: ApiKey, version: int) -> bytes:
    """What follows the correlation id: no tagged fields, or nothing in old versions."""
    header = _entity_class(api_key, version, EntityType.response).__header_schema__
    return _NO_TAGS if header.__version__ >= 1 else b""


@cache
def throttle_position(api_key: ApiKey, version: int) -> int | None:
    """Where a response frame has its throttle time, counted from the end if negative; None in versions without one.

    Not for Produce and ApiVersions, where it follows a list.
    """
    entity_class = _entity_class(api_key, version, EntityType.response)
    names = [field.name for field in fields(entity_class)]
    if "throttle_time" not in names:
        return None
    start = _RESPONSE_HEADER.size + (1 if entity_class.__header_schema__.__version__ >= 1 else 0)
    if api_key in _THROTTLED_LAST:
        return -_LENGTH.size - (len(_NO_TAGS) if entity_class.__flexible__ else 0)
    # The only field that comes before it in some APIs is an error code.
    return start + _SHORT.size * names.index("throttle_time")


def write_request(api_key: ApiKey, version: int, correlation_id: int, client_id: str | None, request: Any) -> bytes:
    """A whole request frame, length first."""
    entity_class = _entity_class(api_key, version, EntityType.request)
    buffer = io.BytesIO()
    buffer.write(_REQUEST_HEADER.pack(0, api_key, version, correlation_id))
    name = None if client_id is None else client_id.encode()
    buffer.write(_SHORT.pack(-1 if name is None else len(name)))
    buffer.write(name or b"")
    if entity_class.__header_schema__.__version__ >= 2:
        buffer.write(_NO_TAGS)
    return _finish(buffer, entity_class, request, REQUESTS.get(api_key))


def _finish(buffer: io.BytesIO, entity_class: Any, message: Any, reshape: tuple[Reshape, Reshape] | None) -> bytes:
    converted = message
    if message.__class__ is not entity_class:
        converted = _converter(message.__class__, entity_class)(message)
        if reshape is not None:
            converted = reshape[1](converted, message)
    entity_writer(entity_class)(buffer, converted)
    frame = buffer.getbuffer()
    _LENGTH.pack_into(frame, 0, len(frame) - 4)
    return frame.tobytes()


def _read(api_key: ApiKey, version: int, kind: PayloadEntityType, body: memoryview) -> Any:
    entity_class = _entity_class(api_key, version, kind)
    # kio takes immutable memory; a copy is cheap next to the objects that it becomes.
    content = bytes(body)
    try:
        if kind is EntityType.request:
            elements_max = _ELEMENTS_BEFORE_LOGIN_MAX if api_key in _BEFORE_LOGIN else None
            message, _ = entity_reader(entity_class)(checked(entity_class, content, elements_max=elements_max), 0)
        else:
            message = _read_trusted(entity_class, content)
    except (SerialError, ValueError, OverflowError, EOFError) as error:
        raise BrokenMessageError(f"{api_key.name} v{version} {kind.name} cannot be read: {error}") from error
    newest = _entity_class(api_key, newest_version(api_key, version, kind), kind)
    if newest is entity_class:
        return message
    upgraded = _converter(entity_class, newest)(message)
    reshape = (REQUESTS if kind is EntityType.request else RESPONSES).get(api_key)
    return upgraded if reshape is None else reshape[0](message, upgraded)


def _read_trusted(entity_class: Any, content: bytes) -> Any:
    """Of a response, counts are trusted, but a newer broker may send unknown tagged fields."""
    try:
        message, _ = entity_reader(entity_class)(content, 0)
    except KeyError:
        message, _ = entity_reader(entity_class)(checked(entity_class, content, elements_max=len(content)), 0)
    return message


def _skip_tags(frame: memoryview, start: int) -> int:
    """Where the tagged fields that begin there end."""
    count, start = _varint(frame, start)
    for _ in range(count):
        _, start = _varint(frame, start)
        size, start = _varint(frame, start)
        start += size
    return start


def _varint(frame: memoryview, start: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if start >= len(frame) or shift > 28:
            raise BrokenMessageError("a response header's tagged fields do not end")
        byte = frame[start]
        start += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, start
        shift += 7


@cache
def _entity_class(api_key: ApiKey, version: int, kind: PayloadEntityType) -> Any:
    if version >= NEWER_THAN_KIO.get(api_key, version + 1):
        from ottla.protocol.newer_messages import newer_class

        return newer_class(api_key, version, kind)
    with _without_hypothesis():
        module = load_payload_module(api_key, version, kind)
    for value in vars(module).values():
        if isinstance(value, type) and getattr(value, "__type__", None) is kind:
            return value
    raise LookupError(f"kio has no {kind.name} of {api_key.name} v{version}")


# From one version's class to another's

Convert = Callable[[Any], Any]


def _same(message: Any) -> Any:
    return message


@cache
def _converter(source: Any, target: Any) -> Convert:
    """Makes a message of one version's class into another's: fields are matched by name."""
    if source is target:
        return _same
    there = {field.name: field for field in fields(source)}
    missing: dict[str, object] = {}
    taken: list[tuple[str, Convert]] = []
    for field in fields(target):
        if field.name in there:
            taken.append((field.name, _value_converter(there[field.name].type, field.type)))
        else:
            missing[field.name] = _default(field)

    def convert(message: Any) -> Any:
        return target(**missing, **{name: inner(getattr(message, name)) for name, inner in taken})

    return convert


def _value_converter(source: Any, target: Any) -> Convert:
    source_class, target_class = _nested_class(source), _nested_class(target)
    if source_class is None or target_class is None:
        return _same
    inner = _converter(source_class, target_class)
    if inner is _same:
        return _same

    def convert(value: Any) -> Any:
        if value is None:
            return None
        return tuple(map(inner, value)) if isinstance(value, tuple) else inner(value)

    return convert


def _nested_class(annotation: Any) -> type | None:
    """The message class within `X`, `X | None`, `tuple[X, ...]` or `tuple[X, ...] | None`, if X is one."""
    if isinstance(annotation, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not NoneType)
    if get_origin(annotation) is tuple:
        annotation = get_args(annotation)[0]
    return annotation if isinstance(annotation, type) and hasattr(annotation, "__header_schema__") else None


def _default(field: Field[Any]) -> object:
    if field.default is not MISSING:
        return field.default
    if get_origin(field.type) is tuple:
        return ()
    if isinstance(field.type, UnionType):
        return None
    nested = _nested_class(field.type)
    if nested is not None:
        return nested(**{inner.name: _default(inner) for inner in fields(nested)})
    return _DEFAULTS.get(field.metadata["kafka_type"], 0)
