"""What is measured of groups: rebalances, commits, what idle groups cost, and consuming as a member.

Members are the load generator's, so that it is the broker that is measured and not fifty clients. The goal is Kafka's
own figure everywhere. Transactions are in `transaction_cases.py`.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from benchmarks.kafka_race import java_load
from benchmarks.kafka_race.arena import Arena, Case, Figures, Load, measured
from benchmarks.kafka_race.process_usage import cpu_seconds, resident_bytes
from benchmarks.kafka_race.raw_load import LOAD_TIMEOUT_S, LoadError, Rebalances
from benchmarks.kafka_race.scoreboard import Measure, Sample
from benchmarks.kafka_race.throughput import BATCH_BYTES, fill, throughput

GOAL: Final = 1.0
MEMBERS: Final = 50
PARTITIONS_OF_MANY: Final = 50
IDLE_GROUPS: Final = 1000
IDLE_OFFSETS: Final = 10
IDLE_ROUNDS_MAX: Final = 2
"""Watching brokers do nothing takes long, and shows the same each time."""


def group_cases() -> Iterator[Case]:
    """In the order in which a round runs them."""
    for kind, load in REBALANCE_LOADS.items():
        name = f"coordination rebalance C {kind}, {MEMBERS} members"
        yield _case(name, 2 * MEMBERS, _rebalance(name, load))
    for connections, in_flight in ((1, 32), (16, 1)):
        for partitions in (1, PARTITIONS_OF_MANY):
            words = "1 partition" if partitions == 1 else f"{partitions} partitions"
            name = f"coordination commit C {connections} x {in_flight} in flight, {words}"
            yield _case(name, partitions, _commit(name, connections, in_flight, partitions))
    for words, run in (("a member each", _idle_members), ("only offsets", _idle_offsets)):
        name = f"coordination idle C {IDLE_GROUPS:,} groups, {words}"
        yield _case(name, IDLE_OFFSETS, run(name), rounds_max=IDLE_ROUNDS_MAX)
    for kind, protocol in (("classic", "classic"), ("server-side", "consumer")):
        name = f"coordination consume Java 100 B by group, {kind}"
        yield _case(name, 16, _consume_by_group(name, protocol))


def warm_up(arena: Arena, topic_name: str) -> None:
    """Commits and rebalances of both kinds."""
    port = arena.broker.address.port
    arena.raw.commit(port, topic_name, requests=5_000, connections=16, groups=16, in_flight=2, name="warm-up")
    arena.raw.rebalance(port, topic_name, repeats=5, name="warm-up-classic")
    arena.raw.consumer_group(port, topic_name, repeats=1, members=2, name="warm-up-server-side")


def _case(name: str, partitions: int, run: Load, rounds_max: int | None = None) -> Case:
    return Case(name=name, partitions=partitions, run=run, warm_up=warm_up, rounds_max=rounds_max)


def _classic(arena: Arena, topic_name: str) -> Rebalances:
    repeats = arena.volumes.rebalances
    return arena.raw.rebalance(arena.broker.address.port, topic_name, members=MEMBERS, repeats=repeats, name=topic_name)


def _server_side(arena: Arena, topic_name: str) -> Rebalances:
    return arena.raw.consumer_group(
        arena.broker.address.port,
        topic_name,
        members=MEMBERS,
        partitions=2 * MEMBERS,
        repeats=max(1, arena.volumes.rebalances // 5),
        name=topic_name,
    )


REBALANCE_LOADS: Final[dict[str, Callable[[Arena, str], Rebalances]]] = {
    "classic": _classic,
    "server-side": _server_side,
}


def _rebalance(name: str, load: Callable[[Arena, str], Rebalances]) -> Load:
    def milliseconds(quantity: str) -> Measure:
        return Measure(case=name, quantity=quantity, more_is_better=False, goal=GOAL)

    cost = Measure(case=name, quantity="broker CPU ms, all join, one leaves and joins", more_is_better=False)

    def run(arena: Arena, topic_name: str) -> Figures:
        before = cpu_seconds(arena.broker.pid)
        found = load(arena, topic_name)
        used = max(cpu_seconds(arena.broker.pid) - before, 0.01)
        return {
            milliseconds("ms until all that joined have partitions"): Sample(value=found.formed_ms),
            milliseconds("ms after one left"): Sample(value=found.left_ms),
            milliseconds("ms after one joined"): Sample(value=found.joined_ms),
            cost: Sample(value=1e3 * used / found.repeats),
        }

    return run


def _commit(name: str, connections: int, in_flight: int, partitions: int) -> Load:
    rate = Measure(case=name, quantity="commits/s", more_is_better=True, goal=GOAL)
    cost = Measure(case=name, quantity="broker CPU µs each", more_is_better=False)

    def run(arena: Arena, topic_name: str) -> Figures:
        work = partial(
            arena.raw.commit,
            arena.broker.address.port,
            topic_name,
            connections=connections,
            groups=connections,
            in_flight=in_flight,
            partitions=partitions,
            requests=arena.volumes.commits if partitions == 1 else arena.volumes.commits_of_many,
            name=topic_name,
        )
        done, cpu_s = measured(arena, work)
        return {
            rate: Sample(value=done.requests / done.seconds, client_cores=done.client_cores),
            cost: Sample(value=max(cpu_s, 0.01) * 1e6 / done.requests),
        }

    return run


def _idle_figures(name: str, arena: Arena, wait: Callable[[], object]) -> Figures:
    """What the broker uses while `wait` lasts."""
    begun, before = time.monotonic(), cpu_seconds(arena.broker.pid)
    wait()
    seconds, used = time.monotonic() - begun, cpu_seconds(arena.broker.pid) - before
    return {
        Measure(case=name, quantity="CPU % of a core", more_is_better=False, goal=GOAL): Sample(
            value=100 * max(used, 0.01) / seconds
        ),
        Measure(case=name, quantity="MB", more_is_better=False, goal=GOAL): Sample(
            value=resident_bytes(arena.broker.pid) / 1e6
        ),
    }


def _idle_members(name: str) -> Load:
    def run(arena: Arena, topic_name: str) -> Figures:
        load = arena.raw.start_idle_groups(
            arena.broker.address.port, topic_name, groups=IDLE_GROUPS, seconds=arena.volumes.idle_s, name="idle"
        )
        try:
            _printed_line(load)
            figures = _idle_figures(name, arena, lambda: _printed_line(load))
            if load.wait(LOAD_TIMEOUT_S) != 0:
                raise LoadError(_complaint(load))
            return figures
        finally:
            load.kill()
            load.communicate()

    return run


def _printed_line(load: "subprocess.Popen[str]") -> str:
    line = load.stdout.readline() if load.stdout else ""
    if not line:
        raise LoadError(_complaint(load))
    return line


def _complaint(load: "subprocess.Popen[str]") -> str:
    return load.stderr.read() if load.stderr else ""


def _idle_offsets(name: str) -> Load:
    def run(arena: Arena, topic_name: str) -> Figures:
        arena.raw.commit(
            arena.broker.address.port,
            topic_name,
            groups=IDLE_GROUPS,
            partitions=IDLE_OFFSETS,
            requests=IDLE_GROUPS,
            name="offsets",
        )
        return _idle_figures(name, arena, lambda: time.sleep(arena.volumes.idle_s))

    return run


def _consume_by_group(name: str, protocol: str) -> Load:
    rebalance = Measure(case=name, quantity="ms until it has partitions", more_is_better=False)

    def run(arena: Arena, topic_name: str) -> Figures:
        filled = fill(arena, topic_name, 100, BATCH_BYTES, 16, arena.volumes.client_bytes)
        found = java_load.consume(
            arena.broker.address.bootstrap,
            topic_name,
            records=filled.records,
            group=topic_name,
            protocol=protocol,
        )
        figures = throughput(name, found.work, 0.0, judged_cpu=False)
        kept = {measure: sample for measure, sample in figures.items() if "CPU" not in measure.quantity}
        return {**kept, rebalance: Sample(value=found.rebalance_ms)}

    return run
