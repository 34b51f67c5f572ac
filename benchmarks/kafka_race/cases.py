"""What is measured of producing and consuming: the table of cases, each a load on one broker that returns samples.

A case makes its own topic, does its preparation outside the measured window, and gives the same measures for either
rival. Volumes are bytes, not seconds, so that both write and read the same; they stay below what the kernel keeps in
memory before it makes writers wait for the disk. Groups and transactions are in
`group_cases.py` and `transaction_cases.py`. How rounds and
brokers take turns is `vs_kafka.py`'s duty.
"""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from benchmarks.kafka_race import java_load, librdkafka_load
from benchmarks.kafka_race.arena import MB, Arena, Case, Figures, Load, Volumes, measured
from benchmarks.kafka_race.group_cases import group_cases
from benchmarks.kafka_race.raw_load import Latency
from benchmarks.kafka_race.scoreboard import Measure, Sample
from benchmarks.kafka_race.throughput import BATCH_BYTES, batch_records, fill, throughput
from benchmarks.kafka_race.transaction_cases import transaction_cases

ACKS: Final = {"1": 1, "all": -1}

SMALL_GOAL: Final = 2.0
LATENCY_GOAL: Final = 1.0


def _raw_produce(name: str, record_bytes: int, acks: str, batch_bytes: int, partitions: int) -> Load:
    def run(arena: Arena, topic_name: str) -> Figures:
        work = partial(
            fill, arena, topic_name, record_bytes, batch_bytes, partitions, arena.volumes.raw_bytes, ACKS[acks]
        )
        return throughput(name, *measured(arena, work), judged_cpu=True)

    return run


def _small_requests(name: str, connections: int, in_flight: int, acks: str) -> Load:
    requests = Measure(case=name, quantity="requests/s", more_is_better=True, goal=SMALL_GOAL)
    cost = Measure(case=name, quantity="broker CPU µs each", more_is_better=False)

    def run(arena: Arena, topic_name: str) -> Figures:
        work = partial(
            arena.raw.produce,
            arena.broker.address.port,
            topic_name,
            connections=connections,
            in_flight=in_flight,
            acks=ACKS[acks],
            requests=arena.volumes.small_requests,
        )
        done, cpu_s = measured(arena, work)
        return {
            requests: Sample(value=done.requests / done.seconds, client_cores=done.client_cores),
            cost: Sample(value=max(cpu_s, 0.01) * 1e6 / done.requests),
        }

    return run


def _raw_fetch(name: str, partitions: int, connections: int) -> Load:
    def run(arena: Arena, topic_name: str) -> Figures:
        size = arena.volumes.raw_bytes
        fill(arena, topic_name, 1024, BATCH_BYTES, partitions, size)
        work = partial(
            arena.raw.fetch,
            arena.broker.address.port,
            topic_name,
            partitions=partitions,
            connections=connections,
            bytes=3 * size,
        )
        return throughput(name, *measured(arena, work), judged_cpu=True)

    return run


