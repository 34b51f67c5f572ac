"""Foreign share consumers and Kafka's tools for share groups: the same transcript on Apache Kafka and on Ottla.

franz-go speaks ShareFetch in version 2, librdkafka in version 1 and without renewal. `test_share_groups.py` has Java's
client, and `test_share_consumer.py` ours.
"""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import AcknowledgeType, Message, ShareConsumer

from ottla import Admin, ConfigResource, NewTopic, Producer, ResourceType
from tests.compat.clients.client_builds import go_program
from tests.compat.kafka_broker import KafkaBroker
from tests.compat.kafka_jars import kafka_tool
from tests.compat.kafkas_word import KafkasWord, readable
from tests.compat.ottla_broker import OttlaBroker
from tests.waiting import PATIENCE_SECONDS

PATIENCE_S: Final = 60
VERIFIABLE: Final = "org.apache.kafka.tools.VerifiableShareConsumer"
CONSOLE: Final = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
SHARE_GROUPS: Final = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"


class Scene(NamedTuple):
    """A topic with some records, each in its own batch, and a share group that starts at the first."""

    bootstrap: str
    topic: str
    group: str

    def send(self, values: Iterable[int]) -> None:
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for value in values:
                producer.send(self.topic, b"%d" % value, partition=0)
                producer.flush()


Scenario = Callable[[Scene], Any]
Both = Callable[..., Any]


@pytest.fixture
def both(request: pytest.FixtureRequest, kafkas_word: KafkasWord, ottla: OttlaBroker) -> Both:
    """Plays a scenario on both brokers, which must give the same; returns that."""
    topic, group = f"{request.node.name}-topic", f"{request.node.name}-group"

    def begin(bootstrap: str, records: int, configs: dict[str, str]) -> Scene:
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
            admin.wait_for_topics([topic])
            wanted = {"share.auto.offset.reset": "earliest", **configs}
            admin.alter_configs([ConfigResource(ResourceType.GROUP, group, wanted)])
        scene = Scene(bootstrap, topic, group)
        scene.send(range(records))
        return scene

    def play(scenario: Scenario, records: int = 6, **configs: str) -> Any:
        named = {name.replace("_", "."): value for name, value in configs.items()}

        def ask(broker: KafkaBroker | OttlaBroker) -> object:
            return scenario(begin(broker.bootstrap, records, named))

        theirs, ours = kafkas_word(ask), readable(ask(ottla))
        assert theirs == ours
        return ours

    return play


TRANSCRIPT: Final = ["first 0=0#1 1=1#1 2=2#1 3=3#1 4=4#1 5=5#1", "second 1=1#2 3=3#2", "third 6=6#1 7=7#1"]


def test_franz_go(both: Both) -> None:
    def scenario(scene: Scene) -> list[str]:
        command = [str(go_program("franzshare")), *scene]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        assert 0 == done.returncode, done.stdout + done.stderr
        return done.stdout.splitlines()

    assert [*TRANSCRIPT, "failed 0"] == both(scenario, share_delivery_count_limit="2")


def test_librdkafka(both: Both) -> None:
    accept, release, reject = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT

    def step(consumer: ShareConsumer, name: str, *types: AcknowledgeType) -> str:
        found: list[Message] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < len(types):
            assert time.monotonic() < deadline, found
            for message in consumer.poll(timeout=1.0):
                assert message.error() is None, message.error()
                consumer.acknowledge(message, types[len(found)])
                found.append(message)
        outcomes = consumer.commit_sync(timeout=PATIENCE_S)
        assert all(error is None for error in (outcomes or {}).values()), outcomes
        return " ".join([name, *(f"{each.offset()}={each.value().decode()}#{each.delivery_count()}" for each in found)])

    def scenario(scene: Scene) -> list[str]:
        configs = {
            "bootstrap.servers": scene.bootstrap,
            "group.id": scene.group,
            "share.acknowledgement.mode": "explicit",
        }
        consumer = ShareConsumer(configs)
        try:
            consumer.subscribe([scene.topic])
            lines = [step(consumer, "first", accept, release, reject, release, accept, accept)]
            lines.append(step(consumer, "second", release, release))
            scene.send([6, 7])
            lines.append(step(consumer, "third", accept, accept))
        finally:
            consumer.close()
        return lines

    assert TRANSCRIPT == both(scenario, share_delivery_count_limit="2")


