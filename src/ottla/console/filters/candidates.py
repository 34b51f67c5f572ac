"""A filter as masks over whole Arrow batches of undecoded records, so that few records have to be decoded, or none.

Comparisons of the bytes of keys, values and headers, of sizes, offsets, partitions and timestamps are decided here, and
those of fields of JSON with a constant. What is left is possible, not certain, and up to the predicate of
`evaluation.py`: documents that only a decoder can judge, bytes that are not UTF-8, lists, comparisons of two fields.
Keys and values with a schema are not what their bytes say; the caller has to decide these by the predicate.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.console.filters import json_fields
from ottla.console.filters.batch_columns import BatchColumns, FieldColumn, Steps
from ottla.console.filters.column_comparisons import (
    among,
    compare_integers,
    compare_reals,
    compare_texts,
    encoded,
    is_number,
)
from ottla.console.filters.masks import (
    Mask,
    any_of,
    both,
    either,
    exactly,
    has_any,
    inverted,
    none_of,
    with_doubts,
)
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
    Operand,
    Path,
    Root,
    Truth,
)

_REPLACEMENT: Final = "\ufffd"

ColumnFilter = Callable[[pa.RecordBatch, int], Mask]
"""Takes a batch (`ottla.records.arrow.SCHEMA`) and its partition."""
_Term = Callable[[BatchColumns], Mask]


def column_filter(node: Node) -> ColumnFilter:
    """The filter for batches as the clients decode them."""
    term = _mask_of(node)
    paths = {root: list(dict.fromkeys(_paths(node, root)))[: json_fields.PATHS_MAX] for root in PARTS}
    return lambda batch, partition: term(BatchColumns(batch, partition, paths))


def _mask_of(node: Node) -> _Term:
    match node:
        case Both(terms):
            return _all_of([_mask_of(each) for each in sorted(terms, key=_has_fields)])
        case Either(terms):
            return _one_of([_mask_of(each) for each in terms])
        case Not(term):
            inner = _mask_of(term)
            return lambda columns: inverted(inner(columns))
        case Anywhere(text):
            return _one_of([_texts(Comparison.CONTAINS, Path(each), text) for each in PARTS])
        case Truth(Path(root, steps)):
            return _field(Comparison.EQUAL, root, steps, True)
        case Compare(comparison, Literal(constant), right) if comparison in _MIRRORED:
            return _compared(_MIRRORED[comparison], right, constant)
        case Compare(comparison, left, Literal(constant)):
            return _compared(comparison, left, constant)
        case _:
            return _unknown


def _unknown(columns: BatchColumns) -> Mask:
    return any_of(columns.num_rows)


def _all_of(terms: list[_Term]) -> _Term:
    def every(columns: BatchColumns) -> Mask:
        found = terms[0](columns)
        for term in terms[1:]:
            if not has_any(found.possible):
                break
            found = both(found, term(columns))
        return found

    return every


def _one_of(terms: list[_Term]) -> _Term:
    def some(columns: BatchColumns) -> Mask:
        found = terms[0](columns)
        for term in terms[1:]:
            found = either(found, term(columns))
        return found

    return some


def _compared(comparison: Comparison, operand: Operand, constant: Any) -> _Term:
    if comparison is Comparison.UNEQUAL:
        equal = _compared(Comparison.EQUAL, operand, constant)
        return lambda columns: inverted(equal(columns))
    if comparison is Comparison.IN:
        return _in(operand, constant)
    match operand:
        case Path(root, ()) if root in NUMBERS:
            return _numbers(comparison, constant, lambda columns: columns.column(root))
        case Call(Function.SIZE, Path(root, ())) if root in PARTS:
            return _numbers(
                comparison, constant, lambda columns: pc.binary_length(columns.column(root)).cast(pa.int64())
            )
        case Call(Function.SIZE, Path(root, steps)) if root in PARTS:
            return _field_sizes(comparison, root, steps, constant)
        case Call(Function.LOWER, Path(root, steps) as path):
            return _texts(comparison, path, constant, is_lower=True)
        case Path(root, steps) if root in PARTS and steps:
            return _field(comparison, root, steps, constant)
        case Path() as path:
            return _texts(comparison, path, constant)
        case _:
            return _unknown


_MIRRORED: Final = {
    Comparison.EQUAL: Comparison.EQUAL,
    Comparison.UNEQUAL: Comparison.UNEQUAL,
    Comparison.LESS: Comparison.GREATER,
    Comparison.AT_MOST: Comparison.AT_LEAST,
    Comparison.GREATER: Comparison.LESS,
    Comparison.AT_LEAST: Comparison.AT_MOST,
}
"""The same comparison from the other side."""


def _in(operand: Operand, constants: tuple[Any, ...]) -> _Term:
    """Texts and integers are looked up together; there may be a thousand."""
    texts = tuple(each for each in constants if isinstance(each, str) and _REPLACEMENT not in each)
    integers = tuple(each for each in constants if type(each) is int and abs(each) <= _EXACT_MAX)
    terms: list[_Term] = []
    match operand:
        case Path(root, steps) if root in PARTS and steps:
            terms += [_field(Comparison.IN, root, steps, some) for some in (texts, integers) if some]
        case Path(root, ()) if root in NUMBERS:
            terms.append(lambda columns: exactly(among(columns.column(root), integers)))
        case Path() as path:
            terms.append(_texts(Comparison.IN, path, texts))
        case _:
            texts = integers = ()
    others = [each for each in constants if each not in texts and not _is_in(each, integers)]
    terms += [_compared(Comparison.EQUAL, operand, each) for each in others]
    return _one_of(terms) if terms else lambda columns: none_of(columns.num_rows)


_EXACT_MAX: Final = 2**53
"""A double can hold all integers up to this one."""


def _is_in(constant: Any, integers: tuple[int, ...]) -> bool:
    return type(constant) is int and constant in integers


# Numbers of the record


def _numbers(comparison: Comparison, constant: Any, column: Callable[[BatchColumns], pa.Array]) -> _Term:
    if not is_number(constant):
        return _unknown

    def numbers(columns: BatchColumns) -> Mask:
        found = compare_integers(column(columns), comparison, constant)
        return any_of(columns.num_rows) if found is None else exactly(found)

    return numbers


# Keys, values and headers


def _texts(comparison: Comparison, path: Path, constant: Any, *, is_lower: bool = False) -> _Term:
    if is_lower and path.root in PARTS and path.steps:
        return _field(comparison, path.root, path.steps, constant, is_lower=True)
    if comparison is Comparison.EQUAL and constant is None:
        return lambda columns: exactly(_text_column(columns, path).is_null())
    if not isinstance(constant, str | tuple) and comparison is not Comparison.MATCHES:
        return lambda columns: none_of(columns.num_rows)
    needs_text = is_lower or comparison not in _BYTEWISE or not _is_bytewise(constant)

    def texts(columns: BatchColumns) -> Mask:
        column = _text_column(columns, path)
        if needs_text:
            try:
                column = column.cast(pa.string())
            except pa.ArrowInvalid:
                # Some bytes are not UTF-8: these are compared as the text that is shown, not here.
                return any_of(columns.num_rows)
        return _compared_texts(column, comparison, constant, is_lower=is_lower)

    return texts


def _text_column(columns: BatchColumns, path: Path) -> pa.Array:
    return columns.header(str(path.steps[0])) if path.root is Root.HEADERS else columns.column(path.root)


_BYTEWISE: Final = (
    Comparison.EQUAL,
    Comparison.CONTAINS,
    Comparison.STARTS_WITH,
    Comparison.ENDS_WITH,
    Comparison.IN,
)
"""Comparisons that bytes which are not UTF-8 decide as the text that is shown for them."""


def _is_bytewise(constant: Any) -> bool:
    """Whether bytes that are not UTF-8 cannot be shown like the constant."""
    return not isinstance(constant, str) or _REPLACEMENT not in constant


def _compared_texts(column: pa.Array, comparison: Comparison, constant: Any, *, is_lower: bool = False) -> Mask:
    """Null passes nothing."""
    if not len(column):
        return none_of(0)
    # Letters that are not ASCII have lower cases that depend on Unicode's version.
    lowered = pc.ascii_lower(column) if is_lower else column
    if comparison is Comparison.IN:
        values = [data for each in constant if (data := encoded(each)) is not None]
        if len(values) < len(constant):
            return any_of(len(column))
        mask = exactly(pc.is_in(lowered, value_set=pa.array(values, pa.binary()).cast(lowered.type)))
    else:
        found = compare_texts(lowered, comparison, constant)
        if found is None:
            return any_of(len(column))
        mask = exactly(found)
    return with_doubts(mask, pc.fill_null(pc.invert(pc.string_is_ascii(column)), False)) if is_lower else mask


# Fields of JSON


def _field(comparison: Comparison, root: Root, steps: Steps, constant: Any, *, is_lower: bool = False) -> _Term:
    mark = None if is_lower else _marking(comparison, root, steps, constant)

    def field(columns: BatchColumns) -> Mask:
        marks = None if mark is None or columns.has_read(root) else mark(columns)
        if marks is not None and 1 not in marks:
            return none_of(columns.num_rows)
        column = columns.field(root, steps, marks)
        if column is None:
            return any_of(columns.num_rows)
        found = _compared_field(column, comparison, constant, is_lower=is_lower)
        if comparison is Comparison.CONTAINS and not is_lower and column.has(json_fields.NESTED):
            # Lists contain their items.
            found = with_doubts(found, column.of_kind(json_fields.NESTED))
        return with_doubts(found, column.of_kind(json_fields.ODD)) if column.has(json_fields.ODD) else found

    return field


def _marking(comparison: Comparison, root: Root, steps: Steps, constant: Any) -> Callable[[BatchColumns], bytes] | None:
    """Marks the rows that may pass with 1, by a look at their bytes; None if that cannot be seen so."""
    text = encoded(constant)
    if text is not None and comparison in _WRITTEN:
        written = _WRITTEN[comparison] % text
        if not written:
            return None
        return lambda columns: json_fields.rows_with(*columns.rows(root), written, may_escape=True)
    name = steps[-1]
    if isinstance(name, str) and comparison in _BETWEEN and is_number(constant):
        low, high = (math.inf * side if side else float(constant) for side in _BETWEEN[comparison])
        return lambda columns: json_fields.rows_with_number(*columns.rows(root), name, low, high)
    return None


_WRITTEN: Final = {
    Comparison.EQUAL: b'"%s"',
    Comparison.STARTS_WITH: b'"%s',
    Comparison.ENDS_WITH: b'%s"',
    Comparison.CONTAINS: b"%s",
}
"""What a document has in it if a text or an item of a list in it passes, unless it has a backslash: JSON may write any
character as an escape."""
_BETWEEN: Final = {
    Comparison.EQUAL: (0, 0),
    Comparison.LESS: (-1, 0),
    Comparison.AT_MOST: (-1, 0),
    Comparison.GREATER: (0, 1),
    Comparison.AT_LEAST: (0, 1),
}
"""The bounds of the numbers that may pass: 0 is the constant, the others are infinite."""


def _compared_field(column: FieldColumn, comparison: Comparison, constant: Any, *, is_lower: bool) -> Mask:
    count = len(column.kinds)
    if isinstance(constant, str) or comparison in (Comparison.MATCHES, Comparison.IN):
        if comparison is Comparison.IN and not isinstance(constant[0], str):
            return _field_numbers(column, comparison, constant)
        if column.texts is None:
            return none_of(count)
        texts = _compared_texts(column.texts, comparison, constant, is_lower=is_lower)
        return both(texts, exactly(column.of_kind(json_fields.TEXT))) if has_any(texts.possible) else texts
    if is_lower:
        is_null = comparison is Comparison.EQUAL and constant is None
        return inverted(exactly(column.of_kind(json_fields.TEXT))) if is_null else none_of(count)
    if constant is None or isinstance(constant, bool):
        if comparison is not Comparison.EQUAL:
            return none_of(count)
        return exactly(column.of_kind(_KIND_OF[constant]))
    # A literal such as 1e999 is infinite.
    return _field_numbers(column, comparison, constant) if is_number(constant) else any_of(count)


_KIND_OF: Final = {None: json_fields.NULL_KIND, False: json_fields.FALSE, True: json_fields.TRUE}


def _field_numbers(column: FieldColumn, comparison: Comparison, constant: Any) -> Mask:
    found = none_of(len(column.kinds))
    for kind, values, compare in (
        (json_fields.INTEGER, column.integers, compare_integers),
        (json_fields.REAL, column.reals, compare_reals),
    ):
        if values is not None:
            rows = column.of_kind(kind)
            passed = compare(values, comparison, constant)
            found = with_doubts(found, rows) if passed is None else either(found, exactly(pc.and_(rows, passed)))
    return found


def _field_sizes(comparison: Comparison, root: Root, steps: Steps, constant: Any) -> _Term:
    if not is_number(constant):
        return _unknown

    def sizes(columns: BatchColumns) -> Mask:
        column = columns.field(root, steps)
        if column is None:
            return any_of(columns.num_rows)
        found = none_of(columns.num_rows)
        if column.texts is not None:
            passed = compare_integers(pc.utf8_length(column.texts).cast(pa.int64()), comparison, constant)
            if passed is None:
                return any_of(columns.num_rows)
            found = exactly(pc.and_(column.of_kind(json_fields.TEXT), passed))
        for kind in (json_fields.NESTED, json_fields.ODD):
            if column.has(kind):
                found = with_doubts(found, column.of_kind(kind))
        return found

    return sizes


# Which fields a filter has


def _has_fields(node: Node) -> bool:
    return any(_paths(node, root) for root in PARTS)


def _paths(node: Node, root: Root) -> list[Steps]:
    """The steps of all fields of the key or value, in order."""
    return [path.steps for path in _operands(node) if path.root is root and path.steps]


def _operands(node: Node | Operand) -> Iterator[Path]:
    match node:
        case Path():
            yield node
        case Call(_, operand) | Truth(operand):
            yield from _operands(operand)
        case Compare(_, left, right):
            yield from _operands(left)
            yield from _operands(right)
        case Both(terms) | Either(terms):
            for each in terms:
                yield from _operands(each)
        case Not(term):
            yield from _operands(term)
