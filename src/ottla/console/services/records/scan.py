"""Looks through one chunk of fetched batches: which records pass a filter. Blocks, so it runs in a thread.

Batches are decoded to Arrow columns. `filters.candidates` decides on whole columns which rows pass, or may pass; only
those become objects, and only those in doubt are decoded and asked one by one.
"""

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.fetch.arrow_chunks import decode_chunk
from ottla.client.fetch.chunk import Chunk
from ottla.console.cluster.scans import IsStopped, ScanStoppedError
from ottla.console.filters.candidates import ColumnFilter, column_filter
from ottla.console.filters.evaluation import Predicate, predicate
from ottla.console.filters.masks import has_any, with_doubts
from ottla.console.filters.parser import parse_filter
from ottla.console.filters.syntax import Both, Compare, Comparison, Literal, Node, Path, Root
from ottla.console.services.records.query import Decode, RecordsQuery
from ottla.console.services.records.rows import ReadRecord, RecordRow
from ottla.model.errors import OttlaError
from ottla.records.record import Headers
from ottla.registry.serde.framing import KEY_HEADER, VALUE_HEADER

if TYPE_CHECKING:
    from ottla.registry.serde.schema_reader import SchemaReader

_FIRST_PART_BYTES: Final = 64 * 1024
_PART_SECONDS: Final = 0.05
_PART_GROWTH: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """What is looked for, and how it is shown."""

    decode: Decode
    reader: "SchemaReader | None"
    """None if there is no registry."""
    passes: Predicate | None = None
    columns: ColumnFilter | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """What was found in one chunk."""

    rows: list[RecordRow]
    """In the order of offsets, at most as many as asked for."""
    records: int
    """How many records were looked at."""
    matched: int
    error: OttlaError | None
    """Why the rest of the chunk cannot be read."""


def scan_plan(query: RecordsQuery, reader: "SchemaReader | None") -> ScanPlan:
    """What a query looks for. Raises `FilterError`."""
    node: Node | None = parse_filter(query.filter)
    if query.key is not None:
        same_key = Compare(Comparison.EQUAL, Path(Root.KEY), Literal(query.key))
        node = same_key if node is None else Both((same_key, node))
    if node is None:
        return ScanPlan(decode=query.decode, reader=reader)
    return ScanPlan(decode=query.decode, reader=reader, passes=predicate(node), columns=column_filter(node))


def scan_chunk(chunk: Chunk, plan: ScanPlan, is_stopped: IsStopped, *, rows_max: int, newest: bool) -> Scanned:
    """Rows of the records that pass: the first ones of the chunk, or with `newest` the last ones.

    Raises `ScanStoppedError`.
    """
    decoded = decode_chunk(chunk)
    records = sum(batch.num_rows for batch in decoded.batches)
    found: deque[ReadRecord] = deque(maxlen=rows_max if newest else None)
    matched = 0
    for part in chain.from_iterable(_parts(batch, plan, is_stopped) for batch in decoded.batches):
        chosen, doubted = _chosen(chunk, part, plan)
        if doubted is None:
            matched += chosen.num_rows
            # The rest would only be thrown away.
            start = max(chosen.num_rows - rows_max, 0) if newest else 0
            some = chosen.slice(start, rows_max if newest else max(rows_max - len(found), 0))
            found.extend(_records(chunk, some, plan))
            continue
        for record in _passing(chunk, chosen, doubted, plan, is_stopped):
            matched += 1
            if newest or len(found) < rows_max:
                found.append(record)
    starts = [int(each.base_offset) for each in chunk.batches] if found else []
    rows: list[RecordRow] = []
    for each in found:
        check_stopped(is_stopped)
        kind = chunk.batches[max(bisect_right(starts, each.offset) - 1, 0)].timestamp_type
        rows.append(each.row(plan.decode, kind))
    return Scanned(rows=rows, records=records, matched=matched, error=decoded.error)


