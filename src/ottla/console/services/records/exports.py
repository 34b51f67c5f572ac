"""Downloads: the records of a query as JSON lines, CSV or Parquet, chunk by chunk, in bounded memory; streamed to the
browser, or written to a file by a job.

The limit of the page does not count; from, to, partitions, key and filter do. Records come in the order of offsets of
each partition.
"""

import asyncio
import base64
import csv
import io
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from enum import StrEnum
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.fetch.arrow_chunks import decode_chunk
from ottla.client.fetch.chunk import Chunk
from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules
from ottla.client.network.cluster import Cluster
from ottla.console.cluster.access import Access
from ottla.console.cluster.jobs import Job
from ottla.console.cluster.scans import IsStopped, Scans
from ottla.console.filters.syntax import Root
from ottla.console.services.records.query import RecordsQuery
from ottla.console.services.records.rows import ReadRecord
from ottla.console.services.records.scan import ScanPlan, check_stopped, matching, scan_plan
from ottla.console.services.records.search import Bounds, bounds_for
from ottla.console.web.human import plural, short_bytes, time_text
from ottla.protocol.fetch_frames import READ_COMMITTED, READ_UNCOMMITTED
from ottla.records.arrow import SCHEMA

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Also in full width, which some spreadsheets take for the same."""
_CSV_HEADINGS: Final = ("partition", "offset", "timestamp", "time", "key", "value", "headers")
_PARQUET: Final = pa.schema([pa.field("partition", pa.int32(), nullable=False), *SCHEMA])


class ExportFormat(StrEnum):
    """What a download is."""

    JSON_LINES = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


MEDIA_TYPES: Final = {
    ExportFormat.JSON_LINES: "application/x-ndjson",
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.PARQUET: "application/vnd.apache.parquet",
}


async def export(
    cluster: Cluster,
    scans: Scans,
    bounds: Bounds,
    plan: ScanPlan,
    query: RecordsQuery,
    kind: ExportFormat,
    on_chunk: Callable[[int, int], object] = lambda offsets, records: None,
) -> AsyncGenerator[bytes, None]:
    """The bytes of the file. `on_chunk` gets the number of offsets that were read and of records that were written."""
    level = READ_UNCOMMITTED if query.uncommitted else READ_COMMITTED
    rules = RangeRules(isolation_level=level, skips_deleted=True)
    ranges = {each: OffsetRange(start=start, end=end) for each, (start, end) in bounds.items()}
    writer = _WRITERS[kind]()
    records = offsets = 0
    places = {each: start for each, (start, _) in bounds.items()}
    async with aclosing(RangeFetch(cluster, ranges, rules).chunks()) as chunks:
        async for chunk in chunks:
            count, data = await scans.run(partial(_written, writer, chunk, plan))
            records += count
            reached = min(chunk.next_offset, bounds[chunk.partition][1])
            offsets += max(0, reached - places[chunk.partition])
            places[chunk.partition] = reached
            on_chunk(offsets, records)
            if data:
                yield data
    yield await scans.run(lambda is_stopped: writer.end())


async def start_export(access: Access, topic: str, query: RecordsQuery, kind: ExportFormat) -> Job:
    """Exports as a job: a file that can be downloaded when it has ended. What is wrong with the query is raised here;
    the offsets are those of now."""
    plan = scan_plan(query, access.schema_reader())
    bounds = await bounds_for(access.cluster, topic, query)
    total = sum(end - start for start, end in bounds.values())

    async def work(job: Job) -> str:
        job.report(0, total, unit="offsets")
        file = await asyncio.to_thread(access.jobs.files.create, job.id, f"{topic}.{kind.value}", MEDIA_TYPES[kind])
        written = 0

        def on_chunk(offsets: int, records: int) -> None:
            nonlocal written
            written = records
            job.report(offsets, note=f"{plural(records, 'record')}, {short_bytes(file.size_bytes)}")

        try:
            async with aclosing(export(access.cluster, access.scans, bounds, plan, query, kind, on_chunk)) as pieces:
                async for piece in pieces:
                    await asyncio.to_thread(file.append, piece)
            await asyncio.to_thread(file.finish)
        except BaseException:
            file.remove()
            raise
        job.file = file
        job.report(total)
        return f"{plural(written, 'record')}, {short_bytes(file.size_bytes)}"

    return access.start_job("export", f"Export of {topic} as {kind.value}", work)


def _written(writer: "_Writer", chunk: Chunk, plan: ScanPlan, is_stopped: IsStopped) -> tuple[int, bytes]:
    count = 0
    decoded = decode_chunk(chunk)
    for batch in decoded.batches:
        count += writer.add(chunk, batch, plan, is_stopped)
    if decoded.error is not None:
        raise decoded.error
    return count, writer.drain()


class _Writer:
    """Collects the bytes of some records."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()

    def add(self, chunk: Chunk, batch: pa.RecordBatch, plan: ScanPlan, is_stopped: IsStopped) -> int:
        """Writes the records that pass; returns how many."""
        count = 0
        for record in matching(chunk, batch, plan, is_stopped):
            check_stopped(is_stopped)
            self.write(record)
            count += 1
        return count

    def write(self, record: ReadRecord) -> None:
        """Writes one record."""
        raise NotImplementedError

    def drain(self) -> bytes:
        """What was written since the last call."""
        data = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        return data

    def end(self) -> bytes:
        """What completes the file."""
        return self.drain()


