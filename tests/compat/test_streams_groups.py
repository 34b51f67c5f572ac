"""A Kafka Streams application with `group.protocol=streams`, exactly once, on Apache Kafka and on Ottla.

Two instances count words through a repartition topic and a changelog topic, and one of them is killed. Every count must
come out exactly once, in order: a record that is processed twice repeats one, a lost record leaves one out. What the
tools of Kafka show of the group, and the internal topics that the broker created, must be the same on both.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic, ResourceType

from tests.compat.kafka_broker import QUICK_START_JVM_OPTIONS, KafkaBroker
from tests.compat.kafka_jars import kafka_tool
from tests.compat.kafkas_word import KafkasWord, readable
from tests.compat.ottla_broker import OttlaBroker
from tests.compat.streams.applications import WordCounts
from tests.waiting import PATIENCE_SECONDS

TOOL: Final = "org.apache.kafka.tools.streams.StreamsGroupCommand"
WORDS: Final = 20
FIRST, ALL = 1000, 2000
OVERRIDES: Final = {
    "group.streams.min.session.timeout.ms": "2000",
    "group.streams.session.timeout.ms": "3000",
    "group.streams.min.heartbeat.interval.ms": "300",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.initial.rebalance.delay.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
"""The shortest times, so that the dead instance is noticed soon."""


@pytest.fixture
def quick_kafka(tmp_path: Path) -> Iterator[KafkaBroker]:
    """A Kafka with the shortest times."""
    with KafkaBroker(tmp_path / "kafka", overrides=OVERRIDES, jvm_options=QUICK_START_JVM_OPTIONS) as broker:
        yield broker


@pytest.fixture
def quick_ottla(tmp_path: Path) -> Iterator[OttlaBroker]:
    """An Ottla with the shortest times."""
    with OttlaBroker(tmp_path / "ottla", overrides=OVERRIDES) as broker:
        yield broker


class Counts:
    """All counts that the application committed, by word, in the order in which they came."""

    def __init__(self, bootstrap: str) -> None:
        self.by_word: dict[str, list[int]] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "judge",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe(["word-counts"])

    def read_until(self, total: int, *instances: WordCounts) -> None:
        """Reads until there are this many; an application that does not get there fails with its log."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while sum(map(len, self.by_word.values())) < total:
            if time.monotonic() > deadline:
                logs = "\n".join(instance.log()[-6000:] for instance in instances)
                raise TimeoutError(f"only {sum(map(len, self.by_word.values()))} of {total} counts:\n{logs}")
            found = self._consumer.poll(0.5)
            if found is None or found.error() is not None:
                continue
            word, count = found.key(), found.value()
            assert isinstance(word, bytes)
            assert isinstance(count, bytes)
            self.by_word.setdefault(word.decode(), []).append(int.from_bytes(count, "big"))

    def rest(self) -> None:
        """Reads what may have come after all that should have come."""
        while (found := self._consumer.poll(1.0)) is not None:
            assert found.error() is not None, (found.key(), found.value())
        self._consumer.close()


def feed(bootstrap: str, start: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(start, end):
        producer.produce("words", f"word-{number % WORDS}", partition=number % 4)
    assert producer.flush(30) == 0


def create_topics(bootstrap: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic("words", 4, 1), NewTopic("word-counts", 2, 1)]).values():
        created.result(30)
    return admin


def table(bootstrap: str, *args: str) -> list[list[str]]:
    """What the tool prints, row by row, without the header; the last cell takes the rest of its row."""
    lines = kafka_tool(TOOL, "--bootstrap-server", bootstrap, *args).stdout.splitlines()
    cells = len(lines[0].split()) if lines else 0
    rows = [line.split(None, cells - 1) for line in lines if line.strip()]
    return rows[1:]


def tasks_of_members(bootstrap: str, counts: list[int]) -> list[list[tuple[str, int]]]:
    """The active tasks of each member, after all have what they are to have, and that are so many tasks each.

    An instance may start long after the other one: it then joins when all words have been counted.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        rows = table(bootstrap, "--describe", "--group", "counter", "--members", "--verbose")
        found = [re.match(r"ACTIVE: (.*?);? *TARGET-ACTIVE: (.*?);? *$", row[-1]) for row in rows]
        tasks = [_tasks(each[1]) for each in found if each is not None and each[1] == each[2]]
        if counts == [len(each) for each in tasks] and len(tasks) == len(rows):
            return tasks
        assert time.monotonic() < deadline, rows


def wait_table(bootstrap: str, expected: list[list[str]], *args: str) -> list[list[str]]:
    """Returns when the tool prints these rows, in any order: an instance commits its last positions a little later."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while expected != (found := sorted(table(bootstrap, *args))):
        assert time.monotonic() < deadline, found
    return found


def _tasks(text: str) -> list[tuple[str, int]]:
    """The tasks of a text such as `0:[1,2]; 1:[0]`."""
    return [
        (subtopology, int(at)) for subtopology, run in re.findall(r"(\d+):\[([\d,]+)\]", text) for at in run.split(",")
    ]


def own_configs(admin: AdminClient, topic: str) -> dict[str, str | None]:
    """The configs that were set when the topic was created."""
    (asked,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    source = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: each.value for name, each in asked.result(30).items() if each.source == source}


@pytest.mark.timeout(600)  # one broker after the other, if Kafka runs
def test_counts_exactly_once_through_a_killed_instance(
    kafkas_word: KafkasWord, quick_ottla: OttlaBroker, tmp_path: Path
) -> None:
    theirs = kafkas_word(lambda kafka: count_words(kafka.bootstrap, tmp_path / "on-kafka"), broker="quick_kafka")
    assert theirs == readable(count_words(quick_ottla.bootstrap, tmp_path / "on-ottla"))


def count_words(bootstrap: str, folder: Path) -> dict[str, Any]:
    """What a user sees of an application whose first instance is killed halfway."""
    shown: dict[str, Any] = {}
    admin = create_topics(bootstrap)
    feed(bootstrap, 0, FIRST)
    counts = Counts(bootstrap)
    with (
        WordCounts(folder / "one", bootstrap, "counter") as one,
        WordCounts(folder / "two", bootstrap, "counter") as two,
    ):
        counts.read_until(FIRST, one, two)
        everything = [(subtopology, at) for subtopology in "01" for at in range(4)]
        members = tasks_of_members(bootstrap, [2, 2, 2, 2])
        assert everything == sorted(task for tasks in members for task in tasks)
        one.kill()
        feed(bootstrap, FIRST, ALL)
        counts.read_until(ALL, two)
        members = tasks_of_members(bootstrap, [4, 4])
        assert everything == sorted(task for tasks in members for task in tasks)
        shown["groups"] = wait_table(bootstrap, [["counter", "Stable"]], "--list", "--state")
        expected = [
            ["counter", topic, str(at), "0"] for topic in ("counter-by-word-repartition", "words") for at in range(4)
        ]
        shown["positions"] = wait_table(bootstrap, expected, "--describe", "--group", "counter")
    counts.rest()
    expected_counts = list(range(1, ALL // WORDS + 1))
    assert {f"word-{number}": expected_counts for number in range(WORDS)} == counts.by_word
    internal = ("counter-by-word-repartition", "counter-counts-changelog")
    return {**shown, "configs": {topic: own_configs(admin, topic) for topic in internal}}
