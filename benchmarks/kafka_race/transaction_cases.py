"""What is measured of transactions: how many a second, by three clients, and what they cost in throughput.

Version 1 is the protocol in which clients add partitions to a transaction, version 2 the one in which the broker does,
and bumps the producer's epoch at every end. librdkafka speaks the first, Java 4 the second, the load generator both. A
client that is told that its last transaction is not finished yet waits 20 ms before it tries again; the load generator
waits one, so that it is the broker that is measured.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from benchmarks.kafka_race import java_load, librdkafka_load
from benchmarks.kafka_race.arena import MB, Arena, Case, Figures, Load, measured
from benchmarks.kafka_race.raw_load import Work
from benchmarks.kafka_race.scoreboard import Measure, Sample
from benchmarks.kafka_race.throughput import BATCH_BYTES, batch_records, fill

GOAL: Final = 1.0
RECORD_BYTES: Final = 100
FEW: Final = 10
MANY: Final = 1000
JAVA_WARM_UP_S: Final = 1.0
WRITERS: Final = 4
"""That write at once where throughput is measured."""
BATCHES_OF_MEGABYTE: Final = 64
TRANSACTION_MS: Final = 100
THROUGHPUT_ROUNDS_MAX: Final = 3


def transaction_cases() -> Iterator[Case]:
    """In the order in which a round runs them."""
    for version in (2, 1):
        for records, at_once in ((FEW, 1), (FEW, 16), (MANY, 1)):
            name = f"coordination transactions C version {version} of {records:,} records, {at_once} at once"
            yield _case(name, 1, _raw_transactions(name, version, records, at_once))
    for records in (FEW, MANY):
        name = f"coordination transactions librdkafka of {records:,} records"
        yield _case(name, 1, _librdkafka_transactions(name, records))
        name = f"coordination transactions Java of {records:,} records"
        yield _case(name, 1, _java_transactions(name, records))
    name = "coordination throughput C 100 B, transactions of 1 MB"
    yield _case(name, WRITERS, _raw_throughput(name))
    name = f"coordination throughput Java 100 B, transactions of {TRANSACTION_MS} ms"
    yield _case(name, 1, _java_throughput(name), rounds_max=THROUGHPUT_ROUNDS_MAX)


def warm_up(arena: Arena, topic_name: str) -> None:
    """Transactions of both versions."""
    for version in (1, 2):
        arena.raw.transactions(
            arena.broker.address.port,
            topic_name,
            connections=16,
            seconds=1,
            transaction_version=version,
            batch_records=FEW,
            name=f"warm-up-{version}",
        )


def _case(name: str, partitions: int, run: Load, rounds_max: int | None = None) -> Case:
    return Case(name=name, partitions=partitions, run=run, warm_up=warm_up, rounds_max=rounds_max)


def _rate_figures(name: str, work: Work, broker_cpu_s: float | None) -> Figures:
    rate = Measure(case=name, quantity="transactions/s", more_is_better=True, goal=GOAL)
    figures = {rate: Sample(value=work.requests / work.seconds, client_cores=work.client_cores)}
    if broker_cpu_s is not None:
        cost = Measure(case=name, quantity="broker CPU µs each", more_is_better=False)
        figures[cost] = Sample(value=max(broker_cpu_s, 0.01) * 1e6 / work.requests)
    return figures


def _raw_transactions(name: str, version: int, records: int, at_once: int) -> Load:
    batches = -(-records // batch_records(RECORD_BYTES))

    def run(arena: Arena, topic_name: str) -> Figures:
        work = partial(
            arena.raw.transactions,
            arena.broker.address.port,
            topic_name,
            connections=at_once,
            seconds=arena.volumes.transactions_s,
            transaction_version=version,
            transaction_batches=batches,
            batch_records=records // batches,
            record_bytes=RECORD_BYTES,
            name=topic_name,
        )
        return _rate_figures(name, *measured(arena, work))

    return run


def _librdkafka_transactions(name: str, records: int) -> Load:
    def run(arena: Arena, topic_name: str) -> Figures:
        work = librdkafka_load.transactions(
            arena.broker.address.bootstrap,
            topic_name,
            records=records,
            record_bytes=RECORD_BYTES,
            seconds=arena.volumes.transactions_s,
        )
        return _rate_figures(name, work, None)

    return run


def _java_transactions(name: str, records: int) -> Load:
    def run(arena: Arena, topic_name: str) -> Figures:
        work = java_load.transactions(
            arena.folder,
            arena.broker.address.bootstrap,
            topic_name,
            records=records,
            record_bytes=RECORD_BYTES,
            warm_up_s=JAVA_WARM_UP_S,
            seconds=arena.volumes.transactions_s,
        )
        return _rate_figures(name, work, None)

    return run


def _share_figures(name: str, plain: Work, transactional: Work) -> Figures:
    """What transactions leave of the throughput that the same client has without them, and what that is."""
    speeds = [work.bytes / MB / work.seconds for work in (plain, transactional)]
    rate = Measure(case=name, quantity="MB/s", more_is_better=True, goal=GOAL)
    share = Measure(case=name, quantity="% of plain throughput", more_is_better=True)
    return {
        rate: Sample(value=speeds[1], client_cores=transactional.client_cores),
        share: Sample(value=100 * speeds[1] / speeds[0]),
    }


def _raw_throughput(name: str) -> Load:
    def run(arena: Arena, topic_name: str) -> Figures:
        plain, _ = measured(
            arena,
            partial(fill, arena, topic_name, RECORD_BYTES, BATCH_BYTES, WRITERS, arena.volumes.raw_bytes // 2, -1),
        )
        work = partial(
            arena.raw.transactions,
            arena.broker.address.port,
            topic_name,
            partitions=WRITERS,
            connections=WRITERS,
            seconds=arena.volumes.transactions_s,
            transaction_batches=BATCHES_OF_MEGABYTE,
            batch_records=batch_records(RECORD_BYTES),
            record_bytes=RECORD_BYTES,
            name=topic_name,
        )
        transactional, _ = measured(arena, work)
        return _share_figures(name, plain, transactional)

    return run


def _java_throughput(name: str) -> Load:
    def run(arena: Arena, topic_name: str) -> Figures:
        records = arena.volumes.client_records_max
        load = partial(
            java_load.produce,
            arena.broker.address.bootstrap,
            topic_name,
            records=records,
            record_bytes=RECORD_BYTES,
            acks="all",
            warm_up_records=records // 2,
        )
        plain, _ = measured(arena, load)
        transactional, _ = measured(arena, partial(load, transaction_ms=TRANSACTION_MS))
        return _share_figures(name, plain, transactional)

    return run
