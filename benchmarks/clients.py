"""Python clients beside each other, on the same broker in the same minutes: records per second, and CPU per million.

    python -m benchmarks.clients [--quick] [--target ottla|kafka] [--json]

confluent-kafka, kafka-python and aiokafka against Ottla's clients, record by record and as Arrow tables; sending and
reading, 100 B and 1 KiB values, 8-byte keys over four partitions. And, as what no client can surpass, the same bytes by
system calls alone (`client_race/raw_calls.py`).

How it is kept fair:
- All get the same batch size and linger, acknowledgement by all replicas and idempotence, and the same partitioner;
  all check checksums; none has a group. Arrow sends batches as large as a request may be: that is its point.
- Clients take turns, one open at a time. Connecting is not timed; a consumer's first fetch is. The quicker ones get
  more records, so that all run for about as long.
- CPU is that of the client's process, all threads, without the broker's, which runs beside on the same machine.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.client_race.other_clients import (
    AiokafkaConsumer,
    AiokafkaProducer,
    ConfluentConsumer,
    ConfluentProducer,
    KafkaPythonConsumer,
    KafkaPythonProducer,
)
from benchmarks.client_race.ottla_clients import (
    ARROW_SHARE,
    ArrowConsumer,
    ArrowProducer,
    OttlaAsyncConsumer,
    OttlaAsyncProducer,
    OttlaConsumer,
    OttlaProducer,
)
from benchmarks.client_race.raw_calls import RawReader, RawSender
from benchmarks.client_race.session import PARTITIONS, Lane, Session
from benchmarks.kafka_race.arena import create_topic
from benchmarks.kafka_race.brokers import RECIPES, RunningBroker
from benchmarks.measure import Goal, Result, interleaved

PRODUCERS: Final = (
    ConfluentProducer,
    KafkaPythonProducer,
    AiokafkaProducer,
    OttlaProducer,
    OttlaAsyncProducer,
    ArrowProducer,
    RawSender,
)
CONSUMERS: Final = (
    ConfluentConsumer,
    KafkaPythonConsumer,
    AiokafkaConsumer,
    OttlaConsumer,
    OttlaAsyncConsumer,
    ArrowConsumer,
    RawReader,
)
GOALS: Final = (
    Goal(rival="ottla", at_least=3.0, against="kafka-python"),
    Goal(rival="ottla", at_least=1.0, against="aiokafka"),
    Goal(rival="ottla async", at_least=1.0, against="aiokafka"),
    Goal(rival="ottla arrow", at_least=5.0, against="confluent-kafka"),
)
GOALS_BY_SIZE: Final = {1024: (Goal(rival="ottla arrow", at_least=0.5, against="raw calls"),)}
"""Where most of the time is the system's own, five times as fast as others may be more than there is (decision 9)."""
RECORDS: Final = {100: 40_000, 1024: 8_000}
"""For the slowest, by the size of the values."""
RECORDS_QUICK: Final = {100: 10_000, 1024: 3_000}
TARGETS: Final = {recipe.name: recipe for recipe in RECIPES}


@dataclass(slots=True)
class Stage:
    """One client at a time, and the CPU that each took."""

    lane: Lane
    count: int
    cpu_s_per_million: dict[str, list[float]] = field(default_factory=dict)
    _open: Session | None = None

    def enter(self, kind: type[Session]) -> None:
        """The next client, connected; the last one is gone."""
        self.leave()
        session = kind(self.lane)
        session.open()
        self._open = session

    def perform(self, kind: type[Session]) -> float:
        """Its work; how many records."""
        if self._open is None:
            raise RuntimeError("no client is open")
        count = self.count * kind.share
        before = time.process_time()
        self._open.work(count)
        used = (time.process_time() - before) * 1e6 / count
        self.cpu_s_per_million.setdefault(kind.name, []).append(used)
        return count

    def leave(self) -> None:
        """Closes the client that is open, if any."""
        session, self._open = self._open, None
        if session is not None:
            session.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """One comparison: the rates, and the CPU seconds for a million records, medians without the first round."""

    result: Result
    cpu: dict[str, float]

    def table(self) -> str:
        """For people."""
        cpu = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.cpu.items())
        return f"{self.result.table()}\n  CPU s per million records: {cpu}"


def race(title: str, kinds: Sequence[type[Session]], lane: Lane, count: int, *, quick: bool) -> Race:
    """All of these clients, in turns."""
    stage = Stage(lane, count)
    try:
        result = interleaved(
            {kind.name: partial(stage.perform, kind) for kind in kinds},
            title=title,
            unit="records",
            baseline="confluent-kafka",
            goals=(*GOALS, *GOALS_BY_SIZE.get(len(lane.value), ())),
            before={kind.name: partial(stage.enter, kind) for kind in kinds},
            rounds=5,
            quick=quick,
        )
    finally:
        stage.leave()
    return Race(
        result=result, cpu={name: statistics.median(taken[1:]) for name, taken in stage.cpu_s_per_million.items()}
    )


def races(target: str, *, quick: bool) -> list[Race]:
    """Sending and reading, for each size."""
    found = []
    with _broker(target) as broker:
        for size, count in (RECORDS_QUICK if quick else RECORDS).items():
            value = bytes(index * 7 % 251 for index in range(size))
            sent, read = (
                Lane(bootstrap=broker.address.bootstrap, topic=f"{what}-{size}", value=value)
                for what in ("sent", "read")
            )
            for lane in (sent, read):
                create_topic(broker, lane.topic, PARTITIONS)
            found.append(race(f"send, {size} B, to {target}", PRODUCERS, sent, count, quick=quick))
            filler = ArrowProducer(read)
            filler.open()
            filler.work(count * ARROW_SHARE)
            filler.close()
            found.append(race(f"read, {size} B, from {target}", CONSUMERS, read, count, quick=quick))
    return found


@contextmanager
def _broker(target: str) -> Iterator[RunningBroker]:
    folder = Path(tempfile.mkdtemp(prefix="ottla-clients-"))
    broker = RunningBroker(TARGETS[target], folder / target)
    try:
        broker.start()
        broker.wait_listening()
        yield broker
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def run(quick: bool = False) -> list[Result]:
    """The rates on Ottla's broker."""
    return [each.result for each in races("ottla", quick=quick)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clients", description="Python clients, compared.")
    parser.add_argument("--quick", action="store_true", help="few rounds: shows that it works, not how fast it is")
    parser.add_argument("--target", choices=sorted(TARGETS), default="ottla", help="which broker")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output instead of tables")
    options = parser.parse_args(arguments)
    found = races(options.target, quick=options.quick)
    if options.json:
        print(json.dumps([{**each.result.as_dict(), "cpu_s_per_million": each.cpu} for each in found], indent=2))
    else:
        print("\n\n".join(each.table() for each in found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
