"""The data source `ottla` beside Spark's own Kafka connector: reading, writing, and what a small micro-batch costs.

    python -m benchmarks.spark [--quick] [--only read|write|batches] [--count N] [--rounds N] [--json]

Three contenders in one Spark session with two cores, on one machine with both brokers: the connector on Apache Kafka,
`ottla` on Ottla, and `ottla` on Apache Kafka. Spark has the version for which its connector is published
(`spark_race/connector.py`), not necessarily the one that is installed.

How it is kept fair:
- The same records in both brokers, written by the same producer; four partitions; nothing is compressed.
- The same options, as a program has that changes nothing but the format's name; all else by default. Reading only
  values is the exception: there `ottla` is given a schema, which is how it is told.
- They take turns within each round, on warm JVMs and Python workers; a format that reads or writes anything but all
  rows ends the run.
- The sinks are not alike: the connector's delivers at least once, ours exactly once.
"""

import argparse
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.measure import Result
from benchmarks.spark_race.connector import SPARK_VERSION
from benchmarks.spark_race.ground import prepared_ground
from benchmarks.spark_race.micro_batches import micro_batch_races
from benchmarks.spark_race.reads import read_races
from benchmarks.spark_race.writes import write_races

COUNT: Final = 10_000_000
COUNT_QUICK: Final = 200_000
ROUNDS: Final = 5
KIB_SHARE: Final = 5
"""Records of 1 KiB are that many times fewer: they must fit into the memory that the machine keeps files in."""
WRITE_SHARE: Final = 5
"""Each round writes that many times fewer than are read: what was written stays until the end."""
BATCHES: Final = 40
BATCHES_QUICK: Final = 12
SIZES: Final = {100: 1, 1024: KIB_SHARE}
PARTS: Final = ("read", "write", "batches")


def races(parts: Sequence[str], count: int, *, rounds: int, quick: bool) -> Iterator[Result]:
    """Those parts of the race, with `count` records of 100 bytes; each result as soon as it is there."""
    with prepared_ground() as ground:
        for size, share in SIZES.items():
            if "read" in parts:
                topic = f"read-{size}"
                ground.fill(topic, size, count // share)
                yield from read_races(ground, topic, size, count // share, rounds=rounds, quick=quick)
            if "write" in parts:
                yield from write_races(ground, size, count // share // WRITE_SHARE, rounds=rounds, quick=quick)
        if "batches" in parts:
            yield from micro_batch_races(ground, BATCHES_QUICK if quick else BATCHES, rounds=rounds, quick=quick)


def run(quick: bool = False) -> list[Result]:
    """All parts."""
    return list(races(PARTS, COUNT_QUICK if quick else COUNT, rounds=ROUNDS, quick=quick))


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description="Beside Spark's own connector.")
    parser.add_argument("--quick", action="store_true", help="few records and rounds: shows that it works")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; may be given more than once")
    parser.add_argument("--count", type=int, help=f"records of 100 bytes (default {COUNT:,}, quick {COUNT_QUICK:,})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how often each is measured (default {ROUNDS})")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output instead of tables")
    options = parser.parse_args(arguments)
    count = options.count or (COUNT_QUICK if options.quick else COUNT)
    # SIGTERM ends brokers and Spark, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    found = []
    if not options.json:
        print(f"Spark and connector {SPARK_VERSION}, {count:,} records of 100 B", flush=True)
    for result in races(options.only or PARTS, count, rounds=options.rounds, quick=options.quick):
        found.append(result.as_dict())
        if not options.json:
            print(f"\n{result.table()}", flush=True)
    if options.json:
        print(json.dumps({"spark": SPARK_VERSION, "count": count, "results": found}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
