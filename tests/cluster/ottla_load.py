"""A program: Ottla's own clients as a load, with everything they are told in a history.

    python -m tests.cluster.ottla_load BOOTSTRAP HISTORY NAME PARTITIONS ROLES PROPERTIES

Roles, with commas: `writer` (idempotent, acks=all, to `plain`), `reader` (of `plain`, from the start), `visitor` (a new
producer for each record to `plain`). The properties are those of Kafka's tools. Input and output are those of
`tests/chaos/librdkafka_load.py`.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ottla import Consumer, Producer, TopicPartition
from ottla.client.properties import read_properties, security_options
from ottla.model.errors import OttlaError
from tests.chaos.history import HistoryWriter

TOPIC: Final = "plain"
WRITING: Final = frozenset({"writer", "visitor"})
PAUSE_SECONDS: Final = 0.02
VISIT_SECONDS: Final = 0.3
GIVE_UP_SECONDS: Final = 90.0


class Load:
    """One run of the program."""

    def __init__(self, options: dict[str, Any], history: HistoryWriter, name: str, partitions: int) -> None:
        self._options = options
        self._history = history
        self._name = name
        self._partitions = partitions
        self._is_quiet = threading.Event()
        self._is_over = threading.Event()

    def writer(self) -> None:
        """A record to each partition at every turn."""
        number = 0
        with self._producer("writer") as producer:
            while not self._is_quiet.wait(PAUSE_SECONDS):
                number += 1
                for partition in range(self._partitions):
                    self._send(producer, "writer", partition, number)
            producer.flush(GIVE_UP_SECONDS)

    def visitor(self) -> None:
        """A new producer for each record: connections that are opened all the time."""
        number = 0
        while not self._is_quiet.wait(VISIT_SECONDS):
            number += 1
            role = f"visitor-{number}"
            try:
                with self._producer(role) as producer:
                    self._send(producer, role, number % self._partitions, number)
            except OttlaError as error:
                self._tell("visitor", "trouble", error=repr(error))

    def reader(self) -> None:
        """Everything from the start."""
        everything = [TopicPartition(TOPIC, at) for at in range(self._partitions)]
        with Consumer(**self._options, client_id=f"{self._name}-reader", auto_offset_reset="earliest") as consumer:
            consumer.assign(everything)
            for each in everything:
                self._tell("reader", "began", at=f"{TOPIC}-{each.partition}")
            while not self._is_over.is_set():
                try:
                    found = consumer.poll(timeout_ms=100)
                except OttlaError as error:
                    self._tell("reader", "trouble", error=repr(error))
                    continue
                records = [
                    (f"{each.topic}-{each.partition}", each.offset, _text(each.value))
                    for lines in found.values()
                    for each in lines
                ]
                if records:
                    self._tell("reader", "read", records=records)

    def _producer(self, role: str) -> Producer:
        return Producer(
            **self._options,
            client_id=f"{self._name}-{role}",
            acks="all",
            enable_idempotence=True,
            delivery_timeout_ms=int(GIVE_UP_SECONDS * 1000),
        )

    def _send(self, producer: Producer, role: str, partition: int, number: int) -> None:
        at, value = f"{TOPIC}-{partition}", f"{self._name}-{role}:{partition}:{number}"
        self._tell(role, "sent", at=at, value=value)

        def told(delivery: Any) -> None:
            error = delivery.exception()
            if error is None:
                self._tell(role, "acked", at=at, value=value, offset=delivery.result().offset)
            else:
                self._tell(role, "failed", at=at, value=value, error=repr(error))

        producer.send(TOPIC, value.encode(), partition=partition).add_done_callback(told)

    def _tell(self, role: str, what: str, **more: Any) -> None:
        self._history.write(f"{self._name}-{role}", what, **more)

    def run(self, roles: list[str]) -> None:
        """Runs the roles as the program's input says."""
        works: dict[str, Callable[[], None]] = {
            "writer": self.writer,
            "visitor": self.visitor,
            "reader": self.reader,
        }
        threads = {role: threading.Thread(target=works[role], name=role) for role in roles}
        for each in threads.values():
            each.start()
        sys.stdin.readline()
        self._is_quiet.set()
        for role in WRITING & threads.keys():
            threads[role].join()
        self._history.flush()
        print("quiet", flush=True)
        sys.stdin.read()
        self._is_over.set()
        for each in threads.values():
            each.join()


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else ""


def main() -> None:
    """See the module's docstring."""
    bootstrap, path, name, partitions, roles, properties = sys.argv[1:]
    options = {"bootstrap_servers": bootstrap, **security_options(read_properties(properties))}
    with Path(path).open("w") as file:
        print("ready", flush=True)
        Load(options, HistoryWriter(file), name, int(partitions)).run(roles.split(","))


if __name__ == "__main__":
    main()
