"""JSON values to Arrow rows, by a schema: whole blocks in compiled code, and single values by Spark's own rules.

Arrow parses a block with one wrapped value `{"v":<value>}` per line. Only another wrapper can follow a wrapper, so an
incomplete value cannot continue in the next one: the block is refused. It is also refused if a value has two parts,
because then there are more rows than values. Values that Arrow's parser refuses, or reads differently from Spark's
`from_json`, are decoded by `decode_row`.
"""

import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ottla.registry.serde.arrow.json_times import parse_date, parse_timestamp
from ottla.registry.serde.arrow.row_decoding import BadValueError, BlockRefusedError, sample

_Convert = Callable[[bytes], Any]

_PREFIX: Final = pa.scalar(b'{"v":')
_SUFFIX: Final = pa.scalar(b"}\n")
_NOTHING: Final = pa.scalar(b"")

_LONG_EXPONENT: Final = r"[eE][-+]?[0-9]{3}"
"""Exponents such as 1e-999999999 in decimals crash Arrow."""
_NUMBER_CHARACTERS_MAX: Final = 1000
_WHOLE: Final = re.compile(rb"-?\d+")
_NUMBER: Final = re.compile(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_DECIMAL_TEXT: Final = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_NOT_FINITE: Final = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "+Infinity": float("inf"),
    "-Infinity": float("-inf"),
    "+INF": float("inf"),
    "-INF": float("-inf"),
}
_STRING_OR_CONSTANT: Final = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|-?(?:NaN|Inf(?:inity)?)', re.DOTALL)
_CONSTANTS: Final = {b"Inf": b"Infinity", b"-Inf": b"-Infinity", b"-NaN": b"NaN"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_STRING: Final = msgspec.json.Decoder(str)


class JsonValues:
    """Decodes JSON objects to the struct `kind`: fields by name; missing fields are null, others are ignored."""

    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind
        self._is_columnar = kind.num_fields > 0 and all(_is_columnar(each.type) for each in kind)
        self._has_decimals = any(_has_decimals(each.type) for each in kind)
        self._parsed = pa.struct([pa.field(each.name, _parsed_type(each.type)) for each in kind])
        self._loose = pa.struct([pa.field(each.name, each.type) for each in kind])
        self._convert = {each.name: _converter(each.type, each.name) for each in kind}

    def decode_block(self, values: pa.Array) -> pa.StructArray:
        """Decodes all values at once."""
        if not self._is_columnar:
            raise BlockRefusedError("the schema has types that Arrow's JSON parser does not support")
        if len(values) == 0:
            return pa.array([], self.type)
        try:
            if self._has_decimals and pc.any(pc.match_substring_regex(values, _LONG_EXPONENT)).as_py():
                raise BlockRefusedError("a number with a long exponent in a schema with decimals")
            # Arrow's parser accepts any bytes as text; Spark requires UTF-8.
            values.cast(pa.string())
            return self._parse(values)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise BlockRefusedError(str(error)) from error

    def _parse(self, values: pa.Array) -> pa.StructArray:
        wrapped = pc.binary_join_element_wise(_PREFIX, values, _SUFFIX, _NOTHING)
        text = wrapped.buffers()[2]
        table = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema([pa.field("v", self._parsed)]), unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != len(values):
            raise BlockRefusedError("a value has more than one part")
        rows = table.column("v").combine_chunks()
        if isinstance(rows, pa.ChunkedArray):
            rows = rows.chunk(0)
        if not self._parsed.equals(self._loose):
            rows = rows.cast(self._loose)
        return _as_type(rows, self.type)

    def is_plausible(self, value: bytes) -> bool:
        """Whether it is a JSON object, or null."""
        try:
            _OBJECT.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return value.strip() == b"null"
        return True

    def decode_row(self, value: bytes) -> dict[str, Any] | None:
        """One value by Spark's rules: a STRING takes any JSON as it is written, a TIMESTAMP also seconds since 1970."""
        try:
            value.decode()
            fields = _fields_of(value)
        except UnicodeDecodeError as error:
            raise BadValueError(f"the value is not UTF-8: {error.reason} at byte {error.start}") from error
        except (msgspec.DecodeError, RecursionError) as error:
            return self._by_arrow(value, error)
        if fields is None:
            return None
        return {
            name: convert(bytes(fields[name])) if name in fields else None for name, convert in self._convert.items()
        }

    def _by_arrow(self, value: bytes, error: Exception) -> dict[str, Any]:
        """Decodes a value as Arrow does in a block: with any depth, and with fields after the end of the object."""
        is_deep = isinstance(error, RecursionError)
        if self._is_columnar and (is_deep or "trailing" in str(error)):
            try:
                found: dict[str, Any] | None = self.decode_block(pa.array([value], pa.binary()))[0].as_py()
                return found or {}
            except BlockRefusedError:
                pass
        if is_deep:
            raise BadValueError("the value is nested too deeply") from error
        if isinstance(error, msgspec.ValidationError):
            raise BadValueError(f"the value is not a JSON object: {sample(value)}") from error
        raise BadValueError(f"the value is not JSON: {error}: {sample(value)}") from error


def _fields_of(value: bytes) -> dict[str, msgspec.Raw] | None:
    """The raw fields of an object; None for null. Accepts NaN and Infinity, which are not JSON."""
    if value.strip() == b"null":
        return None
    try:
        return _OBJECT.decode(value)
    except msgspec.DecodeError:
        if b"NaN" not in value and b"Inf" not in value:
            raise
        return _OBJECT.decode(_STRING_OR_CONSTANT.sub(_quoted, value))


def _quoted(found: re.Match[bytes]) -> bytes:
    text = found[0]
    return text if text[:1] == b'"' else b'"%s"' % _CONSTANTS.get(text, text)


def _as_type(rows: pa.StructArray, kind: pa.DataType) -> pa.StructArray:
    """The rows with the names and nullability of `kind`; null rows become null fields."""
    return pa.StructArray.from_arrays(
        rows.flatten(), fields=list(kind), mask=rows.is_null() if rows.null_count else None
    )


def _is_columnar(kind: pa.DataType) -> bool:
    """Whether Arrow's parser reads the type as Spark does: not maps, and not bytes as base64."""
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(each.nullable and _is_columnar(each.type) for each in kind)
    if pa.types.is_list(kind):
        return kind.value_field.nullable and _is_columnar(kind.value_type)
    return not (pa.types.is_map(kind) or pa.types.is_binary(kind))


def _has_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_decimals(each.type) for each in kind)
    if pa.types.is_list(kind):
        return _has_decimals(kind.value_type)
    return bool(pa.types.is_decimal(kind))


