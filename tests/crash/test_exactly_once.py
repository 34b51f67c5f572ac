"""Exactly once under fire: records are moved inside transactions while broker and workers are killed at any moment.

Idempotent producers feed a topic all the while; workers of one group (`etl.py`) move its records to another, with their
offsets, in transactions, of which they abort some. The broker is killed at every phase of a transaction, workers are
killed, or stopped until another has taken their id over. In the end nothing is lost, nothing is there twice, the order
is kept, transactions are whole, the group is at the input's end, and no transaction is left open. OTTLA_CRASH_KILLS
says how often the broker is killed, shared out among the kinds of groups, OTTLA_CRASH_SEED when. A run that fails
leaves its files and says where.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

import pytest

from tests.broker_process import BrokerProcess
from tests.crash.etl import PHASES, Job
from tests.crash.etl_check import Found, Moved, parse_moved, problems_of, read_committed
from tests.crash.etl_fleet import Fleet
from tests.crash.load import LOST, Producer, RefusedError, new_producer_id
from tests.crash.places import commit_offsets, committed_offsets, end_offsets
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection
from tests.wire.world import create_topic

KILLS: Final = int(os.environ.get("OTTLA_CRASH_KILLS", "5"))
SEED: Final = int(os.environ.get("OTTLA_CRASH_SEED", "1"))
PARTITIONS: Final = 6
INTERNAL_PARTITIONS: Final = 3
PACE_SECONDS: Final = 0.02
GROUP: Final = "movers"
WORKERS: Final = 3
ABORT_SHARE: Final = 0.2
TOPICS: Final = {"input": PARTITIONS, "output": PARTITIONS, "audit": 1}

SETTINGS: Final = {
    "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}
"""A killed member is missed after two seconds instead of many."""

DOWN_SECONDS_MAX: Final = 0.5

_CLASSIC: Final = {"session.timeout.ms": 2000, "heartbeat.interval.ms": 200}
KINDS: Final[dict[str, dict[str, Any]]] = {
    "classic": _CLASSIC,
    "cooperative": {**_CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "server-side": {"group.protocol": "consumer"},
}
"""How the group divides its partitions, as settings of the client."""


class Feeder(Producer):
    """An idempotent producer of one partition that takes its time."""

    def run(self, is_over: threading.Event) -> None:
        """Sends until told to end; whatever was under way by then is sent to its end."""
        is_sent = True
        while not (is_sent and is_over.wait(PACE_SECONDS)):
            try:
                self.send_once()
                is_sent = True
            except (RefusedError, *LOST):
                is_sent = False
        self.close()


@contextmanager
def feeding(address: str, topic_id: UUID, partition: int) -> Iterator[Feeder]:
    """A feeder of one partition, which has ended when the block has."""
    is_over = threading.Event()
    feeder = Feeder(
        address=address,
        topic_id=topic_id,
        partition=partition,
        acks=-1,
        producer_id=new_producer_id(address),
        value_bytes=20,
    )
    thread = threading.Thread(target=feeder.run, args=(is_over,))
    thread.start()
    try:
        yield feeder
    finally:
        is_over.set()
        thread.join()


def set_fire(broker: BrokerProcess, fleet: Fleet, random: Random) -> None:
    """One kill of the broker, in some phase of some transaction, and perhaps the end of a worker before it."""
    fleet.heard.wait("committed", random.randint(1, 4))
    victim = random.randrange(len(fleet))
    match random.choice(("nothing", "kill", "kill", "zombie")):
        case "kill":
            fleet.heard.wait(random.choice(PHASES[1:5]))
            fleet.kill(victim)
        case "zombie":
            fleet.heard.wait(random.choice(PHASES[1:5]))
            fleet.replace_stopped(victim)
    fleet.heard.wait(random.choice(PHASES[1:5]))
    threading.Event().wait(random.uniform(0, 0.02))
    broker.kill()
    fleet.check()
    threading.Event().wait(random.choice((0, random.uniform(0, DOWN_SECONDS_MAX))))
    broker.start()


def jobs_of(address: str, kind: str, *, is_new_group: bool) -> list[Job]:
    """Workers of one group, each with a transactional id."""
    return [
        Job(
            bootstrap=address,
            group=GROUP,
            transactional_id=f"mover-{number}",
            input="input",
            output="output",
            audit="audit",
            consumer=KINDS[kind],
            is_new_group=is_new_group,
            abort_share=ABORT_SHARE,
        )
        for number in range(WORKERS)
    ]


def check(address: str, feeders: list[Feeder]) -> None:
    """What is there, and that nothing is open."""
    (inputs, outputs, (audit,)) = (read_committed(address, topic, count) for topic, count in TOPICS.items())
    for feeder, values in zip(feeders, inputs, strict=True):
        assert len(feeder.acked) * feeder.records == len(values)
    moved = [[parse_moved(index, value) for value in values] for index, values in enumerate(outputs)]
    print(f"{sum(map(len, inputs))} records in, {sum(map(len, moved))} out, {len(audit)} transactions")
    assert [] == problems_of(Found(inputs=inputs, outputs=moved, audit=audit))
    assert len(audit) > 0
    assert [len(values) for values in inputs] == committed_offsets(address, GROUP, "input", PARTITIONS)
    assert nothing_is_open(address)


def nothing_is_open(address: str) -> bool:
    """Whether every transaction has its markers; what the group writes about its members meanwhile does not matter."""
    topics = {**TOPICS, "__consumer_offsets": INTERNAL_PARTITIONS}
    for topic, count in topics.items():
        ends = end_offsets(address, topic, count, is_committed=False)
        stable = end_offsets(address, topic, count, is_committed=True)
        if any(there < end for end, there in zip(ends, stable, strict=True)):
            return False
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_new_group", [False, True], ids=["known", "new"])
def test_every_record_is_moved_exactly_once(tmp_path: Path, kind: str, is_new_group: bool) -> None:
    """By a group that has an offset of every partition before its workers come, and by one that has none."""
    random = Random(f"{SEED}-{kind}-{is_new_group}")
    kills = -(-KILLS // (2 * len(KINDS)))
    print(f"OTTLA_CRASH_SEED={SEED} OTTLA_CRASH_KILLS={KILLS}: {kills} kills")
    with BrokerProcess(tmp_path / "broker", settings=SETTINGS) as broker:
        with RawConnection(broker.address) as connection:
            ids = {name: create_topic(connection, name, count, retention_ms="-1") for name, count in TOPICS.items()}
        if not is_new_group:
            commit_offsets(broker.address, GROUP, "input", dict.fromkeys(range(PARTITIONS), 0))
        jobs = jobs_of(broker.address, kind, is_new_group=is_new_group)
        with Fleet(jobs, tmp_path / "workers") as fleet:
            with ExitStack() as fed:
                feeders: list[Feeder] = []

                def feed_more(count: int) -> None:
                    indexes = range(len(feeders), min(len(feeders) + count, PARTITIONS))
                    feeders.extend(fed.enter_context(feeding(broker.address, ids["input"], index)) for index in indexes)

                # A partition that has no offset is the more interesting, the later it gets its first records.
                feed_more(1 if is_new_group else PARTITIONS)
                for _ in range(kills):
                    feed_more(1)
                    set_fire(broker, fleet, random)
                feed_more(PARTITIONS)
                # A new group has no offset of a partition without records, not even 0.
                wait_until(lambda: all(feeder.acked for feeder in feeders), "every partition has records")
                fleet.wait_zombies_fenced()
                fleet.heard.wait("committed", 2 * WORKERS)
            ends = [len(feeder.acked) * feeder.records for feeder in feeders]
            wait_until(
                lambda: committed_offsets(broker.address, GROUP, "input", PARTITIONS) == ends, "everything is moved"
            )
            fleet.finish()
            print({phase: fleet.heard.count(phase) for phase in PHASES}, f"{fleet.fenced} fenced")
        wait_until(lambda: nothing_is_open(broker.address), "the last markers are written")
        check(broker.address, feeders)
        broker.stop()
        broker.start()
        check(broker.address, feeders)
        assert [] == broker.alarms()


# The checks themselves: each is fed something bad, and must complain.

GOOD: Final = Found(
    inputs=[[b"a", b"b"], [b"c"]],
    outputs=[[Moved(0, "t", b"a"), Moved(1, "u", b"b")], [Moved(0, "u", b"c")]],
    audit=[b'{"name": "t", "counts": {"0": 1}}', b'{"name": "u", "counts": {"0": 1, "1": 1}}'],
)
T0, U1 = GOOD.outputs[0]
BAD: Final[dict[str, tuple[list[list[Moved]], int]]] = {
    "lost": ([[T0], []], 2),
    "there more than once": ([[T0, U1, U1], [Moved(0, "u", b"c")]], 2),
    "out of order": ([[U1, T0], [Moved(0, "u", b"c")]], 2),
    "from nowhere": ([[T0, U1, Moved(2, "u", b"d")], [Moved(0, "u", b"c")]], 2),
    "another value": ([[T0, Moved(1, "u", b"x")], [Moved(0, "u", b"c")]], 2),
    "moved Counter()": ([[T0, U1], [Moved(0, "u", b"c")]], 3),
    "moved Counter({0: 1, 1: 1})": ([[T0, U1], [Moved(0, "t", b"c")]], 2),
    "says Counter()": ([[T0, U1], [Moved(0, "u", b"c")]], 1),
}


def test_the_checker_is_content() -> None:
    assert [] == problems_of(GOOD)


@pytest.mark.parametrize("complaint", BAD)
def test_the_checker_complains(complaint: str) -> None:
    outputs, audited = BAD[complaint]
    audit = [*GOOD.audit, b'{"name": "v", "counts": {"0": 1}}'][:audited]
    assert complaint in " ".join(problems_of(Found(inputs=GOOD.inputs, outputs=outputs, audit=audit)))
