"""Where a case works: a running broker, the loads, how much of them, and a topic for the time of the case.

What the cases are is in `cases.py`, `group_cases.py`, `share_cases.py` and `transaction_cases.py`.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.kafka_race.brokers import RunningBroker
from benchmarks.kafka_race.process_usage import cpu_seconds
from benchmarks.kafka_race.raw_load import RawLoad, Work
from benchmarks.kafka_race.scoreboard import Measure, Sample

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

MB: Final = 1_000_000
ADMIN_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Volumes:
    """How much work each kind of load gets."""

    raw_bytes: int
    client_bytes: int
    client_records_max: int
    small_requests: int
    latency_s: int
    commits: int
    commits_of_many: int
    rebalances: int
    transactions_s: int
    idle_s: int
    share_bytes: int
    acknowledgements: int
    deaths: int


FULL: Final = Volumes(
    raw_bytes=1000 * MB,
    client_bytes=600 * MB,
    client_records_max=2_000_000,
    small_requests=200_000,
    latency_s=15,
    commits=100_000,
    commits_of_many=20_000,
    rebalances=50,
    transactions_s=10,
    idle_s=30,
    share_bytes=400 * MB,
    acknowledgements=20_000,
    deaths=20,
)
QUICK: Final = Volumes(
    raw_bytes=300 * MB,
    client_bytes=100 * MB,
    client_records_max=400_000,
    small_requests=50_000,
    latency_s=5,
    commits=10_000,
    commits_of_many=2_000,
    rebalances=10,
    transactions_s=1,
    idle_s=5,
    share_bytes=100 * MB,
    acknowledgements=4_000,
    deaths=5,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """What a case works with."""

    broker: RunningBroker
    raw: RawLoad
    volumes: Volumes
    folder: Path
    """For what a load needs besides: gone after the run."""


Figures = dict[Measure, Sample]
Load = Callable[[Arena, str], Figures]
WarmUp = Callable[[Arena, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`run` gets the arena and the name of a fresh topic with `partitions` partitions."""

    name: str
    partitions: int
    run: Load
    warm_up: WarmUp
    """What makes a broker ready for it, with the name of a topic; repeated for some seconds before the first round."""
    quick: bool = False
    """Also part of the short run."""
    rounds_max: int | None = None
    """For a case that takes long and whose figures hardly differ from round to round."""


def create_topic(broker: RunningBroker, name: str, partitions: int) -> None:
    """Returns when the broker leads every partition of it: some milliseconds after it was created."""
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import NewTopic, OffsetSpec

    admin = _admin(broker)
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(ADMIN_TIMEOUT_S)
    ends = {TopicPartition(name, number): OffsetSpec.latest() for number in range(partitions)}
    deadline = time.monotonic() + ADMIN_TIMEOUT_S
    while True:
        try:
            for answer in admin.list_offsets(ends, request_timeout=1).values():
                answer.result(ADMIN_TIMEOUT_S)
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise


def _admin(broker: RunningBroker) -> "AdminClient":
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": broker.address.bootstrap, "log_level": 0})


@contextmanager
def topic(broker: RunningBroker, name: str, partitions: int) -> Iterator[None]:
    """A topic for the time of the block."""
    create_topic(broker, name, partitions)
    try:
        yield
    finally:
        admin = _admin(broker)
        admin.delete_topics([name])[name].result(ADMIN_TIMEOUT_S)


def measured(arena: Arena, work: Callable[[], Work]) -> tuple[Work, float]:
    """The work and the CPU seconds that the broker spent on it. What earlier work left to write is written before."""
    os.sync()
    before = cpu_seconds(arena.broker.pid)
    done = work()
    return done, cpu_seconds(arena.broker.pid) - before