def _parsed_type(kind: pa.DataType) -> pa.DataType:
    """The type for Arrow's parser: dates as text, cast afterwards, since the parser expects day numbers."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _parsed_type(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _parsed_type(kind.value_type)))
    return pa.string() if pa.types.is_date(kind) else kind


def _converter(kind: pa.DataType, path: str) -> _Convert:
    """A function from a JSON text to a Python value that Arrow accepts for the type; null is None."""
    convert = _convert_not_null(kind, path)

    def checked(raw: bytes) -> Any:
        if raw == b"null":
            return None
        try:
            return convert(raw)
        except BadValueError:
            raise
        except (ValueError, OverflowError, InvalidOperation, RecursionError) as error:
            raise BadValueError(f"field {path} is not {_word(kind)}: {sample(raw)}") from error

    return checked


def _convert_not_null(kind: pa.DataType, path: str) -> _Convert:
    if pa.types.is_struct(kind):
        fields = {each.name: _converter(each.type, f"{path}.{each.name}") for each in kind}
        return lambda raw: _fields(_OBJECT.decode(raw), fields)
    if pa.types.is_list(kind):
        element = _converter(kind.value_type, f"{path}[]")
        return lambda raw: [element(bytes(each)) for each in _ARRAY.decode(raw)]
    if pa.types.is_map(kind):
        item = _converter(kind.item_type, f"{path}{{}}")
        return lambda raw: [(key, item(bytes(each))) for key, each in _OBJECT.decode(raw).items()]
    if pa.types.is_integer(kind):
        return lambda raw: _whole(raw, kind.bit_width)
    if pa.types.is_decimal(kind):
        return lambda raw: _decimal(raw, kind.precision, kind.scale)
    return _CONVERT[kind]


def _fields(found: dict[str, msgspec.Raw], fields: dict[str, _Convert]) -> dict[str, Any]:
    return {name: convert(bytes(found[name])) if name in found else None for name, convert in fields.items()}


def _boolean(raw: bytes) -> bool:
    if raw not in (b"true", b"false"):
        raise ValueError(raw)
    return raw == b"true"


def _whole(raw: bytes, bits: int) -> int:
    if not _WHOLE.fullmatch(raw) or len(raw) > 20:
        raise ValueError(raw)
    number = int(raw)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise OverflowError(raw)
    return number


def _float(raw: bytes) -> float:
    if raw[:1] == b'"':
        text = _STRING.decode(raw)
        if text not in _NOT_FINITE:
            raise ValueError(text)
        return _NOT_FINITE[text]
    if not _NUMBER.fullmatch(raw):
        raise ValueError(raw)
    return float(raw)


def _decimal(raw: bytes, precision: int, scale: int) -> Decimal:
    text = _STRING.decode(raw) if raw[:1] == b'"' else raw.decode()
    if len(text) > _NUMBER_CHARACTERS_MAX or not _DECIMAL_TEXT.fullmatch(text):
        raise ValueError(text)
    number = Decimal(text)
    if number.adjusted() < -scale - 1:
        return Decimal(0)
    return number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, Context(prec=precision))


def _text(raw: bytes) -> str:
    return _STRING.decode(raw) if raw[:1] == b'"' else raw.decode()


def _timestamp(raw: bytes) -> datetime:
    if raw[:1] == b'"':
        return parse_timestamp(_STRING.decode(raw))
    return _EPOCH + timedelta(seconds=_whole(raw, 64))


def _local_timestamp(raw: bytes) -> datetime:
    return parse_timestamp(_STRING.decode(raw)).replace(tzinfo=None)


_CONVERT: Final[dict[pa.DataType, _Convert]] = {
    pa.bool_(): _boolean,
    pa.float32(): _float,
    pa.float64(): _float,
    pa.string(): _text,
    pa.binary(): lambda raw: base64.b64decode(_STRING.decode(raw), validate=True),
    pa.date32(): lambda raw: parse_date(_STRING.decode(raw)),
    pa.timestamp("us", "UTC"): _timestamp,
    pa.timestamp("us"): _local_timestamp,
}


def _word(kind: pa.DataType) -> str:
    words = ((pa.types.is_integer, "an integer of {} bits"), (pa.types.is_floating, "a number"))
    for test, word in words:
        if test(kind):
            return word.format(kind.bit_width)
    return {"string": "a string", "struct": "an object", "list": "an array", "bool": "true or false"}.get(
        str(kind).split("<")[0], str(kind)
    )
