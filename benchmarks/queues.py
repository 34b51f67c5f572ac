"""Delayed delivery against RabbitMQ, and what queues cost ordinary topics.

    python -m benchmarks queues [--quick]

RabbitMQ is Debian's (`apt-get install rabbitmq-server`), with a TTL for each message and a dead-letter exchange; if it
is missing, Ottla runs alone. Both run on this machine with their default settings, one topic or queue, and 100-byte
values. Records count as parked when they are acknowledged: by Ottla with acks=all, by RabbitMQ with a confirm of a
persistent message in a durable queue. A delayed topic is not synced to disk for each batch by default, as a plain one
is not; `ottla, synced` is one with flush.messages=1.

Lateness is the time from the due time to the moment when a consumer has the record, both by the clock of this machine.
Records are due within one second, evenly: 1,000, 10,000, or 100,000 of them. They are parked in the order in which they
are due, since RabbitMQ expires messages only at the head of a queue. Memory, and the time of a restart, with many
records parked, are told on standard error; ten million in the full run, and for Ottla only: RabbitMQ keeps an index of
all messages in memory.

Fetching a topic with a TTL of which nothing has expired is compared with fetching an ordinary topic with the same
records.
"""

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.measure import Goal, Result, Rival, Row, Verdict, interleaved, report
from benchmarks.queue_race.ottla_queue import EXPIRING, PLAIN, SYNCED, OttlaQueue
from benchmarks.queue_race.rabbitmq import RabbitMq, is_installed
from benchmarks.queue_race.rival import Arrival

HOUR_MS: Final = 3_600_000
PARKED: Final = 100_000
PARKED_QUICK: Final = 10_000
BURSTS: Final = (1_000, 10_000, 100_000)
BURSTS_QUICK: Final = (1_000, 10_000)
LATENESS_ROUNDS: Final = {1_000: 9, 10_000: 5, 100_000: 3}
"""A burst of 100,000 takes RabbitMQ half a minute; a few milliseconds need more rounds on a shared machine."""
SPREAD_MS: Final = 1_000
LEAD_MS: Final = 3_000
LEAD_RECORDS_PER_S: Final = 4_000
"""What even the slower rival parks in a second: a burst is due so much later that all of it is parked by then."""
OWED: Final = (1_000_000, 10_000_000)
OWED_QUICK: Final = (100_000,)
OWED_RABBITMQ_MAX: Final = 1_000_000


def run(quick: bool = False) -> list[Result]:
    """Parking, lateness, memory, restart, and ordinary topics."""
    with _folder() as folder, contextlib.ExitStack() as ends:
        ottla = ends.enter_context(OttlaQueue(folder / "ottla"))
        rabbitmq = ends.enter_context(RabbitMq(folder / "rabbitmq")) if is_installed() else None
        if rabbitmq is None:
            _tell("RabbitMQ is not installed (apt-get install rabbitmq-server): Ottla runs alone")
        results = [_lateness(ottla, rabbitmq, count, quick) for count in (BURSTS_QUICK if quick else BURSTS)]
        results.append(_parking(ottla, rabbitmq, PARKED_QUICK if quick else PARKED, quick))
        results.append(_fetching(ottla, PARKED_QUICK if quick else PARKED, quick))
        _owed(ottla, rabbitmq, OWED_QUICK if quick else OWED)
    return results


def _parking(ottla: OttlaQueue, rabbitmq: RabbitMq | None, count: int, quick: bool) -> Result:
    rivals: dict[str, Rival] = {
        "ottla": lambda: ottla.park(count, HOUR_MS),
        "ottla, synced": lambda: ottla.park(count, HOUR_MS, SYNCED),
        "ottla, plain topic": lambda: ottla.produce(count),
    }
    if rabbitmq is not None:
        rivals["rabbitmq"] = lambda: rabbitmq.park(count, HOUR_MS)
    return interleaved(
        rivals,
        title="park records for an hour",
        unit="records",
        baseline="ottla, plain topic" if rabbitmq is None else "rabbitmq",
        goals=[]
        if rabbitmq is None
        else [Goal(rival="ottla", at_least=1.0), Goal(rival="ottla, synced", at_least=1.0)],
        quick=quick,
    )


