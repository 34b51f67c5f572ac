"""The requests and responses of a SASL login, SaslHandshake and SaslAuthenticate, read and written by hand.

Every connection of a listener with SASL begins with three of them, and the general codec would take most of a login's
time. A request with anything unusual, such as tagged fields or lengths that do not fit, is left to that codec
(`ottla.protocol.messages`), which knows all the limits.
"""

from functools import lru_cache
from struct import Struct
from typing import Final

from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import ApiKey
from ottla.protocol.fields import compact_string
from ottla.protocol.varints import unsigned_varint

_FLEXIBLE_SINCE: Final = 2
"""SaslAuthenticate; SaslHandshake has no flexible version."""
_LIFETIME_SINCE: Final = 1
_HEADER: Final = Struct(">iih")
"""Length, correlation id, error code."""
_FLEXIBLE_HEADER: Final = Struct(">iibh")
"""The same with the tagged fields of the header, of which there are none."""
_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")
_NULL_STRING: Final = _SHORT.pack(-1)
_NO_TAGS: Final = b"\0"
_MECHANISMS_KEPT_MAX: Final = 64


def read_mechanism(version: int, body: memoryview) -> str:
    """The mechanism that a SaslHandshake asks for. Raises `BrokenMessageError`."""
    if len(body) >= _SHORT.size and _SHORT.unpack_from(body)[0] == len(body) - _SHORT.size:
        try:
            return str(body[_SHORT.size :], "utf-8")
        except UnicodeDecodeError:
            pass
    from ottla.protocol.messages import read_request

    mechanism: str = read_request(ApiKey.SASL_HANDSHAKE, version, body).mechanism
    return mechanism


def read_auth_bytes(version: int, body: memoryview) -> bytes:
    """The mechanism's message in a SaslAuthenticate. Raises `BrokenMessageError`."""
    if version < _FLEXIBLE_SINCE:
        if len(body) >= _INT.size and _INT.unpack_from(body)[0] == len(body) - _INT.size:
            return bytes(body[_INT.size :])
    elif len(body) > 1 and body[-1] == 0:
        # The length plus one, in one byte or two, and no tagged fields.
        start, size = (1, body[0] - 1) if body[0] < 0x80 else (2, (body[0] & 0x7F | body[1] << 7) - 1)
        if size >= 0 and (start == 1 or body[1] < 0x80) and start + size + 1 == len(body):
            return bytes(body[start:-1])
    from ottla.protocol.messages import read_request

    return bytes(read_request(ApiKey.SASL_AUTHENTICATE, version, body).auth_bytes)


def handshake_frame(correlation_id: int, code: ErrorCode, mechanisms: tuple[str, ...]) -> bytes:
    """A whole SaslHandshake response, length first, of any version."""
    listed = _listed(mechanisms)
    return _HEADER.pack(_HEADER.size - _INT.size + len(listed), correlation_id, code) + listed


@lru_cache(_MECHANISMS_KEPT_MAX)
def _listed(mechanisms: tuple[str, ...]) -> bytes:
    names = [name.encode() for name in mechanisms]
    return _INT.pack(len(names)) + b"".join(_SHORT.pack(len(name)) + name for name in names)


def authenticate_frame(
    version: int,
    correlation_id: int,
    code: ErrorCode,
    message: str | None,
    reply: bytes = b"",
    lifetime_ms: int = 0,
) -> bytes:
    """A whole SaslAuthenticate response, length first."""
    if version >= _FLEXIBLE_SINCE:
        body = b"".join(
            (compact_string(message), unsigned_varint(len(reply) + 1), reply, _LONG.pack(lifetime_ms), _NO_TAGS)
        )
        return _FLEXIBLE_HEADER.pack(_FLEXIBLE_HEADER.size - _INT.size + len(body), correlation_id, 0, code) + body
    text = None if message is None else message.encode()
    body = (_NULL_STRING if text is None else _SHORT.pack(len(text)) + text) + _INT.pack(len(reply)) + reply
    if version >= _LIFETIME_SINCE:
        body += _LONG.pack(lifetime_ms)
    return _HEADER.pack(_HEADER.size - _INT.size + len(body), correlation_id, code) + body
