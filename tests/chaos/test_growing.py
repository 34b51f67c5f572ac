"""A fourth broker joins, replicas move to it under load, and an old one leaves: clients notice nothing.

Once with `ottla cluster`, where it is also measured what the throttle does, once with Kafka's own tools.
"""

import json
import time
from pathlib import Path

from confluent_kafka import Producer

from ottla.testing import BrokerHandle
from tests.chaos.arena import PARTITIONS, TOPICS, Arena, arena, java_load, librdkafka_load
from tests.chaos.ordeal import verdict
from tests.compat.kafka_jars import kafka_tool
from tests.processes import OTTLA, run
from tests.waiting import PATIENCE_SECONDS, tries, wait_until

THROTTLE = 200_000
"""Bytes a second: low enough that copying takes some seconds."""
BALLAST = "ballast"
BALLAST_BYTES = 96_000_000
BALLAST_THROTTLE = 2_000_000
"""Far below what a machine does, and above what the clients write: what is in sync is counted, and never waits."""
THROTTLED_SECONDS = 12.0
"""So long that a second's burst, and an answer of a megabyte from each of three leaders, are a fifth of it."""


def ottla(made: Arena, *words: str) -> str:
    return run([*OTTLA, "cluster", *words, "--bootstrap", made.cluster.bootstrap]).stdout


def start_loads(made: Arena, folder: Path) -> None:
    made.start_load("rd", librdkafka_load("writer,mover,reader,member,copier"))
    made.start_load("java", java_load(folder / "classes", "writer,mover,reader,member"))


def check_nobody_noticed(made: Arena) -> None:
    """No promise is broken, and no client saw an error that it did not get over by itself."""
    assert [] == verdict(made, [])
    assert [] == [event for event in made.events() if event.what == "trouble"]


def take_ballast(made: Arena) -> None:
    """Gives the brokers something to copy that takes its time."""
    made.cluster.create_topic(BALLAST, PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": made.cluster.bootstrap, "acks": "all", "queue.buffering.max.kbytes": 32_000}
    )
    value = bytes(50_000)
    for number in range(BALLAST_BYTES // len(value)):
        while True:
            try:
                producer.produce(BALLAST, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert 0 == producer.flush(PATIENCE_SECONDS)


def held_bytes(broker: BrokerHandle) -> int:
    """What a broker has of all partitions."""
    return sum(path.stat().st_size for path in broker.data.glob("*/*.log"))


def check_throttled(broker: BrokerHandle) -> int:
    """Measures how fast a broker without anything is given its replicas; answers how much there is to come yet."""
    wait_until(lambda: held_bytes(broker) > 0)
    began = time.monotonic()
    time.sleep(THROTTLED_SECONDS)  # over which the speed is measured
    copied = held_bytes(broker)
    # More than was slept, if the machine stalled meanwhile.
    seconds = time.monotonic() - began
    print(f"{copied / seconds / BALLAST_THROTTLE:.2f} of what the throttle allows")
    assert copied <= 1.3 * BALLAST_THROTTLE * seconds
    assert copied < BALLAST_BYTES / 2
    return BALLAST_BYTES - copied


def test_a_broker_joins_and_another_leaves(tmp_path: Path) -> None:
    with arena(tmp_path, "zookeeper") as made:
        take_ballast(made)
        start_loads(made, tmp_path)
        first = made.cluster.brokers[0]
        new = made.cluster.grow()
        plan = tmp_path / "plan.json"
        plan.write_text(ottla(made, "reassign", "generate", "--brokers", "1,2,3"))
        ottla(made, "reassign", "execute", str(plan), "--throttle", str(BALLAST_THROTTLE))
        left = check_throttled(new)
        # Executed again, it has another throttle: as good as none.
        started = time.monotonic()
        ottla(made, "reassign", "execute", str(plan), "--throttle", "10g")
        ottla(made, "reassign", "verify", str(plan), "--watch")
        seconds = time.monotonic() - started
        print(
            f"moved {seconds:.1f} s after the throttle was lifted, {left / BALLAST_THROTTLE:.1f} s if it had not been"
        )
        assert seconds < left / BALLAST_THROTTLE / 2
        made.cluster.retire(first)
        assert [1, 2, 3] == [each.id for each in made.cluster.brokers]
        made.cluster.wait_in_sync()
        check_nobody_noticed(made)


def test_kafkas_tools_move_replicas_and_elect_leaders(tmp_path: Path) -> None:
    with arena(tmp_path, "sqlite") as made:
        start_loads(made, tmp_path)
        made.cluster.grow()
        moves = [
            {"topic": topic, "partition": at, "replicas": [3, (at + 1) % 3, (at + 2) % 3]}
            for topic in TOPICS
            for at in range(PARTITIONS)
        ]
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        common = ("--bootstrap-server", made.cluster.bootstrap, "--reassignment-json-file", str(plan))
        kafka_tool(tool, *common, "--execute", "--throttle", str(THROTTLE))
        for _ in tries("all replicas have moved"):
            if "still in progress" not in (said := kafka_tool(tool, *common, "--verify").stdout):
                break
        assert PARTITIONS * len(TOPICS) == said.count("is completed"), said
        assert "Clearing topic-level throttles" in said
        election = "org.apache.kafka.tools.LeaderElectionCommand"
        bootstrap = ("--bootstrap-server", made.cluster.bootstrap)
        kafka_tool(election, *bootstrap, "--election-type", "preferred", "--all-topic-partitions")
        assert {3} == {made.leader(topic, at).id for topic in TOPICS for at in range(PARTITIONS)}
        made.cluster.wait_in_sync()
        check_nobody_noticed(made)
