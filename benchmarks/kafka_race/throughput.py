"""Filling topics with batches, and the figures of loads that move bytes; for the cases of every kind."""

from typing import Final

from benchmarks.kafka_race.arena import MB, Arena, Figures
from benchmarks.kafka_race.raw_load import Work
from benchmarks.kafka_race.scoreboard import Measure, Sample

BATCH_BYTES: Final = 16 * 1024
"""The Java producer's default."""
RATE_GOAL: Final = 1.5
CPU_GOAL: Final = 2.0


def throughput(name: str, work: Work, broker_cpu_s: float, *, judged_cpu: bool) -> Figures:
    """MB/s, records/s and, where the load is light enough to tell, the broker's CPU seconds per GB."""
    megabytes, records = (
        Measure(case=name, quantity="MB/s", more_is_better=True, goal=RATE_GOAL),
        Measure(case=name, quantity="records/s", more_is_better=True),
    )
    cpu = Measure(case=name, quantity="broker CPU s/GB", more_is_better=False, goal=CPU_GOAL if judged_cpu else None)
    return {
        megabytes: Sample(value=work.bytes / MB / work.seconds, client_cores=work.client_cores),
        records: Sample(value=work.records / work.seconds, client_cores=work.client_cores),
        # The kernel counts CPU time in hundredths: less than one is as good as one.
        cpu: Sample(value=max(broker_cpu_s, 0.01) / (work.bytes / 1e9)),
    }


def batch_records(record_bytes: int, batch_bytes: int = BATCH_BYTES) -> int:
    """How many records of that size a batch of about `batch_bytes` has; each costs some bytes besides its value."""
    return max(1, (batch_bytes - 61) // (record_bytes + 10))


def fill(
    arena: Arena, topic_name: str, record_bytes: int, batch_bytes: int, partitions: int, size: int, acks: int = 1
) -> Work:
    """Writes about `size` bytes over the partitions, with the load generator."""
    return arena.raw.produce(
        arena.broker.address.port,
        topic_name,
        partitions=partitions,
        connections=4,
        in_flight=5,
        batch_records=batch_records(record_bytes, batch_bytes),
        record_bytes=record_bytes,
        acks=acks,
        requests=max(1, size // batch_bytes),
    )
