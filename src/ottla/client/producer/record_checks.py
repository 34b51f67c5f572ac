"""Checks the fields of a record before it is appended: a record that cannot be encoded must not reach the accumulator.

Serializers are called by `ottla.client.serializers`.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from ottla.client.arguments import ArgumentError, shown
from ottla.client.producer.errors import SerializationError
from ottla.client.values import Header
from ottla.model.errors import MisuseError

_BYTES_KINDS: Final = (bytes, bytearray, memoryview)
_LIST_OF_PAIRS: Final = "headers must be a list of pairs such as [('name', b'value')]"
_TIMESTAMP_END: Final = 2**63


def check_target(topic: object, partition: object = None) -> None:
    """Raises `ArgumentError` unless the topic is a str and the partition an integer or None."""
    if not isinstance(topic, str):
        raise ArgumentError(f"topic must be str, not {shown(topic)}")
    if partition is not None and not _is_integer(partition):
        raise ArgumentError(f"partition must be int or None, not {shown(partition)}")


def checked_bytes(what: str, given: object) -> bytes | bytearray | memoryview:
    """A key or value whose bytes can be copied. Raises `SerializationError` for anything else."""
    if isinstance(given, bytes | bytearray):
        return given
    if not isinstance(given, memoryview):
        raise SerializationError(
            f"{what} must be bytes or None, not {type(given).__name__}; encode it, or set {what}_serializer"
        )
    try:
        # For items of several bytes, len() would count items and not bytes.
        return given.cast("B")
    except TypeError:
        raise SerializationError(f"{what} must be a contiguous memoryview; pass bytes(view)") from None
    except ValueError as error:
        raise SerializationError(f"{what} is a memoryview that cannot be read: {error}") from error


def checked_headers(headers: object) -> Sequence[Header]:
    """The headers of a record. Raises `MisuseError` that names the header at fault."""
    if type(headers) is list and _are_plain(headers):
        return headers
    if isinstance(headers, Mapping):
        raise ArgumentError(f"{_LIST_OF_PAIRS}, not {type(headers).__name__}; pass list(headers.items())")
    if isinstance(headers, str | bytes) or not isinstance(headers, Iterable):
        raise ArgumentError(f"{_LIST_OF_PAIRS}, not {type(headers).__name__}")
    return [_checked_header(place, header) for place, header in enumerate(headers)]


def _are_plain(headers: list[Any]) -> bool:
    """Whether all are tuples of an ASCII name and bytes, the usual case; kept short, since it runs for every record."""
    for header in headers:
        if type(header) is not tuple or len(header) != 2:
            return False
        name, value = header
        if type(name) is not str or not name.isascii() or (value is not None and type(value) is not bytes):
            return False
    return True


def _checked_header(place: int, header: Any) -> Header:
    if not isinstance(header, tuple | list) or len(header) != 2:
        raise ArgumentError(f"headers[{place}] must be a pair such as ('name', b'value'), not {shown(header)}")
    name, value = header
    if not isinstance(name, str):
        advice = f"; decode it, as in {name!r}.decode()" if isinstance(name, bytes) else ""
        raise ArgumentError(f"the name in headers[{place}] must be str, not {type(name).__name__}{advice}")
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            raise MisuseError(f"the name in headers[{place}] cannot be encoded as UTF-8: {name!r}") from None
    if value is None or type(value) is bytes:
        return name, value
    if isinstance(value, _BYTES_KINDS):
        return name, bytes(value)
    advice = f"; encode it, as in {value!r}.encode()" if isinstance(value, str) else ""
    raise ArgumentError(f"the value of header {name!r} must be bytes or None, not {type(value).__name__}{advice}")


def check_timestamp(timestamp_ms: object) -> None:
    """Raises `MisuseError` unless this is a number of milliseconds that fits into a record."""
    if isinstance(timestamp_ms, datetime):
        raise ArgumentError(
            "timestamp_ms must be int or None (milliseconds since 1970), not datetime;"
            " pass int(when.timestamp() * 1000)"
        )
    if not _is_integer(timestamp_ms):
        raise ArgumentError(f"timestamp_ms must be int or None (milliseconds since 1970), not {shown(timestamp_ms)}")
    if not -_TIMESTAMP_END <= operator.index(timestamp_ms) < _TIMESTAMP_END:  # type: ignore[arg-type]  # checked above
        raise MisuseError(f"timestamp_ms must be from -2**63 to 2**63 - 1, not {timestamp_ms}")


def _is_integer(given: object) -> bool:
    """Whether this is an integer, of any library's type."""
    try:
        operator.index(given)  # type: ignore[arg-type]  # raises TypeError if it is not
    except TypeError:
        return False
    return True
