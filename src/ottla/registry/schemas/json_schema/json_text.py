"""JSON texts as Jackson reads and writes them, because the registry finds schemas by their exact text.

Numbers with a fraction or an exponent keep their digits and are written as Java's BigDecimal prints them; strings are
escaped only where JSON demands it; objects keep the order of their keys, and of a repeated key the last value.

Not taken over from Jackson: text after the end of the JSON value is an error here, Jackson ignores it.
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ottla.registry.schemas.parsed_schema import InvalidSchemaError

NESTING_MAX: Final = 500
"""Levels of arrays and objects. Python's decoder and Confluent's registry fail at depths of the same order."""
DIGITS_MAX: Final = 1000
"""Characters of a number, as in Jackson. Longer ones would take quadratic time."""


def read_json(text: str) -> Any:
    """The JSON value of a text: dicts, lists, strings, ints, Decimals, booleans and None.

    Raises `InvalidSchemaError`.
    """
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise InvalidSchemaError(f"not valid JSON: {error}") from None
    _check_nesting(value)
    return value


def write_json(value: Any, *, sort_keys: bool = False) -> str:
    """The compact text of a JSON value. `sort_keys` orders the keys of all objects as Java orders strings."""
    pieces: list[str] = []
    open_values: list[tuple[Iterator[Any], str]] = []  # what is left of each open array or object, and its end
    pending: Any = value
    while True:
        if isinstance(pending, dict):
            items = sorted(pending.items(), key=_java_order) if sort_keys else pending.items()
            pieces.append("{")
            open_values.append((iter(items), "}"))
        elif isinstance(pending, list):
            pieces.append("[")
            open_values.append((iter(pending), "]"))
        else:
            pieces.append(_scalar_text(pending))
        while open_values:
            rest, end = open_values[-1]
            following: Any = next(rest, _END)
            if following is not _END:
                if pieces[-1] not in _OPENINGS:
                    pieces.append(",")
                if end == "}":
                    pieces.append(f"{_string_text(following[0])}:")
                    pending = following[1]
                else:
                    pending = following
                break
            open_values.pop()
            pieces.append(end)
        else:
            return "".join(pieces)


_END: Final = object()
_OPENINGS: Final = frozenset({"{", "["})
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def _integer(digits: str) -> int:
    if len(digits) > DIGITS_MAX:
        raise ValueError(f"a number has {len(digits)} characters, more than {DIGITS_MAX}")
    return int(digits)


def _decimal(digits: str) -> Decimal:
    if len(digits) > DIGITS_MAX:
        raise ValueError(f"a number has {len(digits)} characters, more than {DIGITS_MAX}")
    try:
        value = Decimal(digits)
    except InvalidOperation:
        raise ValueError(f"the exponent of {digits} is out of range") from None
    if not -(2**31) < value.adjusted() < 2**31:
        raise ValueError(f"the exponent of {digits} is out of range")
    return value if value else abs(value)  # Java's BigDecimal has no negative zero


_DECODER: Final = json.JSONDecoder(parse_int=_integer, parse_float=_decimal, parse_constant=str)
"""NaN and Infinity become strings: so Jackson, which accepts them, writes them back."""


def _scalar_text(value: Any) -> str:
    if isinstance(value, str):
        return _string_text(value)
    if value is None or isinstance(value, bool):
        return _LITERALS[value]
    return str(value)


_LITERALS: Final = {None: "null", True: "true", False: "false"}


def _string_text(text: str) -> str:
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return _ESCAPES.get(character) or f"\\u{ord(character):04X}"


def _java_order(item: tuple[str, Any]) -> bytes:
    return item[0].encode("utf-16-be", "surrogatepass")  # Java compares strings by their UTF-16 code units


def _check_nesting(value: Any) -> None:
    level = [value] if isinstance(value, dict | list) else []
    depth = 0
    while level:
        depth += 1
        if depth > NESTING_MAX:
            raise _too_deep()
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]


def _too_deep() -> InvalidSchemaError:
    return InvalidSchemaError(f"nested more than {NESTING_MAX} levels deep")
