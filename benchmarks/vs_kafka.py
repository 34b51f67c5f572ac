"""Ottla beside Apache Kafka: the same loads on the same machine in the same minutes, as ratios.

    python -m benchmarks.vs_kafka [--quick] [--only WORDS]... [--rounds N] [--json | --markdown]

Needs Java, Maven's cache of Kafka's jars (`tests/compat/prepare` fills it), a C compiler and confluent-kafka. The whole
run takes more than an hour, so `python -m benchmarks` leaves it out; `--quick` is one round with small volumes, and
leaves out groups and transactions, whose names all begin with `coordination`. Five short rounds of these take about
eight minutes:

    python -m benchmarks.vs_kafka --only coordination --quick --rounds 5

How it is kept fair:
- Both brokers have their default settings, Kafka also its script's heap, and keep their logs on the same disk. What is
  not the default, on both: groups rebalance at once, where they would by default wait for more to happen.
- Starts are timed alone, with no other broker on the machine: from the process's birth to the first record taken, on a
  data folder that already holds the topic. The records come from a client that knocks every millisecond. Memory and CPU
  of an idle broker are read then, too.
- Loads run with both brokers alive and one of them idle, so that the two sides of a ratio are seconds apart, not
  minutes; which of them goes first changes from round to round. What the idle one costs is in the table.
- Kafka is measured warm: both get the same mix of requests for some seconds first, and stay up for all rounds.
- Every case has a fresh topic; what is read was written just before, so both read from memory.

A missed goal is a finding, not a failure: the exit status is 1 only when a case could not run.
"""

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.kafka_race.arena import FULL, QUICK, Arena, Case, create_topic, topic
from benchmarks.kafka_race.brokers import RECIPES, Recipe, RunningBroker
from benchmarks.kafka_race.cases import all_cases
from benchmarks.kafka_race.process_usage import cpu_seconds, resident_bytes, resident_peak
from benchmarks.kafka_race.raw_load import RawLoad, first_answer
from benchmarks.kafka_race.scoreboard import Line, Measure, Sample, markdown, score, table

ROUNDS: Final = 5
WARM_UP_S: Final = 15.0
WARM_UP_QUICK_S: Final = 10.0
IDLE_S: Final = 10.0
IDLE_QUICK_S: Final = 3.0
START_TIMEOUT_S: Final = 90
INTERRUPTED: Final = 130
"""The exit status that shells give to what was interrupted."""

START: Final = Measure(case="start", quantity="s to the first record", more_is_better=False, goal=10.0)
IDLE_MEMORY: Final = Measure(case="memory", quantity="MB when idle", more_is_better=False, goal=5.0)
LOAD_MEMORY: Final = Measure(case="memory", quantity="MB at most under load", more_is_better=False, goal=5.0)
IDLE_CPU: Final = Measure(case="idle", quantity="CPU % of a core", more_is_better=False)


