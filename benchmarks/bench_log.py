"""Logs and batches to measure with; no benchmark of its own."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.env.real_clock import RealClock
from ottla.env.real_disk import RealDisk
from ottla.env.real_random import RealRandom
from ottla.model.errors import OttlaError
from ottla.model.ids import LeaderEpoch, TopicPartition
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_store import LogStore

PARTITION = TopicPartition("bench", 0)


def make_batch(size: int, value_bytes: int = 100) -> bytearray:
    """A valid uncompressed batch of `size` bytes or little less, of records with random values."""
    builder = BatchBuilder()
    number = 0
    while builder.size_bytes + value_bytes + 16 <= size or number == 0:
        fitting = value_bytes if size > value_bytes + 100 else max(size - 80, 1)
        builder.append(1_700_000_000_000 + number, None, os.urandom(fitting))
        number += 1
    return bytearray(builder.build())


class BenchStore:
    """A log store in a folder of its own."""

    def __init__(self, config: LogConfig | None = None, folder: str | None = None) -> None:
        self.folder = folder or tempfile.mkdtemp(prefix="ottla-bench-")
        self.config = config or LogConfig()
        self.store = self._make()

    def _make(self) -> LogStore:
        disk, clock, random = RealDisk(), RealClock(), RealRandom()
        return LogStore(
            disk,
            clock,
            random,
            [f"{self.folder}/data"],
            node_id=0,
            cluster_id="bench",
            owner="the benchmark",
            config_of=lambda partition: self.config,
        )

    def open(self) -> LogStore:
        """Opens what is in the folder."""
        self.store = self._make()
        asyncio.run(self.store.open())
        return self.store

    def new_log(self, partition: TopicPartition = PARTITION) -> Log:
        """An empty log; an older one of the same name goes."""
        if any(log.partition == partition for log in self.store):
            self.store.delete(partition)
            self.store.trash.sweep(RealClock().now_ms() + (1 << 40))  # type: ignore[arg-type]  # a time far ahead
        return self.store.create(partition)

    def reopen(self) -> None:
        """Shuts down cleanly and opens again: nothing in the files has been read since."""
        self.close()
        self.open()
        for log in self.store:
            log.advance_high_watermark(log.end_offset)

    def close(self) -> None:
        """Shuts down cleanly."""
        asyncio.run(self.store.close())

    def kill(self) -> None:
        """Forgets the store as a killed process would."""
        for folder in self.store.dirs:
            folder.unlock()


@contextmanager
def bench_store(config: LogConfig | None = None) -> Iterator[BenchStore]:
    """A store that is gone afterwards."""
    store = BenchStore(config)
    try:
        store.open()
        yield store
    finally:
        shutil.rmtree(store.folder)


def fill(log: Log, batch: bytearray, size: int) -> None:
    """Appends the batch again and again up to `size` bytes, and makes all of it readable."""
    view = Batch(batch)
    for _ in range(max(size // len(batch), 1)):
        (result,) = log.append([view], leader_epoch=LeaderEpoch(0), now=RealClock().now_ms())
        if isinstance(result, OttlaError):
            raise result
    log.advance_high_watermark(log.end_offset)
