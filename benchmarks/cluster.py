"""Three Ottla brokers beside three of Apache Kafka: the same loads and faults on the same machine, as ratios.

    python -m benchmarks.cluster [--quick] [--only WORDS]... [--rounds N] [--zookeeper] [--json | --markdown]

Needs Java, Maven's cache of Kafka's jars (`tests/compat/prepare` fills it), confluent-kafka and 6 GB of memory; with
`--zookeeper`, also PySpark, whose jars have ZooKeeper's server. Three rounds take about half an hour, so
`python -m benchmarks` leaves it out; `--quick` is one round with small volumes.

How it is kept fair:
- Topics have three replicas, and two must have what is acknowledged. All else is each one's default, also how long a
  silent broker is taken to live (9 s with both). Kafka's brokers are their own controllers, as in its quick start, and
  have its script's heap; Ottla's share a file, or use a ZooKeeper ensemble of three, which is not in its memory.
- Both clusters are alive all the time and one of them is idle, so that the two sides of a ratio are seconds apart;
  which of them goes first changes from round to round.
- A leader is killed with SIGKILL, and the pause is what a client sees that writes one record after the other. Ottla's
  brokers see a process of their own machine die, as these do; a machine that dies is noticed as one that hangs is.
- Memory is proportional (PSS): what the brokers of a cluster share counts once.

A missed goal is a finding, not a failure: the exit status is 1 only when a case could not run.
"""

import argparse
import contextlib
import json
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.cluster_race.cases import FULL, QUICK, Case, Volumes, all_cases
from benchmarks.cluster_race.clusters import RaceCluster, kafka_cluster, ottla_cluster
from benchmarks.cluster_race.memory import proportional_bytes, proportional_peak
from benchmarks.kafka_race import librdkafka_load
from benchmarks.kafka_race.scoreboard import Measure, Sample, markdown, table
from benchmarks.vs_kafka import INTERRUPTED, Samples, progress, rotated, temporary_folder

ROUNDS: Final = 3
SETTLE_S: Final = 5.0
WARM_RECORDS: Final = 200_000
ZOOKEEPER_TICK_MS: Final = 1000

IDLE_MEMORY: Final = Measure(case="memory of three", quantity="MB when idle", more_is_better=False, goal=1.0)
LOAD_MEMORY: Final = Measure(case="memory of three", quantity="MB at most under load", more_is_better=False, goal=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRace:
    """One run: the clusters are started once and live through all rounds."""

    folder: Path
    rounds: int
    cases: Sequence[Case]
    volumes: Volumes
    zookeeper: bool
    samples: Samples

    def run(self) -> None:
        """All rounds; fills `samples`."""
        with contextlib.ExitStack() as stack:
            clusters = {each.name: each for each in self._clusters(stack)}
            for number in range(self.rounds):
                peaks = dict.fromkeys(clusters, 0)
                for case in self.cases:
                    for name in rotated(list(clusters), number):
                        progress(f"round {number + 1} of {self.rounds}: {case.name}, {name}")
                        peaks[name] = max(peaks[name], self._run_case(clusters[name], case, number))
                for name, peak in peaks.items():
                    if peak:
                        self.samples.add(name, LOAD_MEMORY, Sample(value=peak / 1e6))

    def _clusters(self, stack: contextlib.ExitStack) -> list[RaceCluster]:
        store = None
        if self.zookeeper:
            from tests.cluster.zookeeper import ZooKeeperEnsemble

            ensemble = ZooKeeperEnsemble(self.folder / "zookeeper", 3, tick_ms=ZOOKEEPER_TICK_MS)
            store = f"zookeeper://{stack.enter_context(ensemble).servers}/ottla"
        found = [kafka_cluster(self.folder), ottla_cluster(self.folder, store)]
        for cluster in found:
            progress(f"starting three brokers, {cluster.name}")
            stack.callback(cluster.stop)
            cluster.start()
        time.sleep(SETTLE_S)  # Idle is what they are when nothing of their start goes on any more.
        for cluster in found:
            self.samples.add(cluster.name, IDLE_MEMORY, Sample(value=proportional_bytes(cluster.pids) / 1e6))
        for cluster in found:
            progress(f"warming up, {cluster.name}")
            with cluster.topic("warm-up", 6):
                librdkafka_load.produce(
                    cluster.bootstrap, "warm-up", records=WARM_RECORDS, record_bytes=100, acks="all"
                )
        return found

    def _run_case(self, cluster: RaceCluster, case: Case, number: int) -> int:
        """The most memory that was seen, 0 if it does not count. A case that fails is not tried again."""
        if case.name in self.samples.failures:
            return 0
        try:
            name = f"case-{self.cases.index(case)}-{number}"
            with contextlib.ExitStack() as stack:
                stack.enter_context(cluster.topic(name, case.partitions or self.volumes.many_partitions))
                memory = stack.enter_context(proportional_peak(cluster.pids)) if case.is_load else None
                figures = case.run(cluster, self.volumes, name)
        except Exception as error:
            cluster.check_alive()
            self.samples.failures[case.name] = f"{cluster.name}: {error!r}"
            progress(f"{case.name} failed on {self.samples.failures[case.name]}")
            return 0
        for measure, sample in figures.items():
            self.samples.add(cluster.name, measure, sample)
        return 0 if memory is None else memory.peak_bytes


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster", description="Clusters of three, beside Kafka."
    )
    parser.add_argument("--quick", action="store_true", help="one round, small volumes: shows that it works")
    parser.add_argument("--only", action="append", default=[], metavar="WORDS", help="cases whose name has these words")
    parser.add_argument("--rounds", type=int, help=f"how many rounds (default {ROUNDS}, with --quick 1)")
    parser.add_argument("--zookeeper", action="store_true", help="Ottla's metadata in ZooKeeper, not in a file")
    parser.add_argument("--folder", type=Path, help="where the data go meanwhile (default: the temporary folder)")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    output.add_argument("--markdown", action="store_true", help="a table for a document")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = _options(arguments)
    cases = [each for each in all_cases() if not options.only or any(words in each.name for words in options.only)]
    if not cases:
        names = ", ".join(each.name for each in all_cases())
        print(f"no case has {' or '.join(options.only)} in its name; there are {names}", file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    samples, status = Samples(), 0
    with temporary_folder(options.folder) as folder:
        race = ClusterRace(
            folder=folder,
            rounds=options.rounds or (1 if options.quick else ROUNDS),
            cases=cases,
            volumes=QUICK if options.quick else FULL,
            zookeeper=options.zookeeper,
            samples=samples,
        )
        try:
            race.run()
        except KeyboardInterrupt:
            progress("interrupted; these are the figures so far")
            status = INTERRUPTED
    lines = samples.lines()
    if options.json:
        print(json.dumps({"lines": [line.as_dict() for line in lines], "failures": samples.failures}))
    else:
        print((markdown if options.markdown else table)(lines), flush=True)
    for name, reason in samples.failures.items():
        print(f"could not run: {name}: {reason}", file=sys.stderr)
    return status or (1 if samples.failures else 0)


if __name__ == "__main__":
    sys.exit(main())
