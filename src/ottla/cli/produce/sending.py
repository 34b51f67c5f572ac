"""The work of `ottla produce`: reads lines in bounded memory, gathers records into batches, and sends them in order.

A batch leaves when it is full, or when the input pauses, so that a line typed into a pipe arrives at once.
"""

import asyncio
import os
import stat
import sys
from array import array
from collections import deque
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final, NamedTuple

from ottla.cli.output import human_bytes
from ottla.cli.produce.input_pieces import read_pieces
from ottla.cli.produce.record_lines import BadLineError, LineShape, NewRecord, line_parser
from ottla.cli.progress import Progress, ProgressBar
from ottla.client.errors import AnswerError
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import TopicView
from ottla.client.producer.batch_sender import BatchSender
from ottla.client.producer.partitioner import StickyChoice, partition_for_key
from ottla.model.buffer import Buffer
from ottla.model.errors import InvalidRequestError, OttlaError
from ottla.model.ids import NO_LEADER_EPOCH, TopicPartition
from ottla.protocol.produce_frames import Produced
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder
from ottla.records.columns_encode import encode
from ottla.records.layout import Codec
from ottla.records.packed import BinaryColumn

Encode = Callable[[NewRecord], NewRecord]
"""Encodes key and value by their schemas. Raises `BadLineError`."""

LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""More than any broker accepts in one record by default."""
BATCH_RECORDS_MAX: Final = 1_000_000


class LineError(InvalidRequestError):
    """A line of the input cannot be sent; names the file and the line."""


class _Gathering:
    """The batch of a partition that is being filled, and its lines."""

    __slots__ = ("builder", "first_line", "last_line")

    def __init__(self, builder: BatchBuilder, line: int) -> None:
        self.builder = builder
        self.first_line = self.last_line = line


class _Pending(NamedTuple):
    produced: "asyncio.Future[Produced]"
    name: str
    first_line: int
    last_line: int


class Producing:
    """One run of the command."""

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicView,
        *,
        shape: LineShape,
        encode: Encode | None = None,
        codec: Codec,
        partition: int | None,
        batch_bytes: int,
        acks: int,
        timeout_ms: int,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._parse: Callable[[bytes], NewRecord] = line_parser(shape)
        self._codec = codec
        self._partition = partition
        self._batch_bytes = batch_bytes
        self._sender = BatchSender(cluster, acks=acks, timeout_ms=timeout_ms)
        self._sticky = StickyChoice(len(topic.partitions), cluster.random)
        self._gathering: dict[int, _Gathering] = {}
        self._encode = encode
        self._is_bare = shape.is_bare and encode is None
        self._bare: list[bytes] = []
        self._bare_bytes = 0
        self._progress = Progress()
        self._name = ""
        self._line = 0
        self._pending: deque[_Pending] = deque()
        """Batches that may be unacknowledged, in the order in which they were sent."""
        self._records = 0
        self._bytes = 0
        self._batches = 0
        self._partitions: set[int] = set()
        self._check_partition(partition)

    async def run(self, files: list[str]) -> None:
        """Sends every line of every file; raises at the first line or file that cannot be read or sent.

        The lines before it are sent.
        """
        try:
            for name in files:
                self._name = "stdin" if name == "-" else name
                self._line = 0
                await self._send_file(name)
            await self._send_gathered()
            await self._flush()
        except (LineError, OSError):
            await self._send_gathered()
            await self._flush()
            raise
        finally:
            self._progress.end()
            await self._sender.close()

    def totals(self) -> dict[str, Any]:
        """Totals of what was sent."""
        return {
            "records": self._records,
            "bytes": self._bytes,
            "batches": self._batches,
            "partitions": sorted(self._partitions),
            "seconds": round(self._progress.seconds, 3),
        }

    async def _send_file(self, name: str) -> None:
        descriptor = sys.stdin.fileno() if name == "-" else os.open(name, os.O_RDONLY)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                # A pipe has no known end.
                await self._send_lines(descriptor, None)
                return
            with ProgressBar(self._name, found.st_size) as bar:
                await self._send_lines(descriptor, bar)
        except OSError as error:
            error.filename = error.filename or self._name
            raise
        finally:
            if name != "-":
                os.close(descriptor)

    async def _send_lines(self, descriptor: int, bar: ProgressBar | None) -> None:
        """Splits the input into lines; the last one needs no line end."""
        rest = b""
        async for piece in read_pieces(descriptor, self._on_pause):
            lines = piece.split(b"\n")
            lines[0] = rest + lines[0]
            rest = lines.pop()
            if self._is_bare:
                await self._gather_bare(lines)
            else:
                await self._gather_all(lines)
            if len(rest) > LINE_BYTES_MAX:
                self._line += 1
                raise self._line_error(f"it is longer than {human_bytes(LINE_BYTES_MAX)}")
            if bar is None:
                self._progress.tick(self._words)
            else:
                bar.advance(len(piece))
        if rest:
            await (self._gather_bare([rest]) if self._is_bare else self._gather_all([rest]))

    async def _on_pause(self) -> None:
        """Sends the gathered records, so that lines of a slow writer arrive promptly."""
        await self._send_gathered()
        await self._flush()

    async def _gather_all(self, lines: list[bytes]) -> None:
        for line in lines:
            self._line += 1
            full = self._gather(line)
            if full is not None:
                await self._send(full)

    async def _gather_bare(self, lines: list[bytes]) -> None:
        """Keeps lines that are just values; the columnar kernel encodes many of them at once."""
        self._bare += lines
        size = sum(map(len, lines))
        self._bare_bytes += size
        self._line += len(lines)
        self._records += len(lines)
        self._bytes += size
        if self._bare_bytes >= self._batch_bytes:
            await self._send_bare()

    async def _send_bare(self) -> None:
        lines, self._bare, self._bare_bytes = self._bare, [], 0
        if not lines:
            return
        batches = await asyncio.to_thread(
            bare_batches, lines, self._cluster.clock.now_ms(), batch_bytes_max=self._batch_bytes, codec=self._codec
        )
        first = self._line - len(lines) + 1
        for batch in batches:
            count = Batch(batch).count
            await self._hand_over(
                self._sticky.current if self._partition is None else self._partition, batch, first, first + count - 1
            )
            first += count

    def _gather(self, line: bytes) -> int | None:
        """Adds a line to the batch of its partition; returns the partition if that batch is full now."""
        try:
            record = self._parse(line)
            if self._encode is not None:
                record = self._encode(record)
        except BadLineError as error:
            raise self._line_error(str(error)) from error
        index = self._choose(record)
        gathering = self._gathering.get(index)
        if gathering is None:
            gathering = self._gathering[index] = _Gathering(BatchBuilder(codec=self._codec), self._line)
        timestamp = self._cluster.clock.now_ms() if record.timestamp is None else record.timestamp
        try:
            size = gathering.builder.append(timestamp, record.key, record.value, record.headers)
        except OttlaError as error:
            raise self._line_error(str(error)) from error
        gathering.last_line = self._line
        self._records += 1
        self._bytes += len(line)
        return index if size >= self._batch_bytes or gathering.builder.count >= BATCH_RECORDS_MAX else None

    def _choose(self, record: NewRecord) -> int:
        chosen = self._partition if record.partition is None else record.partition
        if chosen is not None:
            if record.partition is not None:
                self._check_partition(chosen)
            return chosen
        if record.key is None:
            return self._sticky.current
        return partition_for_key(record.key, len(self._topic.partitions))

    def _check_partition(self, partition: int | None) -> None:
        if partition is None or partition < len(self._topic.partitions):
            return
        words = f"topic {self._topic.name} has no partition {partition}; it has {len(self._topic.partitions)}, from 0"
        raise self._line_error(words) if self._line else InvalidRequestError(words)

    async def _send_gathered(self) -> None:
        await self._send_bare()
        for index in list(self._gathering):
            await self._send(index)

    async def _send(self, index: int) -> None:
        """Builds and sends the gathered batch of a partition."""
        gathering = self._gathering.pop(index)
        batch = await asyncio.to_thread(gathering.builder.build)
        await self._hand_over(index, batch, gathering.first_line, gathering.last_line)

    async def _hand_over(self, index: int, batch: Buffer, first_line: int, last_line: int) -> None:
        """Gives a batch to the sender, waiting while too many requests are in flight."""
        if index == self._sticky.current:
            self._sticky.move_on()
        self._batches += 1
        self._partitions.add(index)
        while self._pending and self._pending[0].produced.done() and self._pending[0].produced.exception() is None:
            self._pending.popleft()
        try:
            produced = await self._sender.send(TopicPartition(self._topic.name, index), batch)
        except OttlaError as error:
            raise self._with_lines(error) from error
        self._pending.append(_Pending(produced, self._name, first_line, last_line))

    async def _flush(self) -> None:
        try:
            await self._sender.flush()
        except OttlaError as error:
            raise self._with_lines(error) from error
        self._pending.clear()

    def _with_lines(self, error: OttlaError) -> OttlaError:
        """The error of a batch, with the line numbers of its records."""
        for pending in self._pending:
            if isinstance(error, AnswerError) and pending.produced.done() and pending.produced.exception() is error:
                first, last = pending.first_line, pending.last_line
                lines = f"line {first}" if first == last else f"lines {first} to {last}"
                return AnswerError(error.error_code, f"{pending.name}, {lines}: {error}")
        return error

    def _line_error(self, words: str) -> LineError:
        return LineError(f"{self._name}, line {self._line}: {words}")

    def _words(self) -> str:
        rate = self._bytes / self._progress.seconds
        return f"{self._records:,} records, {human_bytes(self._bytes)}, {human_bytes(rate)}/s"


def bare_batches(lines: list[bytes], timestamp: int, *, batch_bytes_max: int, codec: Codec) -> list[memoryview]:
    """Batches of records without a key whose values are the lines."""
    offsets = array("q", accumulate(map(len, lines), initial=0))
    values = BinaryColumn(validity=None, offsets=offsets, data=b"".join(lines), wide=True)
    batches = encode(
        len(lines), values=values, default_timestamp=timestamp, batch_bytes_max=batch_bytes_max, codec=codec
    )
    for batch in batches:
        # A produced batch begins at offset 0.
        Batch(batch).stamp(0, NO_LEADER_EPOCH)
    return batches
