"""Decodes values in blocks and finds the bad ones: good rows at the speed of columns, bad rows with a reason.

A format has two methods: `decode_block` for many values at once, which may refuse the whole block for one bad value,
and `decode_row`, which is slower, accepts all good values and gives the reason for bad ones. A refused block is tried
again in small pieces, and row by row only where necessary. The caller decides what happens to bad rows.
"""

from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ottla.model.errors import CorruptError

PIECE_ROWS: Final = 128
"""The number of rows that are decoded one by one around a bad row."""
_SAMPLE_CHARACTERS_MAX: Final = 80


class BadValueError(CorruptError):
    """A value that cannot be decoded. The message is the reason, without the place of the record."""


class BlockRefusedError(CorruptError):
    """A block with a value that is bad or must be decoded alone."""


class ValueRows(Protocol):
    """The decoder of a format."""

    @property
    def type(self) -> pa.DataType:
        """The struct of decoded values."""

    def decode_block(self, values: pa.Array) -> pa.StructArray:
        """Decodes values, none of them null, in order. Raises `BlockRefusedError` if one of them needs `decode_row`."""

    def is_plausible(self, value: bytes) -> bool:
        """A quick check: False if `decode_block` would surely refuse a block with this value."""

    def decode_row(self, value: bytes) -> dict[str, Any] | None:
        """Decodes one value; raises `BadValueError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRow:
    """A row whose value cannot be decoded."""

    index: int
    error: BadValueError


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRows:
    """The rows of a block, one per value; rejected rows are null."""

    rows: pa.StructArray
    rejected: list[RejectedRow]


def decode_rows(format: ValueRows, values: pa.Array) -> DecodedRows:
    """Decodes all values that can be decoded. Raises only errors that are not of the values, such as of a registry."""
    if values.null_count:
        return _around_nulls(format, values)
    whole = _block(format, values)
    if whole is not None:
        return DecodedRows(rows=whole, rejected=[])
    suspects = [index for index, value in enumerate(values.to_pylist()) if not format.is_plausible(value)]
    if not suspects:
        return _in_pieces(format, values)
    bad = set(suspects)
    others = [index for index in range(len(values)) if index not in bad]
    good = _in_pieces(format, values.take(pa.array(others, pa.int64())))
    doubtful = _one_by_one(format, values.take(pa.array(suspects, pa.int64())), 0)
    order = [*others, *suspects]
    rejected = [*good.rejected, *(replace(each, index=len(others) + each.index) for each in doubtful.rejected)]
    rejected = [replace(each, index=order[each.index]) for each in rejected]
    # Sorting by position restores the order of rows.
    places = pc.array_sort_indices(pa.array(order, pa.int64()))
    return DecodedRows(
        rows=pa.concat_arrays([good.rows, doubtful.rows]).take(places),
        rejected=sorted(rejected, key=lambda each: each.index),
    )


def _around_nulls(format: ValueRows, values: pa.Array) -> DecodedRows:
    """A null value (a tombstone in a compacted topic) is a row of nulls."""
    places = [index for index, is_there in enumerate(values.is_valid().to_pylist()) if is_there]
    found = decode_rows(format, values.drop_null())
    rejected = [replace(each, index=places[each.index]) for each in found.rejected]
    sources: list[int | None] = [None] * len(values)
    for source, place in enumerate(places):
        sources[place] = source
    try:
        _check_fields(format, None)
    except BadValueError as error:
        rejected += [RejectedRow(index=place, error=error) for place, source in enumerate(sources) if source is None]
        rejected.sort(key=lambda each: each.index)
    return DecodedRows(rows=found.rows.take(pa.array(sources, pa.int64())), rejected=rejected)


def _in_pieces(format: ValueRows, values: pa.Array) -> DecodedRows:
    """Decodes pieces at once, and row by row if a piece is refused."""
    whole = _block(format, values)
    if whole is not None:
        return DecodedRows(rows=whole, rejected=[])
    pieces: list[pa.StructArray] = []
    rejected: list[RejectedRow] = []
    for start in range(0, len(values), PIECE_ROWS):
        piece = values.slice(start, PIECE_ROWS)
        rows = _block(format, piece) if len(values) > PIECE_ROWS else None
        if rows is None:
            found = _one_by_one(format, piece, start)
            rows = found.rows
            rejected += found.rejected
        pieces.append(rows)
    return DecodedRows(rows=pa.concat_arrays(pieces), rejected=rejected)


def sample(text: str | bytes) -> str:
    """The beginning of a text, for a message."""
    shown = text.decode(errors="backslashreplace") if isinstance(text, bytes) else text
    return shown if len(shown) <= _SAMPLE_CHARACTERS_MAX else shown[:_SAMPLE_CHARACTERS_MAX] + "…"


def _block(format: ValueRows, values: pa.Array) -> pa.StructArray | None:
    try:
        rows = format.decode_block(values)
    except BlockRefusedError:
        return None
    return None if _missing(format, rows) else rows


def _missing(format: ValueRows, rows: pa.StructArray) -> bool:
    """Whether a NOT NULL field is null."""
    wanted = [index for index, field in enumerate(format.type) if not field.nullable]
    return bool(wanted) and (rows.null_count > 0 or any(rows.field(index).null_count for index in wanted))


def _one_by_one(format: ValueRows, values: pa.Array, start: int) -> DecodedRows:
    rows: list[dict[str, Any] | None] = []
    rejected: list[RejectedRow] = []
    for index, value in enumerate(values.to_pylist(), start):
        try:
            row = format.decode_row(value)
            _check_fields(format, row)
            rows.append(row)
        except BadValueError as error:
            rows.append(None)
            rejected.append(RejectedRow(index=index, error=error))
    return DecodedRows(rows=_array(format, rows, start, rejected), rejected=rejected)


def _array(
    format: ValueRows, rows: list[dict[str, Any] | None], start: int, rejected: list[RejectedRow]
) -> pa.StructArray:
    try:
        return pa.array(rows, type=format.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        # A decoder returned a value that does not fit its type: only that row is rejected.
        for index, row in enumerate(rows):
            try:
                pa.array([row], type=format.type)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                rows[index] = None
                reason = BadValueError(f"the value does not fit the schema: {sample(str(error))}")
                rejected.append(RejectedRow(index=start + index, error=reason))
        rejected.sort(key=lambda each: each.index)
        return pa.array(rows, type=format.type)


def _check_fields(format: ValueRows, row: dict[str, Any] | None) -> None:
    for field in format.type:
        if not field.nullable and (row is None or row.get(field.name) is None):
            raise BadValueError(f"field {field.name} is missing, but the schema says NOT NULL")