def matching(chunk: Chunk, batch: pa.RecordBatch, plan: ScanPlan, is_stopped: IsStopped) -> Iterator[ReadRecord]:
    """The records of one decoded batch that pass, in order. Raises `ScanStoppedError`."""
    for part in _parts(batch, plan, is_stopped):
        chosen, doubted = _chosen(chunk, part, plan)
        if doubted is None:
            yield from _records(chunk, chosen, plan)
        else:
            yield from _passing(chunk, chosen, doubted, plan, is_stopped)


def check_stopped(is_stopped: IsStopped) -> None:
    """Raises `ScanStoppedError`."""
    if is_stopped():
        raise ScanStoppedError


def _parts(batch: pa.RecordBatch, plan: ScanPlan, is_stopped: IsStopped) -> Iterator[pa.RecordBatch]:
    """The batch in parts whose filter takes a short time each: an abandoned scan ends between them."""
    check_stopped(is_stopped)
    if plan.columns is None or not batch.num_rows:
        yield batch
        return
    rows = max(_FIRST_PART_BYTES * batch.num_rows // max(batch.nbytes, 1), 1)
    start = 0
    while start < batch.num_rows:
        begun = time.monotonic()
        yield batch.slice(start, rows)
        check_stopped(is_stopped)
        start += rows
        rows = rows * _PART_GROWTH if time.monotonic() - begun < _PART_SECONDS else max(rows // _PART_GROWTH, 1)


def _chosen(chunk: Chunk, batch: pa.RecordBatch, plan: ScanPlan) -> tuple[pa.RecordBatch, pa.BooleanArray | None]:
    """The rows that may pass, and which of them the predicate has to decide; None if all of them pass."""
    if plan.columns is None:
        return batch, None
    mask = plan.columns(batch, chunk.partition.partition)
    framed = None if plan.reader is None else _framed(batch)
    if framed is not None:
        # What has a schema is not what its bytes say.
        mask = with_doubts(mask, framed)
    if not has_any(mask.possible):
        return batch.slice(0, 0), None
    chosen = batch.filter(mask.possible)
    return chosen, None if mask.is_exact else pc.invert(mask.certain.filter(mask.possible))


def _passing(
    chunk: Chunk, chosen: pa.RecordBatch, doubted: pa.BooleanArray, plan: ScanPlan, is_stopped: IsStopped
) -> Iterator[ReadRecord]:
    for record, is_doubted in zip(_records(chunk, chosen, plan), doubted.to_pylist(), strict=True):
        check_stopped(is_stopped)
        if not is_doubted or plan.passes is None or plan.passes(record):
            yield record


def _framed(batch: pa.RecordBatch) -> pa.Array | None:
    """Rows whose key or value may have a schema; None if there are none."""
    found = None
    for name in ("key", "value"):
        starts = pc.fill_null(pc.starts_with(batch.column(name), pattern=b"\0"), False)
        found = starts if found is None else pc.or_(found, starts)
    headers = batch.column("headers")
    names = headers.flatten().field("key")
    if len(names) and pc.any(pc.is_in(names, value_set=pa.array([KEY_HEADER, VALUE_HEADER])), min_count=0).as_py():
        found = pc.or_(found, pc.greater(pc.list_value_length(headers), 0))
    return found if pc.any(found, min_count=0).as_py() else None


def _records(chunk: Chunk, batch: pa.RecordBatch, plan: ScanPlan) -> Iterator[ReadRecord]:
    headers = batch.column("headers")
    has_headers = len(headers.flatten()) > 0
    columns = zip(
        batch.column("offset").to_pylist(),
        batch.column("timestamp").cast(pa.int64()).to_pylist(),
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
        strict=True,
    )
    for row, (offset, timestamp, key, value) in enumerate(columns):
        find = _finder(headers, row) if has_headers else None
        yield ReadRecord(chunk.partition, offset, timestamp, key, value, find, plan.reader)


def _finder(headers: Any, row: int) -> Any:
    def find() -> Headers:
        return tuple((each["key"], each["value"]) for each in headers[row].as_py())

    return find