def _client_records(volumes: Volumes, record_bytes: int) -> int:
    return min(volumes.client_bytes // record_bytes, volumes.client_records_max)


def _librdkafka_produce(name: str, record_bytes: int, acks: str) -> Load:
    def run(arena: Arena, topic_name: str) -> Figures:
        work = partial(
            librdkafka_load.produce,
            arena.broker.address.bootstrap,
            topic_name,
            records=_client_records(arena.volumes, record_bytes),
            record_bytes=record_bytes,
            acks=acks,
        )
        return throughput(name, *measured(arena, work), judged_cpu=False)

    return run


def _librdkafka_consume(name: str, record_bytes: int, partitions: int) -> Load:
    def run(arena: Arena, topic_name: str) -> Figures:
        records = _client_records(arena.volumes, record_bytes)
        size = records * BATCH_BYTES // batch_records(record_bytes) + partitions * BATCH_BYTES
        filled = fill(arena, topic_name, record_bytes, BATCH_BYTES, partitions, size)
        work = partial(
            librdkafka_load.consume,
            arena.broker.address.bootstrap,
            topic_name,
            partitions=partitions,
            records=min(records, filled.records),
        )
        return throughput(name, *measured(arena, work), judged_cpu=False)

    return run


def _java_produce(name: str, record_bytes: int, acks: str) -> Load:
    def run(arena: Arena, topic_name: str) -> Figures:
        records = _client_records(arena.volumes, record_bytes)
        work = partial(
            java_load.produce,
            arena.broker.address.bootstrap,
            topic_name,
            records=records,
            record_bytes=record_bytes,
            acks=acks,
            warm_up_records=records // 2,
        )
        figures = throughput(name, *measured(arena, work), judged_cpu=False)
        # The broker's CPU time includes the tool's warm-up, its bytes do not: that quotient would be wrong.
        return {measure: sample for measure, sample in figures.items() if "CPU" not in measure.quantity}

    return run


def _latency_figures(name: str, found: Latency) -> Figures:
    def measure(quantity: str, goal: float | None) -> Measure:
        return Measure(case=name, quantity=quantity, more_is_better=False, goal=goal)

    return {
        measure("p50 ms", None): Sample(value=found.p50_ms),
        measure("p99 ms", LATENCY_GOAL): Sample(value=found.p99_ms),
    }


def _raw_latency(name: str) -> Load:
    def run(arena: Arena, topic_name: str) -> Figures:
        os.sync()
        port, seconds = arena.broker.address.port, arena.volumes.latency_s
        return _latency_figures(name, arena.raw.latency(port, topic_name, rate=1000, seconds=seconds))

    return run


def _librdkafka_latency(name: str) -> Load:
    def run(arena: Arena, topic_name: str) -> Figures:
        os.sync()
        bootstrap, seconds = arena.broker.address.bootstrap, arena.volumes.latency_s
        found = librdkafka_load.latency(bootstrap, topic_name, rate=1000, seconds=seconds, record_bytes=100)
        return _latency_figures(name, found)

    return run


def _case(name: str, partitions: int, run: Load, *, quick: bool) -> Case:
    return Case(name=name, partitions=partitions, run=run, warm_up=warm_up, quick=quick)


def _size_words(size: int) -> str:
    return {100: "100 B", 1024: "1 KiB"}[size]


def _partition_words(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def _produce_cases() -> Iterator[Case]:
    """Every client against every record size, acks and number of partitions."""
    makers: Mapping[str, Callable[[str, int, str, int], Load]] = {
        "C": lambda name, size, acks, partitions: _raw_produce(name, size, acks, BATCH_BYTES, partitions),
        "librdkafka": lambda name, size, acks, _: _librdkafka_produce(name, size, acks),
        "Java": lambda name, size, acks, _: _java_produce(name, size, acks),
    }
    for client, make in makers.items():
        for size, acks, partitions in itertools.product((100, 1024), ACKS, (1, 16)):
            name = f"produce {client} {_size_words(size)} acks={acks} {_partition_words(partitions)}"
            quick = (size, acks, partitions) in ((100, "1", 1), (1024, "all", 16))
            yield _case(name=name, partitions=partitions, run=make(name, size, acks, partitions), quick=quick)
    name = "produce C 1 KiB acks=1 1 partition, batches of 512 KiB"
    yield _case(name=name, partitions=1, run=_raw_produce(name, 1024, "1", 512 * 1024, 1), quick=True)


def _consume_cases() -> Iterator[Case]:
    for partitions, connections in ((1, 1), (16, 1), (16, 4)):
        name = f"consume C 1 KiB {_partition_words(partitions)}, {connections} connection{'s'[: connections > 1]}"
        yield _case(name=name, partitions=partitions, run=_raw_fetch(name, partitions, connections), quick=True)
    for size, partitions in itertools.product((100, 1024), (1, 16)):
        name = f"consume librdkafka {_size_words(size)} {_partition_words(partitions)}"
        run = _librdkafka_consume(name, size, partitions)
        yield _case(name=name, partitions=partitions, run=run, quick=size == 1024)


def _small_cases() -> Iterator[Case]:
    for connections, in_flight, acks in ((4, 5, "1"), (4, 5, "all"), (16, 1, "1"), (1, 1, "1")):
        name = f"small requests C {connections} x {in_flight} in flight acks={acks}"
        yield _case(name=name, partitions=1, run=_small_requests(name, connections, in_flight, acks), quick=acks == "1")


def all_cases() -> list[Case]:
    """In the order in which a round runs them."""
    raw, client = "latency C 1,000 records/s", "latency librdkafka 1,000 records/s"
    return [
        *_small_cases(),
        *_produce_cases(),
        *_consume_cases(),
        _case(name=raw, partitions=1, run=_raw_latency(raw), quick=True),
        _case(name=client, partitions=1, run=_librdkafka_latency(client), quick=True),
        *group_cases(),
        *transaction_cases(),
    ]


def warm_up(arena: Arena, topic_name: str) -> None:
    """A mix of all kinds of requests: enough, repeated for some seconds, for a JVM to have compiled its hot paths."""
    port = arena.broker.address.port
    arena.raw.produce(port, topic_name, connections=4, in_flight=5, requests=20_000)
    fill(arena, topic_name, 1024, BATCH_BYTES, 1, 50 * MB)
    arena.raw.fetch(port, topic_name, bytes=200 * MB)
