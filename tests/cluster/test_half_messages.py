"""Half messages on three broker processes: decisions that arrive at other brokers, failovers between the steps, and a
producer's group of which a member is killed.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from ottla.client.producer.blocking_producer import Producer
from ottla.model.queue_names import HALF_CHECK_AFTER_MS, HALF_CHECKS, HALF_ID, HALF_STATE
from ottla.testing import BrokerCluster, BrokerHandle, ProcessBroker
from tests.processes import Program
from tests.topic_contents import contents, values_in
from tests.waiting import wait_until

BROKERS: Final = 3
NEVER_MS: Final = 3_600_000
SETTINGS: Final = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    """Three brokers; a test that kills one starts it again."""
    with BrokerCluster(tmp_path_factory.mktemp("cluster"), SETTINGS, kind=ProcessBroker) as cluster:
        yield cluster
        for broker in cluster.brokers:
            assert isinstance(broker, ProcessBroker)
            alarms = [line for line in broker.log.splitlines() if "Traceback" in line or "unexpected" in line]
            assert [] == alarms


def create(cluster: BrokerCluster, topic: str, **checks: int) -> None:
    """A topic with half messages and a partition on each broker."""
    configs = {f"ottla.half.check.{name.replace('_', '.')}": str(value) for name, value in checks.items()}
    cluster.create_topic(topic, BROKERS, {"ottla.half.enable": "true", **configs})
    assert BROKERS == len({cluster.leader_of(f"{topic}.half", index).id for index in range(BROKERS)})


def send(
    producer: Producer, topic: str, id: str, state: str, partition: int, check_after_ms: int | None = None
) -> None:
    """A half message, or a decision; the value of a half message is its id."""
    headers = [(HALF_ID, id.encode()), (HALF_STATE, state.encode())]
    if check_after_ms is not None:
        headers.append((HALF_CHECK_AFTER_MS, str(check_after_ms).encode()))
    producer.send(f"{topic}.half", id.encode(), headers=headers, partition=partition).get(60)


def questions(cluster: BrokerCluster, topic: str) -> dict[str, list[int]]:
    """How the questions about each half message are numbered, in the order in which they were asked."""
    asked: dict[str, list[int]] = {}
    for record in contents(cluster.bootstrap, f"{topic}.half-checks"):
        values = dict(record.headers)
        asked.setdefault(str((values[HALF_ID] or b"").decode()), []).append(int(values[HALF_CHECKS] or 0))
    return asked


def kill_leader(cluster: BrokerCluster, companion: str) -> BrokerHandle:
    """Kills the leader of the only partition that matters; returns when another broker leads it."""
    leader = cluster.leader_of(companion)
    leader.kill()
    cluster.leader_of(companion)
    return leader


def test_decisions_find_their_half_message_on_another_broker(cluster: BrokerCluster) -> None:
    create(cluster, "roam")
    pairs = [(home, at) for home in range(BROKERS) for at in range(BROKERS)]
    others = [each.bootstrap for each in cluster.brokers]
    with ExitStack() as stack:
        preparing = [stack.enter_context(Producer(bootstrap_servers=each)) for each in others]
        deciding = [*preparing[1:], preparing[0]]
        for home, at in pairs:
            for outcome in ("commit", "rollback"):
                send(preparing[home], "roam", f"{outcome} {home} {at}", "prepare", home)
        for home, at in pairs:
            for outcome in ("commit", "rollback"):
                send(deciding[home], "roam", f"{outcome} {home} {at}", outcome, at)
        expected = Counter({(home, f"commit {home} {at}".encode()): 1 for home, at in pairs})

        def delivered() -> Counter[tuple[int, bytes]]:
            return Counter((record.partition, record.value) for record in contents(cluster.bootstrap, "roam"))

        wait_until(lambda: delivered() >= expected, "all committed half messages are delivered")
        # Decisions that come again, to any partition, and decisions about nothing.
        for home, at in pairs:
            send(deciding[home], "roam", f"commit {home} {at}", "commit", (at + 1) % BROKERS)
            send(deciding[home], "roam", f"unknown {home} {at}", "commit", at)
        for index in range(BROKERS):
            send(preparing[index], "roam", f"last {index}", "prepare", index)
            send(deciding[index], "roam", f"last {index}", "commit", (index + 1) % BROKERS)
            expected[index, f"last {index}".encode()] = 1
    wait_until(lambda: delivered() >= expected, "the last ones are delivered")
    assert expected == delivered()
    assert [] == contents(cluster.bootstrap, "dlq.roam")
    assert {} == questions(cluster, "roam")


def test_the_leader_is_killed_between_the_steps(cluster: BrokerCluster) -> None:
    topic = "moves"
    create(cluster, topic, after_ms=NEVER_MS, interval_ms=300, max=100_000)
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for id in ("good", "bad", "kept"):
            send(producer, topic, id, "prepare", 0, NEVER_MS if id == "kept" else 500)
        down = kill_leader(cluster, f"{topic}.half")
        wait_until(lambda: {"good", "bad"} == questions(cluster, topic).keys(), "the next leader asks")
        down.start()
        cluster.wait_in_sync()
        down = kill_leader(cluster, f"{topic}.half")
        asked = {id: len(numbers) for id, numbers in questions(cluster, topic).items()}
        wait_until(
            lambda: all(len(numbers) > asked[id] for id, numbers in questions(cluster, topic).items()),
            "the third leader asks again",
        )
        # The answers go to another partition, and the leader of the half message is killed when they are acknowledged.
        send(producer, topic, "good", "commit", 1)
        send(producer, topic, "bad", "rollback", 2)
        down.start()
        cluster.wait_in_sync()
        down = kill_leader(cluster, f"{topic}.half")
        send(producer, topic, "kept", "commit", 0)
        wait_until(lambda: Counter([b"good", b"kept"]) <= values_in(cluster.bootstrap, topic), "they are delivered")
        down.start()
        cluster.wait_in_sync()
        # A decision that comes again after all of it, and one that contradicts.
        send(producer, topic, "good", "commit", 1)
        send(producer, topic, "bad", "commit", 1)
        send(producer, topic, "last", "prepare", 0)
        send(producer, topic, "last", "commit", 2)
        wait_until(lambda: b"last" in values_in(cluster.bootstrap, topic), "the last one is delivered")
    assert Counter([b"good", b"kept", b"last"]) == values_in(cluster.bootstrap, topic)
    assert [] == contents(cluster.bootstrap, f"dlq.{topic}")
    # No question was lost, and none was asked twice.
    asked_in_all = questions(cluster, topic)
    assert {"good", "bad"} == asked_in_all.keys()
    assert {id: list(range(1, len(numbers) + 1)) for id, numbers in asked_in_all.items()} == asked_in_all


def test_undecided_messages_become_dead_letters_through_failovers(cluster: BrokerCluster) -> None:
    topic, checks = "silent", 4
    create(cluster, topic, after_ms=0, interval_ms=800, max=checks)
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        ids = [f"{number}" for number in range(20)]
        for number, id in enumerate(ids):
            send(producer, topic, id, "prepare", number % BROKERS)
        for _ in range(2):
            down = kill_leader(cluster, f"{topic}.half")
            down.start()
            cluster.wait_in_sync()
        everything = Counter(id.encode() for id in ids)
        wait_until(lambda: everything <= values_in(cluster.bootstrap, f"dlq.{topic}"), "all are dead letters")
    assert everything == values_in(cluster.bootstrap, f"dlq.{topic}")
    assert {id: list(range(1, checks + 1)) for id in ids} == questions(cluster, topic)
    assert [] == contents(cluster.bootstrap, topic)


def member(bootstrap: str, topic: str, answer: str, folder: Path) -> Program:
    """A process of the producer's service: answers questions, or hangs when it is asked. Prints what it is asked."""
    return Program([sys.executable, "-m", "tests.cluster.half_member", bootstrap, topic, answer], folder / answer)


def test_another_member_answers_for_one_that_is_killed(cluster: BrokerCluster, tmp_path: Path) -> None:
    topic = "shop"
    create(cluster, topic, after_ms=0, interval_ms=300, max=100_000)
    with ExitStack() as stack:
        hanging = stack.enter_context(member(cluster.bootstrap, topic, "hang", tmp_path))
        assert "ready" == hanging.next_line()
        with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            send(producer, topic, "first", "prepare", 0)
            assert "asked first" == hanging.next_line()
            # In a group with one that holds a question and does not answer it.
            answering = stack.enter_context(member(cluster.bootstrap, topic, "commit", tmp_path))
            answering.next_line()
            for index in range(BROKERS):
                send(producer, topic, f"later {index}", "prepare", index)
            hanging.kill()
        expected = Counter([b"first", *(b"later %d" % index for index in range(BROKERS))])
        wait_until(lambda: expected <= values_in(cluster.bootstrap, topic), "the other member answers all questions")
        assert expected == values_in(cluster.bootstrap, topic)
