"""The broker that the clients judge: Ottla, or Apache Kafka when `OTTLA_COMPAT_TARGET` is kafka, or kafka-3.9.

Both keep their address when they start again: a client that was told one address must find the broker there.
"""

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from ottla.testing.free_ports import free_ports
from tests.compat.kafka_broker import QUICK_START_JVM_OPTIONS, KafkaBroker
from tests.compat.kafka_jars import KAFKA_VERSION, OLD_KAFKA_VERSION
from tests.compat.ottla_broker import OttlaBroker
from tests.waiting import PATIENCE_SECONDS, tries

TARGET: Final = os.environ.get("OTTLA_COMPAT_TARGET", "ottla")
KAFKA_VERSIONS: Final = {"kafka": KAFKA_VERSION, "kafka-3.9": OLD_KAFKA_VERSION}
"""The Kafka that each target but Ottla stands for."""
IS_KAFKA: Final = TARGET in KAFKA_VERSIONS


GROUP_SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.session.timeout.ms": "15000",
    "group.consumer.min.session.timeout.ms": "15000",
}
"""Groups of few members need not wait for more, and those whose timing the broker sets are as quick as the others."""

TRANSACTION_SETTINGS: Final = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
"""How often a coordinator looks for transactions that take too long."""

Broker = OttlaBroker | KafkaBroker
Answer = TypeVar("Answer")


class SteadyKafkaBroker(KafkaBroker):
    """A Kafka broker that comes back at the address where it was.

    It talks to itself at another one, so that nobody between it and its clients comes between it and itself.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str], advertised: str | None, version: str) -> None:
        self._address, self._own_address, controller_address = (f"127.0.0.1:{port}" for port in free_ports(3))
        overrides = {
            "listeners": f"PLAINTEXT://{self._address},OWN://{self._own_address},CONTROLLER://{controller_address}",
            "advertised.listeners": f"PLAINTEXT://{advertised or self._address},OWN://{self._own_address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OWN:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "OWN",
            "controller.quorum.voters": f"1@{controller_address}",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            **settings,
        }
        if version == OLD_KAFKA_VERSION:
            # What a new Kafka does by itself: groups that the coordinator shares out for.
            overrides["group.coordinator.rebalance.protocols"] = "classic,consumer"
        super().__init__(folder, version=version, overrides=overrides, jvm_options=QUICK_START_JVM_OPTIONS)
        self.bootstrap = self._address

    def _write_properties(self) -> Path:
        path = super()._write_properties()
        self.bootstrap = self._address
        return path

    def _wait_serving(self) -> None:
        # Whatever it advertises to clients, here it can be asked.
        self.bootstrap = self._own_address
        super()._wait_serving()
        self.bootstrap = self._address


def broker_under_test(
    folder: Path, settings: Mapping[str, str] | None = None, *, advertised: str | None = None
) -> Broker:
    """A broker that is not started yet; its settings are the defaults, except for those here and what is given.

    `advertised` is the address that clients are told, if it is not the broker's own.
    """
    settings = {**GROUP_SETTINGS, **TRANSACTION_SETTINGS, **(settings or {})}
    match TARGET:
        case "ottla":
            told = {} if advertised is None else {"advertised.listeners": f"PLAINTEXT://{advertised}"}
            return OttlaBroker(folder, overrides={**settings, **told})
        case "kafka" | "kafka-3.9":
            return SteadyKafkaBroker(folder, settings, advertised, KAFKA_VERSIONS[TARGET])
        case _:
            raise ValueError(f"OTTLA_COMPAT_TARGET is {TARGET!r}; it can be ottla, {' or '.join(KAFKA_VERSIONS)}")


def settled(ask: Callable[[], Answer], expected: Answer) -> Answer:
    """The answer, asked for again until it is as expected where the broker may need a moment: Kafka's clients hear of a
    change from its controller, and its broker learns of it later. Ottla's answer means that the change is done.
    """
    deadline = time.monotonic() + (PATIENCE_SECONDS if IS_KAFKA else 0.0)
    while (answer := ask()) != expected and time.monotonic() < deadline:
        pass
    return answer


def wait_led(bootstrap: str, topic: str, partitions: int) -> None:
    """Returns once every partition of a new topic has its leader, which for Ottla is at once.

    A batch that Kafka refuses because the partition is not led yet can be overtaken by the next one. The partition then
    begins with that, and an idempotent producer never gets the first one in.
    """
    if not IS_KAFKA:
        return
    spec: Any = OffsetSpec
    asked = {TopicPartition(topic, partition): spec.latest() for partition in range(partitions)}
    for _ in tries(f"{topic} is led"):
        # A new client each time: librdkafka remembers for a while that it did not find a topic.
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        with contextlib.suppress(KafkaException):
            for answer in admin.list_offsets(asked).values():
                answer.result(PATIENCE_SECONDS)
            return