def _fetching(ottla: OttlaQueue, count: int, quick: bool) -> Result:
    ottla.produce(count, EXPIRING)
    ottla.produce(count)
    return interleaved(
        {"topic with a TTL": lambda: ottla.read_all(EXPIRING), "plain topic": lambda: ottla.read_all(PLAIN)},
        title="fetch a topic from its start",
        unit="records",
        baseline="plain topic",
        quick=quick,
    )


def _lateness(ottla: OttlaQueue, rabbitmq: RabbitMq | None, count: int, quick: bool) -> Result:
    """The 99th percentile of some rounds, as how often it fits into a second: more is better, as elsewhere."""
    rivals: dict[str, OttlaQueue | RabbitMq] = {"ottla": ottla}
    if rabbitmq is not None:
        rivals["rabbitmq"] = rabbitmq
    worst: dict[str, list[float]] = {name: [] for name in rivals}
    rounds = 1 if quick else LATENESS_ROUNDS[count]
    for _ in range(rounds):
        for name, rival in rivals.items():
            late = _deliver(rival, count)
            worst[name].append(late[len(late) * 99 // 100])
            _tell(
                f"{count} records due in a second, {name}: late by p50 {late[len(late) // 2]:.0f} ms,"
                f" p99 {worst[name][-1]:.0f} ms, at most {late[-1]:.0f} ms"
            )
    baseline = "ottla" if rabbitmq is None else "rabbitmq"
    rates = {name: [1000 / max(late, 1.0) for late in samples] for name, samples in worst.items()}
    ratios = {name: [own / other for own, other in zip(rates[name], rates[baseline], strict=True)] for name in rivals}
    ratio = statistics.median(ratios["ottla"])
    return Result(
        title=f"1 / p99 of lateness, {count} records due in a second",
        unit="1",
        baseline=baseline,
        rounds=rounds,
        rows=tuple(
            Row(
                rival=name,
                rate=statistics.median(rates[name]),
                rate_min=min(rates[name]),
                rate_max=max(rates[name]),
                ratio=statistics.median(ratios[name]),
                ratio_min=min(ratios[name]),
                ratio_max=max(ratios[name]),
            )
            for name in rivals
        ),
        verdicts=()
        if rabbitmq is None
        else (Verdict(rival="ottla", against="rabbitmq", at_least=1.0, ratio=ratio, met=ratio >= 1.0),),
    )


def _deliver(rival: OttlaQueue | RabbitMq, count: int) -> list[float]:
    """How late each record of a burst is, sorted."""
    first = int(time.time() * 1000) + LEAD_MS + count * 1000 // LEAD_RECORDS_PER_S
    arrivals: list[Arrival] = rival.deliver([first + number * SPREAD_MS // count for number in range(count)])
    if len(arrivals) != count:
        raise RuntimeError(f"{rival.name} delivered {len(arrivals)} of {count} records")
    late = sorted(arrival.late_ms for arrival in arrivals)
    if late[0] < -1:
        raise RuntimeError(f"{rival.name} delivered a record {-late[0]:.1f} ms early")
    return late


def _owed(ottla: OttlaQueue, rabbitmq: RabbitMq | None, counts: tuple[int, ...]) -> None:
    """Memory and restart with many records parked."""
    for rival in (ottla, rabbitmq):
        parked = 0
        for count in counts:
            if rival is None or (rival is rabbitmq and count > OWED_RABBITMQ_MAX):
                continue
            empty = rival.memory_bytes() if not parked else 0
            parked += int(rival.park(count - parked, 24 * HOUR_MS))
            used = rival.memory_bytes()
            rival.stop()
            began = time.perf_counter()
            rival.start()
            started = time.perf_counter() - began
            before = f" ({empty / 1e6:.0f} MB before)" if empty else ""
            line = f"{count} records parked, {rival.name}: {used / 1e6:.0f} MB{before}; a restart took {started:.1f} s"
            if rival is ottla:
                # RabbitMQ would deliver them after those parked before.
                line += f", records parked after it were late by {_deliver(rival, 100)[-1]:.0f} ms at most"
            _tell(f"{line}, {rival.memory_bytes() / 1e6:.0f} MB then")


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ottla-queues-") as folder:
        yield Path(folder)


def _tell(line: str) -> None:
    print(f"  .. {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    report(run())
