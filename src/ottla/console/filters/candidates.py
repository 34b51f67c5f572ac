"""A filter as masks over whole Arrow batches of undecoded records, so that few records have to be decoded, or none.

A mask is exact, or has more rows than the filter: these are candidates, which the predicate of `evaluation.py` decides.
Comparisons of the bytes of keys and values, of sizes, offsets, partitions and timestamps are exact. A field of JSON has
candidates: values that contain the bytes of the constant, or a backslash, because JSON may write any character as an
escape. Keys and values with a schema are not what their bytes say; the caller has to decide these by the predicate.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ottla.console.filters.syntax import (
    NUMBERS,
    PARTS,
    Anywhere,
    Both,
    Call,
    Compare,
    Comparison,
    Either,
    Function,
    Literal,
    Node,
    Not,
    Path,
    Root,
)

_REPLACEMENT: Final = "\ufffd"


class Mask(NamedTuple):
    """The rows that may pass a filter; `rows` is None for all of them."""

    rows: pa.Array | None
    is_exact: bool


ALL: Final = Mask(None, False)
"""Every row is a candidate."""

ColumnFilter = Callable[[pa.RecordBatch, int], Mask]
"""Takes a batch and its partition."""


def column_filter(node: Node) -> ColumnFilter:
    """The filter for batches as the clients decode them (`ottla.records.arrow.SCHEMA`)."""
    match node:
        case Both(terms):
            return _both([column_filter(each) for each in terms])
        case Either(terms):
            return _either([column_filter(each) for each in terms])
        case Not(term):
            return _inverted(column_filter(term))
        case Anywhere(text):
            contains = [Compare(Comparison.CONTAINS, Path(each), Literal(text)) for each in PARTS]
            return _either([column_filter(each) for each in contains])
        case Compare(comparison, left, Literal(constant)):
            return _compared(comparison, left, constant)
        case _:
            return _all


def _all(batch: pa.RecordBatch, partition: int) -> Mask:
    return ALL


def _both(terms: list[ColumnFilter]) -> ColumnFilter:
    def both(batch: pa.RecordBatch, partition: int) -> Mask:
        rows, is_exact = None, True
        for term in terms:
            found = term(batch, partition)
            is_exact = is_exact and found.is_exact
            if found.rows is None:
                continue
            rows = found.rows if rows is None else pc.and_(rows, found.rows)
            if not pc.any(rows, min_count=0).as_py():
                return Mask(rows, True)
        return Mask(rows, is_exact and rows is not None)

    return both


def _either(terms: list[ColumnFilter]) -> ColumnFilter:
    def either(batch: pa.RecordBatch, partition: int) -> Mask:
        rows, is_exact = None, True
        for term in terms:
            found = term(batch, partition)
            if found.rows is None:
                return ALL
            is_exact = is_exact and found.is_exact
            rows = found.rows if rows is None else pc.or_(rows, found.rows)
        return Mask(rows, is_exact)

    return either


def _inverted(term: ColumnFilter) -> ColumnFilter:
    def inverted(batch: pa.RecordBatch, partition: int) -> Mask:
        found = term(batch, partition)
        return Mask(pc.invert(found.rows), True) if found.is_exact and found.rows is not None else ALL

    return inverted


def _compared(comparison: Comparison, left: Any, constant: Any) -> ColumnFilter:
    if comparison is Comparison.UNEQUAL:
        return _inverted(_compared(Comparison.EQUAL, left, constant))
    match left:
        case Path(root, ()) if root in NUMBERS:
            return _numbers(comparison, lambda batch, partition: _number_column(root, batch, partition), constant)
        case Call(Function.SIZE, Path(root, ())) if root in PARTS:
            return _numbers(comparison, lambda batch, _: pc.binary_length(batch.column(root.value)), constant)
        case Path(root, ()) if root in PARTS:
            return _texts(comparison, root.value, constant)
        case Path(Root.HEADERS, (str(name),)):
            return _header(comparison, name, constant)
        case Path(root, steps) if root in PARTS:
            return _field(comparison, root.value, steps, constant)
        case _:
            return _all


# Numbers

_ORDER: Final[dict[Comparison, Callable[[Any, Any], Any]]] = {
    Comparison.EQUAL: pc.equal,
    Comparison.LESS: pc.less,
    Comparison.AT_MOST: pc.less_equal,
    Comparison.GREATER: pc.greater,
    Comparison.AT_LEAST: pc.greater_equal,
}
_INT64: Final = range(-(2**63), 2**63)


def _number_column(root: Root, batch: pa.RecordBatch, partition: int) -> Any:
    if root is Root.PARTITION:
        return pa.repeat(pa.scalar(partition, pa.int64()), batch.num_rows)
    column = batch.column(root.value)
    return column.cast(pa.int64()) if root is Root.TIMESTAMP else column


def _numbers(comparison: Comparison, column: Callable[[pa.RecordBatch, int], Any], constant: Any) -> ColumnFilter:
    if comparison is Comparison.IN:
        return _either_equal(constant, lambda each: _numbers(Comparison.EQUAL, column, each))
    compare = _ORDER.get(comparison)
    # A double of Arrow has 53 bits, while Python compares an int with a float exactly.
    if compare is None or type(constant) is not int or constant not in _INT64:
        return _all
    scalar = pa.scalar(constant, pa.int64())
    return lambda batch, partition: Mask(pc.fill_null(compare(column(batch, partition), scalar), False), True)


# Keys and values


def _texts(comparison: Comparison, name: str, constant: Any) -> ColumnFilter:
    if comparison is Comparison.IN:
        return _either_equal(constant, lambda each: _texts(Comparison.EQUAL, name, each))
    if comparison is Comparison.EQUAL and constant is None:
        return lambda batch, _: Mask(batch.column(name).is_null(), True)
    if comparison is Comparison.MATCHES:
        return _pattern(name, constant.pattern)
    data = _bytes_of(constant)
    if data is None:
        return _all
    if comparison is Comparison.EQUAL:
        return lambda batch, _: Mask(pc.fill_null(pc.equal(batch.column(name), pa.scalar(data)), False), True)
    if comparison is Comparison.CONTAINS:
        return lambda batch, _: Mask(_containing(batch.column(name), data), True)
    match = {Comparison.STARTS_WITH: pc.starts_with, Comparison.ENDS_WITH: pc.ends_with}.get(comparison)
    if match is None:
        return _all
    return lambda batch, _: Mask(pc.fill_null(match(batch.column(name), pattern=data), False), True)


def _bytes_of(constant: Any) -> bytes | None:
    """The bytes that a text with this constant has; None if bytes that are not UTF-8 could be shown like it."""
    if not isinstance(constant, str) or _REPLACEMENT in constant:
        return None
    try:
        return constant.encode()
    except UnicodeEncodeError:
        return None


def _containing(column: pa.Array, data: bytes) -> pa.Array:
    """The rows that contain some bytes. A search of the whole buffer comes first: most batches have no such row."""
    if not data:
        return column.is_valid()
    if data not in _values_buffer(column):
        return _none(len(column))
    return pc.fill_null(pc.match_substring(column, pattern=data), False)


def _values_buffer(column: pa.Array) -> bytes:
    offsets, values = column.buffers()[1:3]
    if values is None or offsets is None or not len(column):
        return b""
    bounds = memoryview(offsets).cast("i")
    start, end = bounds[column.offset], bounds[column.offset + len(column)]
    return bytes(memoryview(values)[start:end])


def _none(count: int) -> pa.Array:
    return pa.repeat(pa.scalar(False), count)


def _pattern(name: str, pattern: Any) -> ColumnFilter:
    words = pattern.decode() if isinstance(pattern, bytes) else pattern

    def matching(batch: pa.RecordBatch, partition: int) -> Mask:
        try:
            column = batch.column(name).cast(pa.string())
        except pa.ArrowInvalid:
            # Some bytes are not UTF-8: these are compared as the text that is shown, not here.
            return ALL
        return Mask(pc.fill_null(pc.match_substring_regex(column, pattern=words), False), True)

    return matching


# Headers and fields


def _header(comparison: Comparison, name: str, constant: Any) -> ColumnFilter:
    """Rows with headers are candidates if the batch has the header at all; a comparison that null passes has none."""
    if constant is None or (comparison is Comparison.IN and None in constant):
        return _all

    def with_header(batch: pa.RecordBatch, partition: int) -> Mask:
        column = batch.column("headers")
        keys = column.flatten().field("key")
        if not pc.any(pc.equal(keys, pa.scalar(name)), min_count=0).as_py():
            return Mask(_none(batch.num_rows), True)
        return Mask(pc.greater(pc.list_value_length(column), 0), False)

    return with_header


def _field(comparison: Comparison, name: str, steps: tuple[str | int, ...], constant: Any) -> ColumnFilter:
    if comparison is Comparison.IN:
        return _either_equal(constant, lambda each: _field(Comparison.EQUAL, name, steps, each))
    if constant is None:
        return _all
    needles = [data for step in steps if isinstance(step, str) and (data := _bytes_of(step))][-1:]
    if isinstance(constant, str) and comparison in _TEXTUAL and (data := _bytes_of(constant)):
        needles.insert(0, data)
    elif comparison is Comparison.EQUAL and type(constant) is int:
        return _field_number(name, str(abs(constant)).encode(), needles)
    if not needles:
        return _all

    def candidates(batch: pa.RecordBatch, partition: int) -> Mask:
        column = batch.column(name)
        return Mask(pc.or_(_containing_all(column, needles), _containing(column, b"\\")), False)

    return candidates


def _field_number(name: str, digits: bytes, needles: list[bytes]) -> ColumnFilter:
    """A number is written with its digits, unless it has an exponent."""

    def candidates(batch: pa.RecordBatch, partition: int) -> Mask:
        column = batch.column(name)
        rows = _containing(column, digits)
        if pc.any(rows, min_count=0).as_py():
            named = pc.or_(_containing_all(column, needles), _containing(column, b"\\"))
            rows = pc.and_(rows, named)
        if b"0e" in _values_buffer(column).translate(_DIGITS):
            rows = pc.or_(rows, pc.fill_null(pc.match_substring_regex(column, pattern="[0-9][eE]"), False))
        return Mask(rows, False)

    return candidates


def _containing_all(column: pa.Array, needles: list[bytes]) -> pa.Array:
    rows = column.is_valid()
    for needle in needles:
        rows = pc.and_(rows, _containing(column, needle))
        if not pc.any(rows, min_count=0).as_py():
            break
    return rows


_DIGITS: Final = bytes.maketrans(b"123456789E", b"000000000e")
"""Makes "0e" of every digit before an exponent."""
_TEXTUAL: Final = (Comparison.EQUAL, Comparison.CONTAINS, Comparison.STARTS_WITH, Comparison.ENDS_WITH)


def _either_equal(constants: tuple[Any, ...], term: Callable[[Any], ColumnFilter]) -> ColumnFilter:
    if not constants:
        return lambda batch, _: Mask(_none(batch.num_rows), True)
    return _either([term(each) for each in constants])
