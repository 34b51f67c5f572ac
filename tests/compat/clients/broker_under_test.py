"""The broker that the clients judge: Ottla, or Apache Kafka when `OTTLA_COMPAT_TARGET=kafka`.

Both keep their address when they start again: a client that was told one address must find the broker there.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.compat.kafka_broker import QUICK_START_JVM_OPTIONS, KafkaBroker
from tests.compat.ottla_broker import OttlaBroker

TARGET: Final = os.environ.get("OTTLA_COMPAT_TARGET", "ottla")

SETTLE_TIMEOUT_S: Final = 10.0

Broker = OttlaBroker | KafkaBroker
Answer = TypeVar("Answer")


class SteadyKafkaBroker(KafkaBroker):
    """A Kafka broker that comes back at the address where it was."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as client, socket.socket() as controller:
            client.bind(("127.0.0.1", 0))
            controller.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{client.getsockname()[1]}"
            controller_address = f"127.0.0.1:{controller.getsockname()[1]}"
        overrides = {
            "listeners": f"PLAINTEXT://{self._address},CONTROLLER://{controller_address}",
            "advertised.listeners": f"PLAINTEXT://{self._address}",
            "controller.quorum.voters": f"1@{controller_address}",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
        }
        super().__init__(folder, overrides=overrides, jvm_options=QUICK_START_JVM_OPTIONS)

    def _write_properties(self) -> Path:
        path = super()._write_properties()
        self.bootstrap = self._address
        return path


def broker_under_test(folder: Path) -> Broker:
    """A broker that is not started yet, with its default settings."""
    match TARGET:
        case "ottla":
            return OttlaBroker(folder)
        case "kafka":
            return SteadyKafkaBroker(folder)
        case _:
            raise ValueError(f"OTTLA_COMPAT_TARGET is {TARGET!r}; it can be ottla or kafka")


def settled(ask: Callable[[], Answer], expected: Answer) -> Answer:
    """The answer, asked for again until it is as expected where the broker may need a moment: Kafka's clients hear of a
    change from its controller, and its broker learns of it later. Ottla's answer means that the change is done.
    """
    deadline = time.monotonic() + (SETTLE_TIMEOUT_S if TARGET == "kafka" else 0.0)
    while (answer := ask()) != expected and time.monotonic() < deadline:
        pass
    return answer


def wait_led(bootstrap: str, topic: str, partitions: int) -> None:
    """Returns once every partition of a new topic has its leader, which for Ottla is at once.

    A batch that Kafka refuses because the partition is not led yet can be overtaken by the next one. The partition then
    begins with that, and an idempotent producer never gets the first one in.
    """
    if TARGET != "kafka":
        return
    spec: Any = OffsetSpec
    asked = {TopicPartition(topic, partition): spec.latest() for partition in range(partitions)}
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while time.monotonic() < deadline:
        # A new client each time: librdkafka remembers for a while that it did not find a topic.
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        with contextlib.suppress(KafkaException):
            for answer in admin.list_offsets(asked).values():
                answer.result(SETTLE_TIMEOUT_S)
            return
    raise TimeoutError(f"{topic} is not led after {SETTLE_TIMEOUT_S} s")
