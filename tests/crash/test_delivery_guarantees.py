"""At most once, at least once, exactly once: what each promises when consumer and broker die at the worst moment.

The consumers stop themselves exactly there, and are killed. So what the weaker promises allow is not only allowed but
shown: a batch handled twice, a batch never handled. That exactly once holds at random moments too is
`test_exactly_once.py`'s.
"""

import os
import threading
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

import pytest

from tests.broker_process import BrokerProcess
from tests.crash.doomed_broker import DoomedBroker
from tests.crash.etl import PHASES, Job
from tests.crash.etl_check import Found, parse_moved, problems_of, read_committed
from tests.crash.handling import BATCH, Task
from tests.crash.load import Producer, fetch_all, new_producer_id
from tests.crash.places import commit_offsets, committed_offsets, end_offsets
from tests.crash.test_exactly_once import KILLS, SEED, SETTINGS
from tests.crash.watched_disk import Point, records_in
from tests.processes import Program
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection
from tests.wire.world import create_topic

GROUP: Final = "handlers"
TOPIC: Final = "data"
BATCHES: Final = 6
STOP_AFTER: Final = 3
VICTIMS: Final = ("consumer", "consumer and broker")


pytestmark = pytest.mark.ottla_broker(SETTINGS)


def wait_stopped(program: Program) -> None:
    """Returns when a program has stopped itself; fails if it ends instead."""
    found = os.waitid(os.P_PID, program.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert found is not None
    assert os.CLD_STOPPED == found.si_code, f"ended with {found.si_status}; {program.log_end}"


def restart(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


def fill(address: str, topic: str, partitions: int, batches: int) -> UUID:
    """A topic with numbered records, the same in every partition."""
    with RawConnection(address) as connection:
        topic_id = create_topic(connection, topic, partitions, retention_ms="-1")
    for partition in range(partitions):
        producer = Producer(
            address=address, topic_id=topic_id, partition=partition, acks=-1, records=BATCH, value_bytes=10
        )
        for _ in range(batches):
            producer.send_once()
        producer.close()
    return topic_id


def effects_of_killed(tmp_path: Path, broker: BrokerProcess, victim: str, *, commits_first: bool) -> list[Counter[int]]:
    """How often each record was handled: those before the batch that was cut short, those in it, and those after."""
    fill(broker.address, TOPIC, 1, BATCHES)
    effects = tmp_path / "effects"
    effects.touch()
    task = Task(
        bootstrap=broker.address,
        group=GROUP,
        topic=TOPIC,
        effects=str(effects),
        commits_first=commits_first,
        stop_after=STOP_AFTER,
    )
    with Program(task.command(), tmp_path / "first") as consumer:
        wait_stopped(consumer)
        if victim == "consumer and broker":
            restart(broker)
    handled = len(effects.read_text().splitlines())
    committed = (committed_offsets(broker.address, GROUP, TOPIC, 1) or [0])[0]
    with Program(replace(task, stop_after=0).command(), tmp_path / "second"):
        end = BATCH * BATCHES
        wait_until(lambda: committed_offsets(broker.address, GROUP, TOPIC, 1) == [end], "the group is at the end")
        last = f"0/{BATCHES - 1}/{BATCH - 1} "
        wait_until(lambda: any(line.startswith(last) for line in effects.read_text().splitlines()), "all is handled")
    counts: Counter[int] = Counter()
    for line in effects.read_text().splitlines():
        _, number, place = line.split(" ")[0].split("/")
        counts[int(number) * BATCH + int(place)] += 1
    middle, after = sorted((handled, max(committed, 0)))
    print(f"killed when {handled} were handled and {committed} committed")
    parts = [range(middle), range(middle, after), range(after, end)]
    return [Counter({offset: counts[offset] for offset in part}) for part in parts]


@pytest.mark.parametrize("victim", VICTIMS)
def test_at_least_once(tmp_path: Path, broker: BrokerProcess, victim: str) -> None:
    """Handled, then committed: killed in between, a batch is handled twice, and none is lost."""
    before, between, after = effects_of_killed(tmp_path, broker, victim, commits_first=False)
    assert {1} == set(before.values())
    assert {2} == set(between.values())
    assert {1} == set(after.values())


@pytest.mark.parametrize("victim", VICTIMS)
def test_at_most_once(tmp_path: Path, broker: BrokerProcess, victim: str) -> None:
    """Committed, then handled: killed in between, a batch is lost, and none is handled twice."""
    before, between, after = effects_of_killed(tmp_path, broker, victim, commits_first=True)
    assert {1} == set(before.values())
    assert {0} == set(between.values())
    assert {1} == set(after.values())


@pytest.mark.parametrize("victim", ["worker", "broker", "worker and broker"])
def test_exactly_once(tmp_path: Path, broker: BrokerProcess, victim: str) -> None:
    """The same death in each phase of a transaction: nothing is lost, nothing is there twice."""
    partitions = 2
    fill(broker.address, "input", partitions, 4 * BATCHES)
    with RawConnection(broker.address) as connection:
        create_topic(connection, "output", partitions, retention_ms="-1")
        create_topic(connection, "audit", 1, retention_ms="-1")
    commit_offsets(broker.address, GROUP, "input", dict.fromkeys(range(partitions), 0))
    job = Job(
        bootstrap=broker.address,
        group=GROUP,
        transactional_id="mover",
        input="input",
        output="output",
        audit="audit",
        # The next worker takes the killed one's place at once.
        consumer={"group.instance.id": "mover", "session.timeout.ms": 5000, "heartbeat.interval.ms": 100},
    )
    for phase in PHASES[1:5]:
        with Program(replace(job, stop_at=phase).command(), tmp_path / "worker") as worker:
            wait_stopped(worker)
            if "broker" in victim:
                restart(broker)
            if "worker" not in victim:
                before = end_offsets(broker.address, "audit", 1, is_committed=True)
                worker.resume()
                wait_until(partial(has_moved, broker.address, before), "the worker goes on")
    with Program(job.command(), tmp_path / "worker"):
        end = [4 * BATCHES * BATCH] * partitions
        wait_until(lambda: committed_offsets(broker.address, GROUP, "input", partitions) == end, "all is moved")
    inputs, outputs = (read_committed(broker.address, topic, partitions) for topic in ("input", "output"))
    (audit,) = read_committed(broker.address, "audit", 1)
    moved = [[parse_moved(index, value) for value in values] for index, values in enumerate(outputs)]
    assert [] == problems_of(Found(inputs=inputs, outputs=moved, audit=audit))


def has_moved(address: str, before: list[int]) -> bool:
    """Whether another transaction was committed."""
    return end_offsets(address, "audit", 1, is_committed=True) > before


# Producers


@pytest.mark.parametrize("is_idempotent", [True, False], ids=["idempotent", "plain"])
def test_a_batch_that_is_sent_again(tmp_path: Path, is_idempotent: bool) -> None:
    """Killed when the batch was written and nobody told: sent again it is there once, unless nobody can know it."""
    with DoomedBroker(tmp_path / "data") as broker:
        topic_id = fill(broker.address, TOPIC, 1, 0)
        producer_id = new_producer_id(broker.address) if is_idempotent else -1
        producer = Producer(address=broker.address, topic_id=topic_id, partition=0, acks=-1, producer_id=producer_id)
        producer.send_once()
        broker.watch({"sent": Point(sees=records_in(TOPIC))})
        producer.send_once()
        producer.close()
        left = broker.left_at("sent")
    with DoomedBroker(left) as broker:
        producer.address = broker.address
        first = producer.acked.pop()
        again = producer.send_once()
        assert is_idempotent == (first == again)
        producer.send_once()
        producer.close()
        stored = len(fetch_all(broker.address, topic_id, 0)) // producer.records
        assert (3 if is_idempotent else 4) == stored


def test_an_idempotent_client_under_kills(tmp_path: Path, broker: BrokerProcess) -> None:
    """A client that sends many batches at once, and again what it had no answer to: each is there once, in order."""
    from confluent_kafka import Producer as ForeignProducer

    fill(broker.address, TOPIC, 1, 0)
    random = Random(f"{SEED}-idempotent")
    producer = ForeignProducer(
        {
            "bootstrap.servers": broker.address,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 20,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "metadata.recovery.strategy": "none",
        }
    )
    delivered: list[int] = []
    is_over = threading.Event()
    sent = threading.Thread(target=send_numbers, args=(producer, delivered, is_over))
    sent.start()
    try:
        for _ in range(KILLS):
            wanted = len(delivered) + random.randint(50, 1000)
            wait_until(partial(has_grown_to, delivered, wanted), "records are acknowledged")
            restart(broker)
    finally:
        is_over.set()
        sent.join()
    (values,) = read_committed(broker.address, TOPIC, 1)
    assert list(range(len(delivered))) == delivered
    assert [str(number).encode() for number in delivered] == values


def has_grown_to(numbers: list[int], count: int) -> bool:
    return len(numbers) >= count


def send_numbers(producer: Any, delivered: list[int], is_over: threading.Event) -> None:
    """Numbers in order, until told to end; `delivered` has those that were acknowledged, in the order of that."""

    def on_delivery(number: int, error: Any) -> None:
        assert error is None, error
        delivered.append(number)

    number = 0
    while not is_over.is_set():
        if number - len(delivered) < 2000:
            producer.produce(
                TOPIC, str(number), partition=0, on_delivery=lambda error, _, at=number: on_delivery(at, error)
            )
            number += 1
            producer.poll(0)
        else:
            producer.poll(0.01)
    producer.flush()
