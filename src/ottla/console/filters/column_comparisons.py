"""Compares whole columns with a constant, as `evaluation.py` compares one value: numbers exactly, texts as UTF-8."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.console.filters.json_fields import rows_with
from ottla.console.filters.masks import repeated
from ottla.console.filters.syntax import Comparison

_ORDER: Final[dict[Comparison, Callable[[Any, Any], Any]]] = {
    Comparison.EQUAL: pc.equal,
    Comparison.LESS: pc.less,
    Comparison.AT_MOST: pc.less_equal,
    Comparison.GREATER: pc.greater,
    Comparison.AT_LEAST: pc.greater_equal,
}
BinaryRows = tuple[Any, Any, int, int]
"""Buffers of offsets and of bytes, the first row, and how many there are."""
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_UPWARDS: Final = (Comparison.GREATER, Comparison.AT_LEAST)
_ROUNDED_UP: Final = (Comparison.LESS, Comparison.AT_LEAST)


def is_number(constant: Any) -> bool:
    """Whether it is a number that columns can be compared with: not infinite, which a literal like 1e999 is."""
    return type(constant) in (int, float) and math.isfinite(constant)


def compare_integers(column: pa.Array, comparison: Comparison, constant: Any) -> pa.Array | None:
    """The rows of a column of int64 that pass; None if numbers cannot be compared so."""
    compare = _ORDER.get(comparison)
    if comparison is Comparison.IN:
        return among(column, constant)
    if compare is None:
        return None
    # An integer is below 2.5 if it is below 3, and at most 2.5 if it is at most 2.
    bound = math.ceil(constant) if comparison in _ROUNDED_UP else math.floor(constant)
    if comparison is Comparison.EQUAL and bound != constant:
        return repeated(False, len(column))
    if not _INT64_MIN <= bound <= _INT64_MAX:
        is_passed = comparison is not Comparison.EQUAL and (bound < 0) == (comparison in _UPWARDS)
        return repeated(is_passed, len(column))
    return compare(column, pa.scalar(bound, pa.int64()))


def compare_reals(column: pa.Array, comparison: Comparison, constant: Any) -> pa.Array | None:
    """The rows of a column of doubles that pass; None if a double cannot hold the constant."""
    compare = _ORDER.get(comparison)
    if comparison is Comparison.IN:
        return among(column, constant)
    if compare is None or int(float(constant)) != int(constant):
        return None
    return compare(column, pa.scalar(float(constant), pa.float64()))


def among(column: pa.Array, constants: Sequence[int]) -> pa.Array:
    """The rows of a column of int64 or doubles that are one of the constants, which both can hold."""
    if pa.types.is_floating(column.type):
        # Hashes tell -0.0 from 0.0; their sum is 0.0.
        column = pc.add(column, 0.0)
    return pc.is_in(column, value_set=pa.array(constants, pa.int64()).cast(column.type))


def compare_texts(column: pa.Array, comparison: Comparison, constant: Any) -> pa.Array | None:
    """The rows of a column of UTF-8 (binary or string) that pass. The order of bytes is that of characters.

    None if such texts cannot be compared on columns: `matches` needs a column of strings.
    """
    if comparison is Comparison.MATCHES:
        return pc.match_substring_regex(column, pattern=constant.text) if pa.types.is_string(column.type) else None
    data = encoded(constant)
    if data is None:
        return None
    if comparison in _ORDER:
        return _ORDER[comparison](column, pa.scalar(data, pa.binary()).cast(column.type))
    if comparison is Comparison.CONTAINS:
        return containing(column, data)
    match = {Comparison.STARTS_WITH: pc.starts_with, Comparison.ENDS_WITH: pc.ends_with}.get(comparison)
    return None if match is None else match(column, pattern=data)


def encoded(constant: Any) -> bytes | None:
    """The UTF-8 of a text; None if it is not a text, or has no UTF-8."""
    try:
        return constant.encode() if isinstance(constant, str) else None
    except UnicodeEncodeError:
        return None


def containing(column: pa.Array, data: bytes) -> pa.Array:
    """The rows that contain some bytes; those that are null do not."""
    if not data:
        return column.is_valid()
    marks = rows_with(*binary_rows(column), data)
    if 1 not in marks:
        return repeated(False, len(column))
    return pc.and_(marked(marks, 1), column.is_valid()) if column.null_count else marked(marks, 1)


def binary_rows(column: pa.Array) -> BinaryRows:
    """A column of binary or strings as kernels take it."""
    _, offsets, data = column.buffers()
    return offsets or bytes(4), data or b"", column.offset, len(column)


def marked(marks: bytes, mark: int) -> pa.BooleanArray:
    """The rows that have this mark; there is a byte for each."""
    column = pa.Array.from_buffers(pa.uint8(), len(marks), [None, pa.py_buffer(marks)])
    return pc.equal(column, pa.scalar(mark, pa.uint8()))