@dataclass(slots=True, kw_only=True)
class Samples:
    """What came out so far; a case that failed for one rival counts for neither."""

    taken: dict[Measure, dict[str, list[Sample]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, rival: str, measure: Measure, sample: Sample) -> None:
        """One rival's figure of one round."""
        self.taken[measure][rival].append(sample)

    def lines(self) -> list[Line]:
        """The measures that every rival has, in the order they first came; a round that was cut short is left out."""
        found = []
        for measure, samples in self.taken.items():
            rounds = min(len(samples[recipe.name]) for recipe in RECIPES)
            if rounds and measure.case not in self.failures:
                found.append(score(measure, {name: taken[:rounds] for name, taken in samples.items()}))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """One run: where its files are, how long it takes, what it measures."""

    folder: Path
    raw: RawLoad
    quick: bool
    rounds: int
    cases: Sequence[Case]
    starts: bool
    samples: Samples

    def run(self) -> None:
        """All rounds; fills `samples`."""
        if self.starts:
            self._run_starts()
        if self.cases:
            self._run_loads()

    def _run_starts(self) -> None:
        with contextlib.ExitStack() as stack:
            brokers = {recipe.name: self._first_start(stack, recipe) for recipe in RECIPES}
            for number in range(self.rounds):
                for name in rotated(list(brokers), number):
                    progress(f"round {number + 1} of {self.rounds}: start, {name}")
                    self._time_start(brokers[name])

    def _first_start(self, stack: contextlib.ExitStack, recipe: Recipe) -> RunningBroker:
        """A broker that has run once and holds the topic `start`, and is stopped now."""
        broker = RunningBroker(recipe, self.folder / f"{recipe.name}-start")
        stack.callback(broker.stop)
        broker.start()
        broker.wait_listening()
        create_topic(broker, "start", 1)
        broker.stop()
        return broker

    def _time_start(self, broker: RunningBroker) -> None:
        knocking = self.raw.start_first(broker.address.port, "start", seconds=START_TIMEOUT_S)
        try:
            begun = broker.start()
            self.samples.add(broker.name, START, Sample(value=first_answer(knocking) - begun))
            idle_s = IDLE_QUICK_S if self.quick else IDLE_S
            time.sleep(idle_s / 2)  # Let it settle; then watch it do nothing.
            before = cpu_seconds(broker.pid)
            time.sleep(idle_s)
            used = max(cpu_seconds(broker.pid) - before, 0.01)
            self.samples.add(broker.name, IDLE_CPU, Sample(value=100 * used / idle_s))
            self.samples.add(broker.name, IDLE_MEMORY, Sample(value=resident_bytes(broker.pid) / 1e6))
        finally:
            knocking.kill()
            knocking.wait()
            broker.stop()

    def _run_loads(self) -> None:
        with contextlib.ExitStack() as stack:
            arenas = {recipe.name: self._warm_arena(stack, recipe) for recipe in RECIPES}
            for number in range(self.rounds):
                peaks = dict.fromkeys(arenas, 0)
                for case in of_round(self.cases, number):
                    for name in rotated(list(arenas), number):
                        progress(f"round {number + 1} of {self.rounds}: {case.name}, {name}")
                        peaks[name] = max(peaks[name], self._run_case(arenas[name], case, number))
                for name, peak in peaks.items():
                    self.samples.add(name, LOAD_MEMORY, Sample(value=peak / 1e6))

    def _warm_arena(self, stack: contextlib.ExitStack, recipe: Recipe) -> Arena:
        broker = RunningBroker(recipe, self.folder / f"{recipe.name}-load")
        stack.callback(broker.stop)
        broker.start()
        broker.wait_listening()
        arena = Arena(broker=broker, raw=self.raw, volumes=QUICK if self.quick else FULL, folder=self.folder)
        progress(f"warming up, {recipe.name}")
        for warm_up in dict.fromkeys(case.warm_up for case in self.cases):
            end = time.monotonic() + (WARM_UP_QUICK_S if self.quick else WARM_UP_S)
            with topic(broker, "warm-up", 1):
                while time.monotonic() < end:
                    warm_up(arena, "warm-up")
        return arena

    def _run_case(self, arena: Arena, case: Case, number: int) -> int:
        """The most memory that was seen. A case that fails is not tried again."""
        if case.name in self.samples.failures:
            return 0
        try:
            name = f"case-{self.cases.index(case)}-{number}"
            with topic(arena.broker, name, case.partitions), resident_peak(arena.broker.pid) as memory:
                figures = case.run(arena, name)
        except Exception as error:
            arena.broker.check_alive()
            self.samples.failures[case.name] = f"{arena.broker.name}: {error}"
            progress(f"{case.name} failed on {self.samples.failures[case.name]}")
            return 0
        for measure, sample in figures.items():
            self.samples.add(arena.broker.name, measure, sample)
        return memory.peak_bytes


def rotated(names: list[str], number: int) -> list[str]:
    """The names in the order of a round: another one is first in each."""
    start = number % len(names)
    return names[start:] + names[:start]


def of_round(cases: Sequence[Case], number: int) -> list[Case]:
    """Those that the round of this number, from 0, still has: some have enough of few rounds."""
    return [case for case in cases if case.rounds_max is None or number < case.rounds_max]


def chosen(cases: Sequence[Case], *, only: Sequence[str], quick: bool) -> list[Case]:
    """The cases whose name has one of the words, all without any; a short run has its own choice of them."""
    named = [case for case in cases if not only or any(words in case.name for words in only)]
    return [case for case in named if case.quick] if quick and not only else named


def progress(line: str) -> None:
    """Prints what is done at the moment, on stderr."""
    print(f"  .. {line}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def temporary_folder(beside: Path | None) -> Iterator[Path]:
    """A folder that is gone afterwards, whatever happened in between."""
    folder = Path(tempfile.mkdtemp(prefix="vs-kafka-", dir=beside))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def options_of(arguments: Sequence[str] | None, *, program: str, description: str) -> argparse.Namespace:
    """The options of a race on the command line."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{program}", description=description)
    parser.add_argument("--quick", action="store_true", help="one round, small volumes: shows that it works")
    parser.add_argument("--only", action="append", default=[], metavar="WORDS", help="cases whose name has these words")
    parser.add_argument("--rounds", type=int, help=f"how many rounds (default {ROUNDS}, with --quick 1)")
    parser.add_argument(
        "--folder", type=Path, help="where the brokers' data go meanwhile (default: the temporary folder)"
    )
    parser.add_argument("--list", action="store_true", help="names the cases and ends")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    output.add_argument("--markdown", action="store_true", help="a table for a document")
    return parser.parse_args(arguments)


def _print(options: argparse.Namespace, samples: Samples) -> None:
    lines = samples.lines()
    if options.json:
        print(json.dumps({"lines": [line.as_dict() for line in lines], "failures": samples.failures}))
    else:
        print((markdown if options.markdown else table)(lines), flush=True)
    for name, reason in samples.failures.items():
        print(f"could not run: {name}: {reason}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = options_of(arguments, program="vs_kafka", description="Ottla beside Apache Kafka.")
    cases = chosen(all_cases(), only=options.only, quick=options.quick)
    starts = not options.only or any(words in "start" for words in options.only)
    return run_race(options, cases, starts=starts)


def run_race(options: argparse.Namespace, cases: Sequence[Case], *, starts: bool) -> int:
    """Runs the cases, or only names them, as the options of the command line say; the exit status."""
    if options.list:
        print("\n".join([*(["start"] if starts else []), *(case.name for case in cases)]))
        return 0
    if not cases and not starts:
        print(f"no case has {' or '.join(options.only)} in its name; --list shows them all", file=sys.stderr)
        return 2
    # Either must unwind, so that the brokers are stopped and the folder is removed; a shell may have switched one off.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    samples = Samples()
    with temporary_folder(options.folder) as folder:
        race = Race(
            folder=folder,
            raw=RawLoad(folder),
            quick=options.quick,
            rounds=options.rounds or (1 if options.quick else ROUNDS),
            cases=cases,
            starts=starts,
            samples=samples,
        )
        status = 0
        try:
            race.run()
        except KeyboardInterrupt:
            progress("interrupted; these are the figures so far")
            status = INTERRUPTED
    _print(options, samples)
    return status or (1 if samples.failures else 0)


if __name__ == "__main__":
    sys.exit(main())
