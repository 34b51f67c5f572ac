"""What is measured of share groups: reading with few and many members, acknowledgements, and a member's death.

Members are the load generator's. They read records of 1 KiB from 16 partitions, of which a single member has all and 64
members share each one among four. `share_consume` accepts records as the Java client does when it polls: with the next
fetch. Both brokers store every acceptance in `__share_group_state` before they answer.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from benchmarks.kafka_race.arena import MB, Arena, Case, Figures, Load, measured
from benchmarks.kafka_race.raw_load import Option, Work
from benchmarks.kafka_race.scoreboard import Measure, Sample
from benchmarks.kafka_race.throughput import BATCH_BYTES, batch_records, fill

GOAL: Final = 1.0
RECORD_BYTES: Final = 1024
PARTITIONS: Final = 16
MEMBERS: Final = (1, 8, 64)
ACKNOWLEDGING_MEMBERS: Final = 16
REDELIVERED_RECORDS: Final = 10
UNREAD_SHARE: Final = 0.25
"""Of what is read, written besides: the last records of a partition are waited for, which is not a rate."""


def share_cases() -> Iterator[Case]:
    """In the order in which a round runs them."""
    for members in MEMBERS:
        name = f"groups share consume C 1 KiB, {members} member{'s'[: members > 1]}"
        yield _case(name, PARTITIONS, _consume(name, members))
    name = f"groups share acknowledge C one record each, {ACKNOWLEDGING_MEMBERS} members"
    yield _case(name, PARTITIONS, _acknowledge(name))
    name = "groups share redelivery C after a member's death"
    yield _case(name, 1, _redelivery(name))


def warm_up(arena: Arena, topic_name: str) -> None:
    """Reading and acknowledging; a group's name is used again and again, and continues where it was."""
    port = arena.broker.address.port
    fill(arena, topic_name, RECORD_BYTES, BATCH_BYTES, 1, 8 * MB)
    options: dict[str, Option] = {"record_bytes": RECORD_BYTES, "name": "warm-up-share"}
    arena.raw.share_consume(port, topic_name, **options, members=2, bytes=4 * MB)
    arena.raw.share_acknowledge(port, topic_name, **options, members=2, requests=500)


def _case(name: str, partitions: int, run: Load) -> Case:
    return Case(name=name, partitions=partitions, run=run, warm_up=warm_up, quick=True)


def filled_bytes(read_bytes: int, partitions: int) -> int:
    """What has to be written so that `read_bytes` can be read without waiting: some more, in whole batches."""
    batch_values = batch_records(RECORD_BYTES) * RECORD_BYTES
    batches = -(-int(read_bytes * (1 + UNREAD_SHARE)) // batch_values)
    return (batches + partitions) * BATCH_BYTES


def consume_figures(name: str, work: Work, broker_cpu_s: float) -> Figures:
    """MB/s of accepted values, and the broker's CPU seconds for each GB of them."""
    rate = Measure(case=name, quantity="MB/s", more_is_better=True, goal=GOAL)
    cost = Measure(case=name, quantity="broker CPU s/GB", more_is_better=False)
    return {
        rate: Sample(value=work.bytes / MB / work.seconds, client_cores=work.client_cores),
        cost: Sample(value=max(broker_cpu_s, 0.01) / (work.bytes / 1e9)),
    }


def acknowledge_figures(name: str, work: Work, broker_cpu_s: float) -> Figures:
    """Acknowledgements per second, and the broker's CPU microseconds for each."""
    rate = Measure(case=name, quantity="acknowledgements/s", more_is_better=True, goal=GOAL)
    cost = Measure(case=name, quantity="broker CPU µs each", more_is_better=False)
    return {
        rate: Sample(value=work.records / work.seconds, client_cores=work.client_cores),
        cost: Sample(value=max(broker_cpu_s, 0.01) * 1e6 / work.records),
    }


def _consume(name: str, members: int) -> Load:
    def run(arena: Arena, topic_name: str) -> Figures:
        size = arena.volumes.share_bytes
        fill(arena, topic_name, RECORD_BYTES, BATCH_BYTES, PARTITIONS, filled_bytes(size, PARTITIONS))
        work = partial(
            arena.raw.share_consume,
            arena.broker.address.port,
            topic_name,
            members=members,
            bytes=size,
            record_bytes=RECORD_BYTES,
            name=topic_name,
        )
        return consume_figures(name, *measured(arena, work))

    return run


def _acknowledge(name: str) -> Load:
    def run(arena: Arena, topic_name: str) -> Figures:
        requests = arena.volumes.acknowledgements
        fill(
            arena, topic_name, RECORD_BYTES, BATCH_BYTES, PARTITIONS, filled_bytes(requests * RECORD_BYTES, PARTITIONS)
        )
        work = partial(
            arena.raw.share_acknowledge,
            arena.broker.address.port,
            topic_name,
            members=ACKNOWLEDGING_MEMBERS,
            requests=requests,
            record_bytes=RECORD_BYTES,
            name=topic_name,
        )
        return acknowledge_figures(name, *measured(arena, work))

    return run


def _redelivery(name: str) -> Load:
    time = Measure(case=name, quantity="ms until another member has its records", more_is_better=False, goal=GOAL)

    def run(arena: Arena, topic_name: str) -> Figures:
        found = arena.raw.share_redelivery(
            arena.broker.address.port,
            topic_name,
            members=2,
            repeats=arena.volumes.deaths,
            batch_records=REDELIVERED_RECORDS,
            name=topic_name,
        )
        return {time: Sample(value=found)}

    return run
