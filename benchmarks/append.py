"""Appending to a log against a bare `os.write` of the same bytes.

A log's append checks the CRC, gives out offsets, stamps, writes, and keeps the indexes; the rival only writes. Both go
to the page cache of the same disk, one batch a call, and sixteen a call where it says so.
"""

import itertools
import os
from collections.abc import Sequence

from benchmarks.bench_log import bench_store, make_batch
from benchmarks.measure import Goal, Result, interleaved, report
from ottla.env.real_clock import RealClock
from ottla.model.ids import LeaderEpoch, TopicPartition
from ottla.records.batch import Batch
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig

KIB = 1024
SIZES = {"1 KiB": KIB, "16 KiB": 16 * KIB, "64 KiB": 64 * KIB, "1 MiB": 1024 * KIB}
GATHERED = 16


def run(quick: bool = False) -> list[Result]:
    """One comparison per batch size."""
    return [
        compare(name, size, goals=[Goal(rival="log", at_least=0.7)] if size == 64 * KIB else [], quick=quick)
        for name, size in SIZES.items()
    ]


def compare(name: str, size: int, *, goals: Sequence[Goal] = (), rounds: int = 21, quick: bool = False) -> Result:
    """Batches of about `size` bytes."""
    total = (8 if size < 16 * KIB else 32) * KIB * KIB
    buffers = [make_batch(size) for _ in range(GATHERED)]
    turns = total // (size * GATHERED)
    batch_bytes = sum(map(len, buffers))
    clock = RealClock()
    with bench_store(LogConfig(max_message_bytes=4 * KIB * KIB)) as bench:
        raw = {"fd": -1}
        numbers = itertools.count()
        logs: dict[str, Log] = {}

        def fresh_log() -> None:
            logs["log"] = bench.new_log(TopicPartition("bench", next(numbers)))

        def fresh_file() -> None:
            if raw["fd"] >= 0:
                os.close(raw["fd"])
            raw["fd"] = os.open(f"{bench.folder}/raw", os.O_RDWR | os.O_CREAT | os.O_TRUNC)

        def one_by_one() -> float:
            log = logs["log"]
            for _ in range(turns):
                for buffer in buffers:
                    log.append([Batch(buffer)], leader_epoch=LeaderEpoch(0), now=clock.now_ms())
            return turns * batch_bytes / 1e6

        def gathered() -> float:
            log = logs["log"]
            for _ in range(turns):
                log.append([Batch(buffer) for buffer in buffers], leader_epoch=LeaderEpoch(0), now=clock.now_ms())
            return turns * batch_bytes / 1e6

        def bare() -> float:
            fd = raw["fd"]
            for _ in range(turns):
                for buffer in buffers:
                    os.write(fd, buffer)
            return turns * batch_bytes / 1e6

        result = interleaved(
            {"log": one_by_one, "log, 16 at once": gathered, "os.write": bare},
            title=f"append of {name} batches",
            unit="MB",
            baseline="os.write",
            goals=goals,
            before={"log": fresh_log, "log, 16 at once": fresh_log, "os.write": fresh_file},
            rounds=rounds,
            quick=quick,
        )
        os.close(raw["fd"])
    return result


if __name__ == "__main__":
    report(run())
