"""JSON as the Java library Jackson reads and writes it: comments are allowed, numbers are written as in Java."""

import json
import math
import re
import struct
from decimal import Decimal
from typing import Any, Final, NoReturn

from ottla.registry.schemas.parsed_schema import InvalidSchemaError

VALUE_NESTING_MAX: Final = 100
"""How deep the JSON value of a default or of a property may be nested."""

_NUMBER_CHARACTERS_MAX: Final = 1000
_WHITE_SPACE: Final = " \t\r\n"
_STRING_OR_COMMENT: Final = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|/\*.*?(?:\*/|\Z)|//[^\r\n]*', re.DOTALL)
"""What is not closed reaches to the end of the text: otherwise each of many would be followed to there in vain."""
_ESCAPED_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
_ESCAPES: Final = {
    **{chr(code): f"\\u{code:04X}" for code in range(0x20)},
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}
_INT_RANGE: Final = range(-(2**31), 2**31)
_LONG_RANGE: Final = range(-(2**63), 2**63)
_FLOAT_TEXT: Final = re.compile(r"([+-]?)(NaN|Infinity|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?", re.ASCII)


def read_json(text: str) -> Any:
    """The value of a JSON text. Of equal keys in an object the last one counts. Raises `InvalidSchemaError`.

    Comments are allowed before the end of the value, but not after it.
    """
    plain = _STRING_OR_COMMENT.sub(_without_comment, text) if "/*" in text or "//" in text else text
    try:
        text.encode()
        value, end = _DECODER.raw_decode(plain, len(plain) - len(plain.lstrip(_WHITE_SPACE)))
        if text[end:].strip(_WHITE_SPACE):
            raise json.JSONDecodeError("more text after the end of the schema", text, end)
        if _ESCAPED_SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise InvalidSchemaError(f"not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except UnicodeEncodeError as error:
        raise InvalidSchemaError("not valid text: a string contains half of a surrogate pair") from error
    except RecursionError as error:
        raise InvalidSchemaError("the JSON text is nested too deep") from error
    return value


def write_json(value: Any) -> str:
    """The compact text of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return write_string(value)
        case int():
            return str(value)
        case float():
            return write_double(value)
        case list():
            return f"[{','.join(map(write_json, value))}]"
        case dict():
            return "{" + ",".join(f"{write_string(key)}:{write_json(each)}" for key, each in value.items()) + "}"
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def write_string(value: str) -> str:
    """The string in quotes. Only what JSON demands is escaped."""
    return f'"{_ESCAPED.sub(lambda found: _ESCAPES[found[0]], value)}"'


def write_double(value: float) -> str:
    """The number as Java prints a double: 1.0, 0.001, 1.0E7; the values that JSON does not have as strings."""
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = format(Decimal(repr(value)), "f")
        return text if "." in text else f"{text}.0"
    shortest = repr(value)
    if float(f"{value:.1e}") == value:
        shortest = f"{value:.1e}"  # Java writes two digits at least, and then those that are nearest: 4.9E-324
    sign, digits, exponent = Decimal(shortest).as_tuple()
    figures = "".join(map(str, digits)).rstrip("0")
    exponent = int(exponent) + len(digits) - 1
    return f"{'-' if sign else ''}{figures[0]}.{figures[1:] or '0'}E{exponent}"


def as_single(value: float) -> float:
    """The number that a double has after a trip through single precision, printed with as few digits as Java needs."""
    try:
        packed = struct.pack("f", value)
    except OverflowError:
        return math.copysign(math.inf, value)
    for digits in range(2, 10):
        text = f"{struct.unpack('f', packed)[0]:.{digits}g}"
        if struct.pack("f", float(text)) == packed:
            return float(text)
    return float(struct.unpack("f", packed)[0])


def read_double(text: str) -> float:
    """The number in a string, as Java reads it: also NaN and Infinity, and with the suffixes f and d.

    Raises `ValueError`.
    """
    found = _FLOAT_TEXT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a number")
    return float(found[1] + found[2])


def is_int(value: Any) -> bool:
    """Whether a JSON value is an integer that fits into 32 bits."""
    return type(value) is int and value in _INT_RANGE


def is_long(value: Any) -> bool:
    """Whether a JSON value is an integer that fits into 64 bits."""
    return type(value) is int and value in _LONG_RANGE


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number."""
    return type(value) is int or type(value) is float


def utf16_order(text: str) -> bytes:
    """The key by which Java sorts strings."""
    return text.encode("utf-16-be")


def with_sorted_names(value: Any) -> Any:
    """The value with the names of all objects in order."""
    if isinstance(value, list):
        return [with_sorted_names(each) for each in value]
    if isinstance(value, dict):
        return {name: with_sorted_names(value[name]) for name in sorted(value, key=utf16_order)}
    return value


def is_same_json(one: Any, other: Any) -> bool:
    """Whether two values are equal, and their numbers of the same type. The order of names does not count."""
    return write_json(with_sorted_names(one)) == write_json(with_sorted_names(other))


def nesting(value: Any) -> int:
    """How deep the lists and objects of a value are nested; found level by level, so any depth is safe."""
    level, depth = [value], 0
    while True:
        inner: list[Any] = []
        found = False
        for each in level:
            if type(each) is dict:
                found = True
                inner.extend(each.values())
            elif type(each) is list:
                found = True
                inner.extend(each)
        if not found:
            return depth
        level, depth = inner, depth + 1


def _without_comment(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else " " * len(found[0])


def _read_int(text: str) -> int:
    if len(text) > _NUMBER_CHARACTERS_MAX:
        raise InvalidSchemaError(f"a number has more than {_NUMBER_CHARACTERS_MAX} digits")
    return int(text)


def _read_float(text: str) -> float:
    if len(text) > _NUMBER_CHARACTERS_MAX:
        raise InvalidSchemaError(f"a number has more than {_NUMBER_CHARACTERS_MAX} digits")
    return float(text)


def _refuse_constant(text: str) -> NoReturn:
    raise InvalidSchemaError(f"not valid JSON: {text} is not a number in JSON")


_DECODER: Final = json.JSONDecoder(parse_int=_read_int, parse_float=_read_float, parse_constant=_refuse_constant)