class _JsonLines(_Writer):
    """One JSON document for each record, as `ottla consume --format json` prints them."""

    def write(self, record: ReadRecord) -> None:
        headers: Any = [[name, _json_bytes(value)] for name, value in record.headers]
        if len({name for name, _ in record.headers}) == len(headers):
            headers = dict(headers)
        document = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": self._part(record, Root.KEY),
            "value": self._part(record, Root.VALUE),
            "headers": headers,
        }
        self._buffer.write(msgspec.json.encode(document) + b"\n")

    def _part(self, record: ReadRecord, part: Root) -> Any:
        read = record.read(part)
        return read.value if read is not None and read.error is None else _json_bytes(record.data(part))


class _Csv(_Writer):
    """A table for spreadsheets. A cell that a spreadsheet would take for a formula begins with an apostrophe."""

    def __init__(self) -> None:
        super().__init__()
        self._text = io.StringIO()
        self._rows = csv.writer(self._text)
        self._rows.writerow(_CSV_HEADINGS)

    def write(self, record: ReadRecord) -> None:
        headers = msgspec.json.encode([[name, _json_bytes(value)] for name, value in record.headers]).decode()
        self._rows.writerow(
            (
                record.partition,
                record.offset,
                record.timestamp,
                time_text(record.timestamp, with_milliseconds=True),
                self._cell(record, Root.KEY),
                self._cell(record, Root.VALUE),
                headers if record.headers else "",
            )
        )

    def _cell(self, record: ReadRecord, part: Root) -> str:
        data = record.data(part)
        if data is None:
            return ""
        try:
            text = record.text(part) if record.read(part) is not None else data.decode()
        except UnicodeDecodeError:
            return "base64:" + base64.b64encode(data).decode()
        return safe_cell(text or "")

    def drain(self) -> bytes:
        self._buffer.write(self._text.getvalue().encode("utf-8", "replace"))
        self._text.seek(0)
        self._text.truncate()
        return super().drain()


class _Parquet(_Writer):
    """Arrow columns, as the clients decode them, with the partition. One row group for each chunk."""

    def __init__(self) -> None:
        super().__init__()
        self._sink = _Sink(self._buffer)
        # Needs megabytes of memory, which a console without downloads does not spend.
        import pyarrow.parquet as pq

        self._file = pq.ParquetWriter(self._sink, _PARQUET, compression="zstd")

    def add(self, chunk: Chunk, batch: pa.RecordBatch, plan: ScanPlan, is_stopped: IsStopped) -> int:
        if plan.columns is not None:
            wanted = pa.array([record.offset for record in matching(chunk, batch, plan, is_stopped)], pa.int64())
            batch = batch.filter(pc.is_in(batch.column("offset"), value_set=wanted))
        if batch.num_rows:
            partition = pa.repeat(pa.scalar(chunk.partition.partition, pa.int32()), batch.num_rows)
            self._file.write_batch(pa.RecordBatch.from_arrays([partition, *batch.columns], schema=_PARQUET))
        return int(batch.num_rows)

    def end(self) -> bytes:
        self._file.close()
        return self.drain()


class _Sink(io.RawIOBase):
    """Where Parquet writes: counts its position, while the buffer is emptied again and again."""

    def __init__(self, buffer: io.BytesIO) -> None:
        self._buffer = buffer
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._buffer.write(data)
        self._position += size
        return size


_WRITERS: Final[dict[ExportFormat, type[_Writer]]] = {
    ExportFormat.JSON_LINES: _JsonLines,
    ExportFormat.CSV: _Csv,
    ExportFormat.PARQUET: _Parquet,
}


def safe_cell(text: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _json_bytes(data: bytes | None) -> Any:
    """UTF-8 as text, other bytes as base64 in a wrapper that `ottla produce --format json` reads back."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
