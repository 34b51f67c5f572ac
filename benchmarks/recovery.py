"""Recovering a log after a kill against reading the same files and checking the CRC of each batch.

Recovery also rebuilds the offset and time index, the leader epochs and the producers. One partition, one thread, from
the page cache.
"""

from benchmarks.bench_log import BenchStore, bench_store, fill, make_batch
from benchmarks.measure import Goal, Result, interleaved, report
from ottla.env.real_clock import RealClock
from ottla.env.real_disk import RealDisk
from ottla.model.ids import Offset
from ottla.records.batch import crc32c
from ottla.storage.log_config import LogConfig
from ottla.storage.recovery.log_recovery import Opening, open_parts

KIB = 1024
LOG_BYTES = 256 * KIB * KIB


def run(quick: bool = False) -> list[Result]:
    """One comparison per batch size."""
    return [_compare(f"{size // KIB} KiB", size, quick) for size in (4 * KIB, 16 * KIB, 64 * KIB)]


def _compare(name: str, size: int, quick: bool) -> Result:
    with bench_store(LogConfig(segment_bytes=64 * KIB * KIB)) as bench:
        log = bench.new_log()
        fill(log, make_batch(size), LOG_BYTES)
        folder, total = log.folder, log.size_bytes / 1e6
        paths = [segment.log_path for segment in log.segments]
        bench.kill()

        def recover() -> float:
            open_parts(_opening(bench, folder))
            return total

        return interleaved(
            {"recovery": recover, "read and CRC": lambda: _read_and_check(paths)},
            title=f"recovery of {name} batches",
            unit="MB",
            baseline="read and CRC",
            goals=[Goal(rival="recovery", at_least=0.7)],
            quick=quick,
        )


def _opening(bench: BenchStore, folder: str) -> Opening:
    return Opening(
        disk=RealDisk(),
        folder=folder,
        config=bench.config,
        start_offset=Offset(0),
        recovery_point=Offset(0),
        is_clean=False,
        now=RealClock().now_ms(),
    )


def _read_and_check(paths: list[str]) -> float:
    """What cannot be avoided: every byte is read, and every batch's CRC taken."""
    buffer = bytearray(1 << 20)
    total = 0
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            kept = 0
            while count := file.readinto(memoryview(buffer)[kept:]):
                view = memoryview(buffer)[: kept + count]
                position = 0
                while position + 12 <= len(view):
                    size = int.from_bytes(view[position + 8 : position + 12], "big") + 12
                    if position + size > len(view):
                        break
                    if crc32c(view[position + 21 : position + size]) != int.from_bytes(
                        view[position + 17 : position + 21], "big"
                    ):
                        raise ValueError(f"{path}: bad CRC at {position}")
                    position += size
                total += position
                kept = len(view) - position
                buffer[:kept] = view[position:]
    return total / 1e6


if __name__ == "__main__":
    report(run())
