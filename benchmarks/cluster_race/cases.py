"""What is measured on a cluster of three, as a table of cases. Each leaves the cluster whole, as it found it."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final

from benchmarks.cluster_race.clusters import RaceCluster
from benchmarks.cluster_race.failover_load import Write, first_records, librdkafka_writer, ottla_writer, pause_around
from benchmarks.kafka_race import librdkafka_load
from benchmarks.kafka_race.arena import MB, Figures
from benchmarks.kafka_race.scoreboard import Measure, Sample

PARTITIONS: Final = 6
RATE_GOAL: Final = 1.0
SOONER_GOAL: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Volumes:
    """How much work each case gets."""

    small_records: int
    large_records: int
    behind_bytes: int
    many_partitions: int


FULL: Final = Volumes(small_records=2_000_000, large_records=400_000, behind_bytes=400 * MB, many_partitions=1000)
QUICK: Final = Volumes(small_records=300_000, large_records=60_000, behind_bytes=60 * MB, many_partitions=200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`run` gets the cluster, the volumes and a fresh topic's name; `partitions` is 0 for the topic with many."""

    name: str
    partitions: int
    run: Callable[[RaceCluster, Volumes, str], Figures]
    is_load: bool = False
    """Whether the brokers' memory during it counts as memory under load."""


def all_cases() -> list[Case]:
    """In the order in which they run."""
    return [
        Case(name="acks=all, 100 B", partitions=PARTITIONS, run=partial(_produce, 100), is_load=True),
        Case(name="acks=all, 1 KiB", partitions=PARTITIONS, run=partial(_produce, 1024), is_load=True),
        Case(name="leader killed, librdkafka", partitions=1, run=partial(_killed, "librdkafka", librdkafka_writer)),
        Case(name="leader killed, our client", partitions=1, run=partial(_killed, "our client", ottla_writer)),
        Case(name="leader hangs, our client", partitions=1, run=_hanging),
        Case(name="follower behind", partitions=PARTITIONS, run=_catch_up),
        Case(name="many partitions", partitions=0, run=_many_partitions),
    ]


def _produce(record_bytes: int, cluster: RaceCluster, volumes: Volumes, topic: str) -> Figures:
    name = f"acks=all, {record_bytes} B values, librdkafka"
    records = volumes.small_records if record_bytes < 1000 else volumes.large_records
    os.sync()
    used = cluster.cpu_seconds()
    work = librdkafka_load.produce(cluster.bootstrap, topic, records=records, record_bytes=record_bytes, acks="all")
    used = max(cluster.cpu_seconds() - used, 0.01)
    rate = Measure(case=name, quantity="MB/s", more_is_better=True, goal=RATE_GOAL)
    cpu = Measure(case=name, quantity="CPU s/GB of the three", more_is_better=False)
    return {
        rate: Sample(value=work.bytes / MB / work.seconds, client_cores=work.client_cores),
        cpu: Sample(value=used / (work.bytes / 1e9)),
    }


def _killed(
    client: str,
    writer: Callable[[str, str], AbstractContextManager[Write]],
    cluster: RaceCluster,
    volumes: Volumes,
    topic: str,
) -> Figures:
    leader = cluster.brokers[cluster.leaders(topic)[0]]
    with writer(cluster.bootstrap, topic) as write:
        pause = pause_around(write, leader.kill)
    leader.start()
    cluster.wait_in_sync()
    measure = Measure(
        case=f"leader killed, {client}", quantity="s without acks", more_is_better=False, goal=SOONER_GOAL
    )
    return {measure: Sample(value=pause)}


def _hanging(cluster: RaceCluster, volumes: Volumes, topic: str) -> Figures:
    """The cluster cannot know that it is gone for good: its session has to end. librdkafka would wait for a minute."""
    leader = cluster.brokers[cluster.leaders(topic)[0]]
    try:
        with ottla_writer(cluster.bootstrap, topic) as write:
            pause = pause_around(write, leader.pause)
    finally:
        leader.resume()
    cluster.wait_in_sync()
    name = "leader hangs (SIGSTOP), our client"
    measure = Measure(case=name, quantity="s without acks", more_is_better=False, goal=SOONER_GOAL)
    return {measure: Sample(value=pause)}


def _catch_up(cluster: RaceCluster, volumes: Volumes, topic: str) -> Figures:
    """Others go on without it; how long it then takes to have everything, from its start and from its first answer."""
    behind = cluster.brokers[2]
    behind.stop()
    records = volumes.behind_bytes // 1024
    librdkafka_load.produce(cluster.bootstrap, topic, records=records, record_bytes=1024, acks="all")
    os.sync()
    begun = behind.start()
    behind.wait_listening()
    serving = time.monotonic()
    cluster.wait_in_sync(topic)
    now = time.monotonic()
    name = f"follower {volumes.behind_bytes // MB} MB behind"
    rate = Measure(case=name, quantity="MB/s once it listens", more_is_better=True, goal=RATE_GOAL)
    whole = Measure(case=name, quantity="s from its start to in sync", more_is_better=False, goal=SOONER_GOAL)
    cluster.wait_in_sync()
    return {
        rate: Sample(value=volumes.behind_bytes / MB / max(now - serving, 0.001)),
        whole: Sample(value=now - begun),
    }


def _many_partitions(cluster: RaceCluster, volumes: Volumes, topic: str) -> Figures:
    killed = cluster.brokers[cluster.leaders(topic)[0]]
    seconds = first_records(cluster.bootstrap, topic, volumes.many_partitions, killed.kill)
    killed.start()
    cluster.wait_in_sync()
    name = f"broker of {volumes.many_partitions} partitions killed"
    measure = Measure(case=name, quantity="s until all take records", more_is_better=False, goal=SOONER_GOAL)
    return {measure: Sample(value=seconds)}
