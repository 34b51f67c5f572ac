"""Cleaning a log against copying its files: how much compaction costs above the reading and writing that it must do.

The log has 100-byte values and every key ten times, in batches of 16 KiB. Both rivals count the bytes of the log; the
copy reads every segment once, writes it and syncs it, while a cleaning reads twice, checks every CRC, hashes every key
twice, and writes and syncs what is left. Both run in this process.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from benchmarks.measure import Result, interleaved, report
from ottla.env.inline_helper import InlineHelper
from ottla.env.real_clock import RealClock
from ottla.env.real_disk import RealDisk
from ottla.model.ids import LeaderEpoch, Offset, TimestampMs, TopicPartition
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder
from ottla.records.layout import Codec
from ottla.storage.cleaning.cleaner import Cleaner, CleanerConfig
from ottla.storage.log import Log
from ottla.storage.log_config import MIB, LogConfig
from ottla.storage.recovery.log_recovery import Opening, open_parts

NOW = TimestampMs(1_700_000_000_000)
CONFIG = LogConfig(segment_bytes=64 * MIB, cleanup_compact=True)
RECORDS_PER_BATCH = 140
VALUE_BYTES = 100
TIMES_PER_KEY = 10
PIECE_BYTES = 1 << 20


def open_log(folder: str, config: LogConfig) -> Log:
    """The log in a folder, which is made if it is missing."""
    disk = RealDisk()
    disk.make_dirs(folder)
    opening = Opening(
        disk=disk,
        folder=folder,
        config=config,
        start_offset=Offset(0),
        recovery_point=Offset(0),
        is_clean=True,
        now=NOW,
    )
    parts = open_parts(opening)
    partition = TopicPartition("benchmark", 0)
    log = Log(partition, folder, disk, config, parts, persist_bounds=lambda: None, discard=lambda paths, ms: None)
    log.advance_high_watermark(log.end_offset)
    return log


def fill(folder: str, log_bytes: int, codec: Codec) -> int:
    """Writes a log whose records take that many bytes uncompressed; answers the bytes that its segments have."""
    random = Random(0)
    record_bytes = VALUE_BYTES + 20
    keys = log_bytes // record_bytes // TIMES_PER_KEY
    words = [random.randbytes(5).hex().encode() for _ in range(1000)]
    log = open_log(folder, CONFIG)
    for _ in range(log_bytes // record_bytes // RECORDS_PER_BATCH):
        builder = BatchBuilder(codec=codec)
        for _ in range(RECORDS_PER_BATCH):
            value = b"".join(random.choices(words, k=VALUE_BYTES // 10))
            builder.append(NOW, b"key-%08d" % random.randrange(keys), value)
        log.append([Batch(bytearray(builder.build()))], leader_epoch=LeaderEpoch(0), now=NOW)
    log.roll(NOW)
    size = log.size_bytes
    log.close()
    return size


def copy_files(source: str, target: str) -> None:
    """Reads, writes and syncs every segment."""
    disk = RealDisk()
    disk.make_dirs(target)
    buffer = memoryview(bytearray(PIECE_BYTES))
    for name in disk.list_dir(source):
        read, written = disk.open(f"{source}/{name}", writable=False), disk.open(f"{target}/{name}", create=True)
        position = 0
        while got := read.read_into(position, buffer):
            written.write_at(position, [buffer[:got]])
            position += got
        written.sync()


def clean(folder: str) -> None:
    """One whole round."""
    log = open_log(folder, CONFIG)
    cleaner = Cleaner(RealDisk(), InlineHelper(), RealClock(), CleanerConfig())
    asyncio.run(cleaner.clean(log, NOW, discard=lambda paths, delay_ms: None))


def compare(folder: Path, codec: Codec, log_bytes: int, *, quick: bool) -> Result:
    """One codec's log, cleaned and copied in turn."""
    master, work, copy = (str(folder / f"{codec.name}-{name}") for name in ("master", "work", "copy"))
    size = fill(master, log_bytes, codec)

    def renew(target: str, *, with_content: bool) -> Callable[[], None]:
        def prepare() -> None:
            shutil.rmtree(target, ignore_errors=True)
            if with_content:
                shutil.copytree(master, target)

        return prepare

    def cleaned() -> float:
        clean(work)
        return size / 1e6

    def copied() -> float:
        copy_files(master, copy)
        return size / 1e6

    return interleaved(
        {"clean": cleaned, "copy": copied},
        title=f"compaction of {size // MIB} MiB, {codec.name.lower()}, every key {TIMES_PER_KEY} times",
        unit="MB",
        baseline="copy",
        before={"clean": renew(work, with_content=True), "copy": renew(copy, with_content=False)},
        quick=quick,
    )


def run(quick: bool = False) -> list[Result]:
    """Uncompressed and zstd."""
    log_bytes = (32 if quick else 256) * MIB
    with tempfile.TemporaryDirectory() as folder:
        return [compare(Path(folder), codec, log_bytes, quick=quick) for codec in (Codec.NONE, Codec.ZSTD)]


if __name__ == "__main__":
    report(run())
