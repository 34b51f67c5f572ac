"""What a program may give as the fields of a record, and the sentence for everything else.

Checked before a record comes near the accumulator: a record that cannot be encoded must leave no trace there. Keys and
values that need a serializer are in `serializers.py`.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from ottla.client.producer.errors import SerializationError
from ottla.client.values import Header
from ottla.model.errors import MisuseError

_BYTES_KINDS: Final = (bytes, bytearray, memoryview)
_LIST_OF_PAIRS: Final = "must be a list of pairs such as [('name', b'value')]"
_TIMESTAMP_END: Final = 2**63


def check_target(topic: object, partition: object = None) -> None:
    """Raises `MisuseError` unless these name a topic and one partition of it, or any."""
    if not isinstance(topic, str):
        raise MisuseError(f"the topic is {shown(topic)}, and must be str")
    if partition is not None and not _is_integer(partition):
        raise MisuseError(f"the partition is {shown(partition)}, and must be int or None")


def checked_bytes(what: str, given: object) -> bytes | bytearray | memoryview:
    """A key or value as bytes that can be copied as they lie. Raises `SerializationError` if it is anything else."""
    if isinstance(given, bytes | bytearray):
        return given
    if not isinstance(given, memoryview):
        raise SerializationError(
            f"the {what} is {type(given).__name__}, and must be bytes or None: encode it, or give {what}_serializer"
        )
    try:
        # Items of several bytes would be counted, not measured, by len().
        return given.cast("B")
    except TypeError:
        raise SerializationError(
            f"the {what} is a memoryview that is not contiguous: give bytes of it, as in bytes(view)"
        ) from None
    except ValueError as error:
        raise SerializationError(f"the {what} is a memoryview that cannot be read: {error}") from error


def checked_headers(headers: object) -> Sequence[Header]:
    """A record's headers. Raises `MisuseError` that names the one that is wrong, and what to write instead."""
    if type(headers) is list and _are_plain(headers):
        return headers
    if isinstance(headers, Mapping):
        raise MisuseError(f"headers is {type(headers).__name__}, and {_LIST_OF_PAIRS}: give list(headers.items())")
    if isinstance(headers, str | bytes) or not isinstance(headers, Iterable):
        raise MisuseError(f"headers is {type(headers).__name__}, and {_LIST_OF_PAIRS}")
    return [_checked_header(place, header) for place, header in enumerate(headers)]


def _are_plain(headers: list[Any]) -> bool:
    """Whether all of them are as almost everybody gives them; a short way, since it is walked for every record."""
    for header in headers:
        if type(header) is not tuple or len(header) != 2:
            return False
        name, value = header
        if type(name) is not str or not name.isascii() or (value is not None and type(value) is not bytes):
            return False
    return True


def _checked_header(place: int, header: Any) -> Header:
    if not isinstance(header, tuple | list) or len(header) != 2:
        raise MisuseError(
            f"header {place} is {shown(header)}, and must be a pair of a name and a value, such as ('name', b'value')"
        )
    name, value = header
    if not isinstance(name, str):
        advice = f": decode it, as in ({name!r}.decode(), …)" if isinstance(name, bytes) else ""
        raise MisuseError(f"the name of header {place} is {type(name).__name__}, and must be str{advice}")
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            raise MisuseError(f"the name of header {place}, {name!r}, cannot be encoded as UTF-8") from None
    if value is None or type(value) is bytes:
        return name, value
    if isinstance(value, _BYTES_KINDS):
        return name, bytes(value)
    advice = f": encode it, as in ({name!r}, {value!r}.encode())" if isinstance(value, str) else ""
    raise MisuseError(
        f"header {name!r} has a value of type {type(value).__name__}, and must have bytes or None{advice}"
    )


def check_timestamp(timestamp_ms: object) -> None:
    """Raises `MisuseError` unless this is a number of milliseconds that a record can hold."""
    if isinstance(timestamp_ms, datetime):
        raise MisuseError(
            "timestamp_ms is datetime, and must be int or None, the milliseconds since 1970: for a datetime,"
            " int(when.timestamp() * 1000)"
        )
    if not _is_integer(timestamp_ms):
        raise MisuseError(
            f"timestamp_ms is {shown(timestamp_ms)}, and must be int or None, the milliseconds since 1970"
        )
    if not -_TIMESTAMP_END <= operator.index(timestamp_ms) < _TIMESTAMP_END:  # type: ignore[arg-type]  # looked at above
        raise MisuseError(f"timestamp_ms is {timestamp_ms}, and must be below 2**63")


def _is_integer(given: object) -> bool:
    """Whether it is a whole number, perhaps of another library's type."""
    try:
        operator.index(given)  # type: ignore[arg-type]  # which is the question
    except TypeError:
        return False
    return True


def shown(value: object) -> str:
    """A value in a message: its kind, and no more of it than is helpful."""
    if value is None:
        return "None"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '...'}"
