"""Where `ottla consume` puts records: lines to stdout or a file, counted, and no more than were asked for."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

from ottla.cli.consume.record_formats import Format
from ottla.cli.output import human_bytes
from ottla.cli.progress import Progress
from ottla.model.ids import TopicPartition
from ottla.records.record import Record

Decode = Callable[[TopicPartition, Iterable[Record]], list[Record]]
_WRITE_BYTES: Final = 256 * 1024
"""Lines are gathered to this size before they are written."""


class RecordSink:
    """Formats records and writes them. A context manager: leaving it flushes, and closes a file."""

    def __init__(
        self, output: str | None, write: Format, *, records_max: int | None, decode: Decode | None = None
    ) -> None:
        """`decode` is called in a thread: it may have to ask for schemas."""
        self._decode = decode
        self._stream = _opened(output)
        self._format = write
        self._left = records_max
        self._progress = Progress(shown=None if not sys.stdout.isatty() else False)
        self.records = 0
        self.bytes = 0

    def __enter__(self) -> "RecordSink":
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.end()
        self._stream.close()

    @property
    def is_full(self) -> bool:
        """Whether as many records were written as were asked for."""
        return self._left == 0

    def room(self, most: int) -> int:
        """How many records may still be written, `most` at most."""
        return most if self._left is None else min(self._left, most)

    async def write(self, partition: TopicPartition, records: Iterable[Record]) -> None:
        """Decodes records, if that was asked for, and writes them until it is full."""
        if self._decode is not None:
            wanted = list(records if self._left is None else islice(records, self._left))
            records = await _in_thread(self._decode, partition, wanted)
        self.put(partition, records)

    def put(self, partition: TopicPartition, records: Iterable[Record]) -> None:
        """Writes records until it is full."""
        lines: list[bytes] = []
        size = 0
        for record in records:
            if self._left == 0:
                break
            if self._left is not None:
                self._left -= 1
            line = self._format(partition, record)
            lines.append(line)
            self.records += 1
            size += len(line)
            if size >= _WRITE_BYTES:
                self._put(lines)
                size = 0
        self._put(lines)
        self._progress.tick(self._words)

    def flush(self) -> None:
        """Hands everything to the system."""
        self._stream.flush()

    def _put(self, lines: list[bytes]) -> None:
        data = b"".join(lines)
        lines.clear()
        self.bytes += len(data)
        self._stream.write(data)

    def _words(self) -> str:
        rate = self.bytes / self._progress.seconds
        return f"{self.records:,} records, {human_bytes(self.bytes)}, {human_bytes(rate)}/s"


async def _in_thread(decode: Decode, partition: TopicPartition, records: list[Record]) -> list[Record]:
    """Decodes in a thread that the end of the process does not wait for: a registry may hang when Ctrl-C is pressed."""
    loop = asyncio.get_running_loop()
    decoded: asyncio.Future[list[Record]] = loop.create_future()

    def settle(found: list[Record] | None, error: BaseException | None) -> None:
        if decoded.done():
            return
        if error is not None:
            decoded.set_exception(error)
        else:
            decoded.set_result(found or [])

    def run() -> None:
        found, failed = None, None
        try:
            found = decode(partition, records)
        except BaseException as error:
            failed = error
        # The loop is closed if the command has ended meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, found, failed)

    threading.Thread(target=run, daemon=True).start()
    return await decoded


def _opened(output: str | None) -> BinaryIO:
    """The file, or stdout as bytes, which stays open when this is closed."""
    if output is None:
        return open(sys.stdout.fileno(), "wb", closefd=False)
    return Path(output).open("wb")
