"""A consumer that handles records, and commits before or after; run as a process, to be killed.

`python -m tests.crash.handling JSON` with the fields of `Task`. To handle a record is to write its value into a file:
an effect outside of the broker, which no transaction takes back. The consumer stops itself once, at the place where its
death hurts: between the two.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from tests.crash.etl import stop_here

BATCH: Final = 10
POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a consumer is told. It stops itself after so many batches, never if that is 0."""

    bootstrap: str
    group: str
    topic: str
    effects: str
    commits_first: bool
    stop_after: int = 0

    def command(self) -> list[str]:
        """How to run it."""
        return [sys.executable, "-m", "tests.crash.handling", json.dumps(asdict(self))]


def run(task: Task) -> None:
    """Until killed."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": task.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # The next consumer takes the killed one's place at once, and a busy machine does not end its session.
            "group.instance.id": "handler",
            "session.timeout.ms": 60_000,
            "heartbeat.interval.ms": 100,
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "metadata.recovery.strategy": "none",
        }
    )
    consumer.subscribe([task.topic], on_revoke=lambda *_: None)
    effects = os.open(task.effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    batches = 0
    while True:
        records = [record for record in consumer.consume(BATCH, POLL_SECONDS) if record.error() is None]
        if not records:
            continue
        batches += 1
        work = [partial(handle, effects, records), partial(commit, consumer, records)]
        first, second = reversed(work) if task.commits_first else work
        first()
        if batches == task.stop_after:
            stop_here()
        second()


def handle(effects: int, records: list[Any]) -> None:
    """The effect of all of them, at once."""
    os.write(effects, b"".join(record.value() + b"\n" for record in records))


def commit(consumer: Any, records: list[Any]) -> None:
    """Where the group goes on; tried until the broker has it."""
    from confluent_kafka import KafkaException, TopicPartition

    ends = {(record.topic(), record.partition()): record.offset() + 1 for record in records}
    places = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]
    while True:
        try:
            for place in consumer.commit(offsets=places, asynchronous=False):
                if place.error is not None:
                    raise KafkaException(place.error)
            return
        except KafkaException as error:
            print(f"commits again: {error}", file=sys.stderr, flush=True)
            if not error.args[0].retriable():
                raise


if __name__ == "__main__":
    run(Task(**json.loads(sys.argv[1])))
