"""Decoding values in blocks, and finding the bad ones: good rows at the speed of columns, bad ones with their reason.

A format offers two ways: `decode_block` for many values at once, which may refuse the whole block for one bad value,
and `decode_row`, slower, which takes everything that is good and says exactly what is wrong with what is not. A block
that was refused is tried again in small pieces, and row by row only where it must be. What then becomes of bad rows is
the business of `value_format.py`.
"""

from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ottla.model.errors import CorruptError, OttlaError

PIECE_ROWS: Final = 128
"""How many rows are decoded one by one because of a bad one among them."""
_SAMPLE_CHARACTERS_MAX: Final = 80


class BadValueError(CorruptError):
    """A value is not what its format says. The message is the reason, without saying where the record is."""


class BlockRefusedError(CorruptError):
    """Some value of a block is bad, or needs to be looked at alone."""


class ValueRows(Protocol):
    """How one format decodes."""

    @property
    def type(self) -> pa.DataType:
        """The struct that a value becomes."""

    def decode_block(self, values: pa.Array) -> pa.StructArray:
        """All values, none of which is null, in order. Raises `BlockRefusedError` if any of them needs `decode_row`."""

    def is_plausible(self, value: bytes) -> bool:
        """A quick look: False if `decode_block` is sure to refuse a block with this value, as far as it can tell."""

    def decode_row(self, value: bytes) -> dict[str, Any] | None:
        """One value; raises `BadValueError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRow:
    """A row whose value is bad."""

    index: int
    error: BadValueError


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRows:
    """The rows of a block, as many as there were values; a rejected one is null."""

    rows: pa.StructArray
    rejected: list[RejectedRow]


def decode_rows(format: ValueRows, values: pa.Array) -> DecodedRows:
    """Decodes all that can be decoded. Raises only what is no fault of the values, such as a registry that is away."""
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
    # Sorting the places by where they belong puts the rows back into their order.
    places = pc.array_sort_indices(pa.array(order, pa.int64()))
    return DecodedRows(
        rows=pa.concat_arrays([good.rows, doubtful.rows]).take(places),
        rejected=sorted(rejected, key=lambda each: each.index),
    )


def _around_nulls(format: ValueRows, values: pa.Array) -> DecodedRows:
    """A record without a value, as a compacted topic has for what was deleted, is a row of nulls."""
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
    """Decodes what can be decoded together, and row by row where a piece is refused."""
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
    """Whether a field that must not be null is."""
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
        # A format let something pass that does not fit its type after all: that row is bad, and not its neighbours.
        for index, row in enumerate(rows):
            try:
                pa.array([row], type=format.type)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                rows[index] = None
                reason = BadValueError(f"it does not fit the schema: {sample(str(error))}")
                rejected.append(RejectedRow(index=start + index, error=reason))
        rejected.sort(key=lambda each: each.index)
        return pa.array(rows, type=format.type)


def _check_fields(format: ValueRows, row: dict[str, Any] | None) -> None:
    for field in format.type:
        if not field.nullable and (row is None or row.get(field.name) is None):
            raise BadValueError(f"the field {field.name} is missing, and the schema says NOT NULL")


class RejectedRecordError(OttlaError):
    """A record's value cannot be decoded, and the query was told to fail then. Names the record."""
