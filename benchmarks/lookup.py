"""Finding a random offset in a log of 1 GiB against one bare `os.pread` of a header at a known position."""

import os
import random

from benchmarks.bench_log import bench_store, fill, make_batch
from benchmarks.measure import Result, interleaved, report
from ottla.model.ids import Offset, TimestampMs
from ottla.storage.log_config import LogConfig

GIB = 1 << 30
LOOK_UPS = 5_000


def run(quick: bool = False) -> list[Result]:
    """One comparison, by offset and by time."""
    chooser = random.Random(1)
    with bench_store(LogConfig(segment_bytes=GIB // 4)) as bench:
        log = bench.new_log()
        fill(log, make_batch(4096), GIB // 16 if quick else GIB)
        offsets = [Offset(chooser.randrange(log.end_offset)) for _ in range(LOOK_UPS)]
        with open(log.segments[0].log_path, "rb") as raw:
            positions = [chooser.randrange(log.segments[0].size_bytes) for _ in range(LOOK_UPS)]
            descriptor = raw.fileno()

            def by_offset() -> float:
                for offset in offsets:
                    log.read(offset, 1 << 20)
                return LOOK_UPS

            def by_time() -> float:
                for _ in range(50):
                    log.find_timestamp(TimestampMs(1_700_000_000_000))
                return 50

            def bare() -> float:
                for position in positions:
                    os.pread(descriptor, 61, position)
                return LOOK_UPS

            return [
                interleaved(
                    {"log.read": by_offset, "log.find_timestamp": by_time, "os.pread": bare},
                    title=f"look-up in {log.size_bytes >> 20} MiB",
                    unit="look-ups",
                    baseline="os.pread",
                    quick=quick,
                )
            ]


if __name__ == "__main__":
    report(run())
