"""What many open partitions cost: memory, descriptors and maps, and how long they take to open.

Each partition holds a few records. Rates are partitions per second; memory is printed beside, as a growth of the
resident set.
"""

import os
import subprocess
import sys
import time

from benchmarks.bench_log import BenchStore, bench_store, fill, make_batch
from benchmarks.measure import Result, interleaved, report
from ottla.model.ids import TopicPartition
from ottla.storage.log_config import LogConfig

PARTITIONS = 10_000


def run(quick: bool = False) -> list[Result]:
    """Opening many partitions against listing and opening the same files."""
    count = 500 if quick else PARTITIONS
    with bench_store(LogConfig()) as bench:
        batch = make_batch(1024)
        for number in range(count):
            fill(bench.new_log(TopicPartition("many", number)), batch, 1024)
        bench.reopen()
        print(_cost_in_a_fresh_process(bench, count), file=sys.stderr, flush=True)

        def bare() -> float:
            for number in range(count):
                folder = f"{bench.folder}/data/many-{number}"
                for name in os.listdir(folder):
                    os.stat(f"{folder}/{name}")
                os.close(os.open(f"{folder}/{0:020d}.log", os.O_RDWR))
            return count

        def reopen() -> float:
            bench.open()
            return count

        return [
            interleaved(
                {"clean open": reopen, "list, stat and open": bare},
                title=f"opening {count} partitions",
                unit="partitions",
                baseline="list, stat and open",
                before={"clean open": bench.close},
                rounds=3,
                quick=quick,
            )
        ]


def _cost_in_a_fresh_process(bench: BenchStore, count: int) -> str:
    """Memory per partition, told by a process that has just opened them all."""
    bench.close()
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks.partitions", bench.folder], capture_output=True, text=True, check=True
    )
    bench.open()
    return f"  {count} open partitions: {answer.stdout.strip()}"


def _resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _tell_cost(folder: str) -> None:
    bench = BenchStore(folder=folder)
    before, began = _resident_bytes(), time.perf_counter()
    store = bench.open()
    took, grown = time.perf_counter() - began, _resident_bytes() - before
    with open("/proc/self/maps") as maps:
        index_maps = sum("index" in line for line in maps)
    descriptors = len(os.listdir("/proc/self/fd"))
    print(
        f"{grown / len(store) / 1024:.1f} KiB each, {grown >> 20} MiB in all, {descriptors} descriptors, "
        f"{index_maps} index maps, opened in {took:.2f} s"
    )
    bench.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _tell_cost(sys.argv[1])
    else:
        report(run())