def test_the_verifiable_and_the_console_share_consumer(both: Both) -> None:
    def scenario(scene: Scene) -> list[Any]:
        common = ["--bootstrap-server", scene.bootstrap, "--topic", scene.topic]
        verified = kafka_tool(
            VERIFIABLE, *common, "--group-id", scene.group, "--max-messages", "6", "--acknowledgement-mode", "sync",
            "--offset-reset-strategy", "earliest",
        )  # fmt: skip
        events = [json.loads(line) for line in verified.stdout.splitlines() if line.startswith("{")]
        names = list(dict.fromkeys(event["name"] for event in events))
        consumed = sum(event["count"] for event in events if event["name"] == "records_consumed")
        parts = [part for event in events if event["name"] == "offsets_acknowledged" for part in event["partitions"]]
        acknowledged = sorted(offset for part in parts for offset in part["offsets"])
        scene.send([6, 7, 8])
        shown = ["--group", scene.group, "--timeout-ms", "30000", "--max-messages"]
        prints = ["--formatter-property", "print.offset=true", "--formatter-property", "print.delivery=true"]
        released = kafka_tool(CONSOLE, *common, *shown, "3", "--release", *prints)
        rejected = kafka_tool(CONSOLE, *common, *shown, "3", "--reject", *prints)
        return [names, consumed, acknowledged, released.stdout.splitlines(), rejected.stdout.splitlines()]

    names, consumed, acknowledged, released, rejected = both(scenario)
    assert {"startup_complete", "records_consumed", "offsets_acknowledged", "shutdown_complete"} <= set(names)
    assert (6, list(range(6))) == (consumed, acknowledged)
    assert ["Delivery:1", "Delivery:2"] == [re.findall(r"Delivery:\d+", lines[0])[0] for lines in (released, rejected)]
    assert 3 == len(released) == len(rejected)


@pytest.mark.long
def test_kafka_share_groups(both: Both) -> None:
    def scenario(scene: Scene) -> list[list[str]]:
        def run(*args: str) -> list[str]:
            done = kafka_tool(SHARE_GROUPS, "--bootstrap-server", scene.bootstrap, *args, check=False)
            # Addresses differ; so does the room that they take.
            text = (done.stdout + done.stderr).replace(scene.bootstrap, "broker")
            lines = [" ".join(line.split()) for line in text.splitlines()]
            return [line for line in lines if line and (scene.group in line or "Error" in line or "offsets" in line)]

        configs = {"bootstrap.servers": scene.bootstrap, "group.id": scene.group}
        consumer = ShareConsumer(configs)
        consumer.subscribe([scene.topic])
        seen = 0
        deadline = time.monotonic() + PATIENCE_S
        while seen < 6:
            assert time.monotonic() < deadline
            seen += len(consumer.poll(timeout=1.0))
        consumer.commit_sync(timeout=PATIENCE_S)
        of_group = ("--group", scene.group)
        refused = run("--reset-offsets", *of_group, "--topic", scene.topic, "--to-earliest", "--execute")
        consumer.close()
        (described,) = run("--describe", *of_group, "--offsets")
        # Kafka stores a start offset that moved with the next change only, so that its column may be behind.
        lag = described.split()[-1:]
        return [
            lag,
            refused,
            run("--reset-offsets", *of_group, "--topic", scene.topic, "--to-earliest", "--execute"),
            run("--delete-offsets", *of_group, "--topic", scene.topic),
            run("--delete", *of_group),
        ]

    lag, refused, reset, *_ = both(scenario)
    assert ["0"] == lag
    assert ["is not empty."] == [line.split("' ")[1] for line in refused]
    assert ["0"] == reset[-1].split()[-1:]
