"""Reads what clients push: OpenTelemetry's MetricsData, a protobuf message, as far as it can be shown. Pure.

Read are the attributes of resources, and the names, units, kinds and data points of gauges and sums; histograms and
summaries are skipped. Like any protobuf reader it skips unknown fields, and merges fields that occur more than once.
The work is bounded: `PayloadLimitError` after `FIELDS_MAX` fields; of long texts the first `TEXT_CHARACTERS_MAX`
characters are kept. That may still take a tenth of a second: the caller reads in a thread.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError

FIELDS_MAX: Final = 50_000
"""Fields of one payload; a Java producer with all its metrics has about 1,500."""
TEXT_CHARACTERS_MAX: Final = 1_000
"""More than is shown of any text, so that neither memory nor the work on texts depends on what clients send."""

DELTA: Final = 1
"""The temporality of sums that count since the last push."""

_GAUGE: Final = 5
_SUM: Final = 7
_DATA: Final = frozenset({_GAUGE, _SUM, 9, 10, 11})
"""The fields of a metric of which it has one: gauge, sum, histogram, exponential histogram, summary."""
_NO_VALUE: Final = 1
"""The flag of a data point without a value."""
_DOUBLE: Final = Struct("<d")
_SIGNED: Final = Struct("<q")
_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)
_FIELD_NUMBER_MAX: Final = 2**29 - 1
_LONG: Final = 2**64
_GROUP_DEPTH_MAX: Final = 100
_TEMPORALITY_MASK: Final = 2**32 - 1


class InvalidPayloadError(InvalidRequestError):
    """The bytes are not a MetricsData message."""

    code = ErrorCode.INVALID_RECORD


class PayloadLimitError(InvalidRequestError):
    """The payload has more fields than are read; what was read before is usable."""

    code = ErrorCode.TELEMETRY_TOO_LARGE


Attributes = tuple[tuple[str, str], ...]
"""Keys and values in the order of the payload; values that are lists, maps or bytes are left out."""


class DataPoint(NamedTuple):
    """A value and the attributes that tell it from others of its metric."""

    attributes: Attributes
    value: float


@dataclass(slots=True, kw_only=True)
class PushedMetric:
    """A gauge or a sum of one resource."""

    resource: Attributes
    name: str = ""
    unit: str = ""
    is_sum: bool = False
    is_monotonic: bool = False
    is_delta: bool = False
    points: list[DataPoint] = field(default_factory=list)


class _Fields:
    """Reads a payload's fields within a budget that all nested messages share."""

    __slots__ = ("_data", "_left")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = FIELDS_MAX

    def of(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """(number, wire type, value or start, end) of each field of the message between the two positions."""
        at = start
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise PayloadLimitError(f"the payload has more than {FIELDS_MAX} fields")
            key, at = self._varint(at, end)
            number, wire_type = key >> 3, key & 7
            if not 0 < number <= _FIELD_NUMBER_MAX:
                raise InvalidPayloadError(f"field number {number} does not exist")
            if wire_type == _VARINT:
                value, at = self._varint(at, end)
                yield number, wire_type, value, at
            elif wire_type == _BYTES:
                size, at = self._varint(at, end)
                if size > end - at:
                    raise InvalidPayloadError("a field reaches past the end of its message")
                yield number, wire_type, at, at + size
                at += size
            elif wire_type in (_FIXED64, _FIXED32):
                size = 8 if wire_type == _FIXED64 else 4
                if size > end - at:
                    raise InvalidPayloadError("a field reaches past the end of its message")
                yield number, wire_type, at, at + size
                at += size
            elif wire_type == _GROUP:
                at = self._skip_group(number, at, end)
            else:
                raise InvalidPayloadError(f"wire type {wire_type} is not allowed here")

    def text(self, start: int, end: int) -> str:
        try:
            return self._data[start:end].decode()[:TEXT_CHARACTERS_MAX]
        except UnicodeDecodeError as error:
            raise InvalidPayloadError(f"a text is not UTF-8: {error}") from error

    def double(self, start: int) -> float:
        return float(_DOUBLE.unpack_from(self._data, start)[0])

    def signed(self, start: int) -> int:
        return int(_SIGNED.unpack_from(self._data, start)[0])

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        data, value = self._data, 0
        for shift in range(0, 70, 7):
            if at >= end:
                raise InvalidPayloadError("a number is cut off")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value % _LONG, at
        raise InvalidPayloadError("a number has more than ten bytes")

    def _skip_group(self, number: int, at: int, end: int) -> int:
        """Where a group ends; groups are an old form of nested messages, and may nest."""
        opened = [number]
        while opened:
            self._left -= 1
            if self._left < 0:
                raise PayloadLimitError(f"the payload has more than {FIELDS_MAX} fields")
            key, at = self._varint(at, end)
            number, wire_type = key >> 3, key & 7
            if not 0 < number <= _FIELD_NUMBER_MAX:
                raise InvalidPayloadError(f"field number {number} does not exist")
            if wire_type == _GROUP:
                if len(opened) >= _GROUP_DEPTH_MAX:
                    raise InvalidPayloadError("groups nest too deeply")
                opened.append(number)
            elif wire_type == _GROUP_END:
                if opened.pop() != number:
                    raise InvalidPayloadError("a group ends that did not begin")
            elif wire_type == _VARINT:
                _, at = self._varint(at, end)
            elif wire_type in (_FIXED64, _FIXED32, _BYTES):
                size = {_FIXED64: 8, _FIXED32: 4}.get(wire_type)
                if size is None:
                    size, at = self._varint(at, end)
                at += size
                if at > end:
                    raise InvalidPayloadError("a field reaches past the end of its message")
            else:
                raise InvalidPayloadError(f"wire type {wire_type} does not exist")
        return at


def read_metrics(payload: bytes) -> Iterator[PushedMetric]:
    """The gauges and sums of a payload, in its order.

    Raises InvalidPayloadError if it is not a MetricsData message, and PayloadLimitError if it has too many fields, in
    both cases after the metrics before the problem.
    """
    fields = _Fields(payload)
    for number, wire_type, start, end in fields.of(0, len(payload)):
        if (number, wire_type) == (1, _BYTES):
            yield from _resource_metrics(fields, start, end)


def _resource_metrics(fields: _Fields, start: int, end: int) -> Iterator[PushedMetric]:
    attributes: list[tuple[str, str]] = []
    scopes: list[tuple[int, int]] = []
    for number, wire_type, at, to in fields.of(start, end):
        if (number, wire_type) == (1, _BYTES):
            attributes += _attributes(fields, at, to)
        elif (number, wire_type) == (2, _BYTES):
            scopes.append((at, to))
    # A resource may follow its metrics. All of them share its attributes.
    resource = tuple(attributes)
    for scope in scopes:
        for number, wire_type, at, to in fields.of(*scope):
            if (number, wire_type) == (2, _BYTES) and (metric := _metric(fields, at, to, resource)) is not None:
                yield metric


def _metric(fields: _Fields, start: int, end: int, resource: Attributes) -> PushedMetric | None:
    """None if it is neither a gauge nor a sum."""
    metric = PushedMetric(resource=resource)
    kind = 0
    for number, wire_type, at, to in fields.of(start, end):
        if wire_type != _BYTES:
            continue
        if number == 1:
            metric.name = fields.text(at, to)
        elif number == 3:
            metric.unit = fields.text(at, to)
        elif number in _DATA:
            if number != kind:
                # Only the last kind of data counts; the same kind again adds to it.
                metric.points = []
                metric.is_sum, metric.is_monotonic, metric.is_delta = number == _SUM, False, False
                kind = number
            if number in (_GAUGE, _SUM):
                _data(fields, at, to, metric)
    return metric if kind in (_GAUGE, _SUM) else None


def _data(fields: _Fields, start: int, end: int, metric: PushedMetric) -> None:
    for number, wire_type, at, to in fields.of(start, end):
        if (number, wire_type) == (1, _BYTES):
            point = _point(fields, at, to)
            if point is not None:
                metric.points.append(point)
        elif metric.is_sum and (number, wire_type) == (2, _VARINT):
            metric.is_delta = at & _TEMPORALITY_MASK == DELTA
        elif metric.is_sum and (number, wire_type) == (3, _VARINT):
            metric.is_monotonic = at != 0


def _point(fields: _Fields, start: int, end: int) -> DataPoint | None:
    """None if it has no value."""
    attributes: list[tuple[str, str]] = []
    value: float | None = None
    flags = 0
    for number, wire_type, at, to in fields.of(start, end):
        match number, wire_type:
            case 7, 2:
                attributes += _attribute(fields, at, to)
            case 4, 1:
                value = fields.double(at)
            case 6, 1:
                value = fields.signed(at)
            case 8, 0:
                flags = at
    return None if value is None or flags & _NO_VALUE else DataPoint(tuple(attributes), value)


def _attributes(fields: _Fields, start: int, end: int) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for number, wire_type, at, to in fields.of(start, end):
        if (number, wire_type) == (1, _BYTES):
            found += _attribute(fields, at, to)
    return found


def _attribute(fields: _Fields, start: int, end: int) -> list[tuple[str, str]]:
    """The key and value, if the value is a text, a number or a boolean."""
    key, value = "", None
    for number, wire_type, at, to in fields.of(start, end):
        if (number, wire_type) == (1, _BYTES):
            key = fields.text(at, to)
        elif (number, wire_type) == (2, _BYTES):
            value = _value(fields, at, to, value)
    return [] if value is None else [(key, value)]


def _value(fields: _Fields, start: int, end: int, before: str | None) -> str | None:
    """The last of the values that are set; that of an earlier occurrence of the field if none is."""
    value = before
    for number, wire_type, at, to in fields.of(start, end):
        match number, wire_type:
            case 1, 2:
                value = fields.text(at, to)
            case 2, 0:
                value = "true" if at else "false"
            case 3, 0:
                value = str(at - _LONG if at >= _LONG // 2 else at)
            case 4, 1:
                value = repr(fields.double(at))
            case (5, 2) | (6, 2) | (7, 2):
                value = None
    return value
