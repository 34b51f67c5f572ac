"""Columns of framed keys or values: which rows have which schema, and their typed columns put together again.

Rows are grouped by their frame, which is the id or GUID of the schema, in the prefix or in a header, with the indexes
of the message for Protobuf (`framing.py`, `message_indexes.py`). No Python object is made per row.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ottla.registry.serde.errors import ValueNotReadableError
from ottla.registry.serde.framing import KEY_HEADER, PREFIX_BYTES, VALUE_HEADER, SchemaId, read_frame
from ottla.registry.serde.message_indexes import read_indexes

_GUID_BYTES: Final = 17
_INDEX_BYTES_MAX: Final = 40
_IN_HEADER, _IN_PREFIX = b"h", b"p"

Bad = list[tuple[int, str]]
Decode = Callable[[pa.Array, int], tuple[pa.Array, Bad]]
"""Values of one schema, none of which is null, that begin after some bytes: their column, and the bad rows."""


class Written(NamedTuple):
    """What a row was written with."""

    schema_id: SchemaId
    indexes: tuple[int, ...]
    """Of the message; empty for other languages than Protobuf."""


class Group(NamedTuple):
    """Rows with the same frame."""

    written: Written | None
    reason: str
    """Why there is no schema."""
    skip: int
    """How many bytes are before each value."""
    rows: pa.Array
    """Their numbers, in order."""


def groups_of(values: pa.Array, headers: pa.Array, *, is_key: bool, has_indexes: bool) -> list[Group]:
    """All rows but the null ones, by their frames."""
    frames = _frames(values, has_indexes)
    in_headers = _header_frames(headers, KEY_HEADER if is_key else VALUE_HEADER, len(values))
    marked = pc.binary_join_element_wise(_IN_PREFIX, frames, b"")
    if in_headers is not None:
        marked = pc.if_else(pc.is_valid(in_headers), pc.binary_join_element_wise(_IN_HEADER, in_headers, b""), marked)
        marked = pc.if_else(values.is_valid(), marked, pa.scalar(None, pa.binary()))
    found = marked.dictionary_encode()
    groups = []
    for number, frame in enumerate(found.dictionary.to_pylist()):
        rows = pc.indices_nonzero(pc.equal(found.indices, number)) if len(found.dictionary) > 1 else None
        if rows is None:
            rows = pc.indices_nonzero(values.is_valid())
        groups.append(_group(frame, rows, is_key=is_key, has_indexes=has_indexes))
    return groups


def _group(marked: bytes, rows: pa.Array, *, is_key: bool, has_indexes: bool) -> Group:
    frame = marked[1:]
    try:
        if marked[:1] == _IN_HEADER:
            found = read_frame([(KEY_HEADER if is_key else VALUE_HEADER, frame)], b"", is_key=is_key)
            indexes = read_indexes(found.suffix, 0)[0] if has_indexes else ()
            return Group(Written(found.schema_id, indexes), "", 0, rows)
        found = read_frame((), frame, is_key=is_key)
        indexes, start = read_indexes(frame, found.start) if has_indexes else ((), found.start)
        return Group(Written(found.schema_id, indexes), "", start, rows)
    except ValueNotReadableError as error:
        return Group(None, str(error), 0, rows)


def _frames(values: pa.Array, has_indexes: bool) -> pa.Array:
    """The first bytes of each value, as many as its frame has."""
    has_guid = pc.equal(pc.binary_slice(values, 0, 1), b"\1")
    any_guid = bool(pc.any(has_guid).as_py())

    def sliced(more: int) -> pa.Array:
        short = pc.binary_slice(values, 0, PREFIX_BYTES + more)
        return pc.if_else(has_guid, pc.binary_slice(values, 0, _GUID_BYTES + more), short) if any_guid else short

    frames = sliced(1 if has_indexes else 0)
    for more in range(2, _INDEX_BYTES_MAX if has_indexes else 2):
        cut = [each for each in frames.unique().to_pylist() if each is not None and _is_cut(each)]
        if not cut:
            break
        frames = pc.if_else(pc.is_in(frames, value_set=pa.array(cut, pa.binary())), sliced(more), frames)
    return frames


def _is_cut(frame: bytes) -> bool:
    """Whether the indexes of the message go on."""
    try:
        start = read_frame((), frame, is_key=False).start
    except ValueNotReadableError:
        return False
    try:
        read_indexes(frame, start)
    except ValueNotReadableError:
        return True
    return False


def _header_frames(headers: pa.Array, name: str, count: int) -> pa.Array | None:
    """The last header of that name of each row, if it has one; None if no row has one."""
    items = headers.flatten()
    if len(items) == 0:
        return None
    is_frame = pc.and_(pc.equal(items.field("key"), name), items.field("value").is_valid())
    rows = pc.list_parent_indices(headers).filter(is_frame)
    if len(rows) == 0:
        return None
    frames = items.field("value").filter(is_frame)
    is_last = pa.concat_arrays([pc.not_equal(rows[:-1], rows[1:]), pa.array([True])])
    rows, frames = rows.filter(is_last), frames.filter(is_last)
    numbers = pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)
    return frames.take(pc.index_in(numbers, value_set=rows.cast(pa.int64())))


def decoded(values: pa.Array, groups: Sequence[Group], decoders: Sequence[Decode | str]) -> tuple[pa.Array, Bad]:
    """The column of all groups, each with its decoder, or the reason why it has none."""
    parts: list[pa.Array] = []
    places: list[pa.Array] = []
    bad: Bad = []
    for group, decode in zip(groups, decoders, strict=True):
        if isinstance(decode, str):
            bad += [(row, decode) for row in group.rows.to_pylist()]
            continue
        is_all = len(group.rows) == len(values)
        part, wrong = decode(values if is_all else values.take(group.rows), group.skip)
        if wrong:
            bad += [(group.rows[row].as_py(), reason) for row, reason in wrong]
        if is_all:
            return part, sorted(bad)
        parts.append(part)
        places.append(group.rows)
    if not parts:
        return pa.nulls(len(values)), sorted(bad)
    order = pc.index_in(
        pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.uint64()), len(values))), pa.scalar(1, pa.uint64())),
        value_set=pa.concat_arrays([each.cast(pa.uint64()) for each in places]),
    )
    return pa.concat_arrays(parts).take(order), sorted(bad)
