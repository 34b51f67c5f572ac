"""The two rivals as clusters of three: Apache Kafka with KRaft, each process broker and controller, and Ottla.

Both have their default settings, besides addresses and folders, and what makes a topic safe: three replicas, of which
two must have what is acknowledged. Ottla keeps its metadata in a file that its three brokers share (SQLite), or in a
ZooKeeper ensemble of three.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.kafka_race.brokers import (
    CLUSTER_ID,
    COMMON_SETTINGS,
    Address,
    Kafka,
    Recipe,
    RunningBroker,
    kafka_properties,
)
from benchmarks.kafka_race.process_usage import cpu_seconds
from ottla.testing.free_ports import free_port
from tests.compat.kafka_jars import kafka_tool

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

BROKERS: Final = 3
PATIENCE_S: Final = 180.0
ADMIN_TIMEOUT_S: Final = 60.0
_ASK_S: Final = 0.02
SETTINGS: Final = {
    **COMMON_SETTINGS,
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class KafkaMember(Kafka):
    """One of three Kafka brokers; `voters` are the controllers of all."""

    def __init__(self, number: int, voters: str) -> None:
        self._number = number
        self._voters = voters

    def prepare(self, folder: Path, address: Address) -> None:
        """Writes the properties file and formats the log folder."""
        own = {"node.id": str(self._number), "controller.quorum.voters": self._voters}
        settings = folder / "server.properties"
        settings.write_text(kafka_properties(folder, address, {**SETTINGS, **own}))
        kafka_tool("kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(settings))


class OttlaMember:
    """One of three Ottla brokers with one metadata store."""

    name = "ottla"

    def __init__(self, number: int, metadata: str) -> None:
        self._number = number
        self._metadata = metadata

    def prepare(self, folder: Path, address: Address) -> None:
        """Ottla makes its data folder itself."""

    def command(self, folder: Path, address: Address) -> list[str]:
        """As a user starts it."""
        words = ["--data", str(folder / "data"), "--listen", address.bootstrap, "--metadata", self._metadata]
        settings = {**SETTINGS, "node.id": str(self._number)}
        words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return [sys.executable, "-m", "ottla", "serve", *words]

    def environment(self, folder: Path) -> dict[str, str]:
        """With bytecode kept, as an installed Ottla has it."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


class RaceCluster:
    """Three brokers, numbered from 1 on as Kafka's ids are; killed, stopped and started one by one."""

    def __init__(self, name: str, brokers: dict[int, RunningBroker]) -> None:
        self.name = name
        self.brokers = brokers
        self.bootstrap = ",".join(each.address.bootstrap for each in brokers.values())

    @property
    def pids(self) -> list[int]:
        """Of all brokers; all must run."""
        return [each.pid for each in self.brokers.values()]

    def start(self) -> None:
        """Returns when all are in the cluster."""
        for each in self.brokers.values():
            each.start()
        for each in self.brokers.values():
            each.wait_listening()
        admin = self.admin()
        self.wait(lambda: len(admin.list_topics(timeout=5).brokers) == BROKERS, "all brokers to be in it")

    def stop(self) -> None:
        """Kills all at once: their data is not needed, and the last of three Kafkas would wait for the others."""
        for each in self.brokers.values():
            each.kill()

    def check_alive(self) -> None:
        """Raises with a broker's last words if it has ended."""
        for each in self.brokers.values():
            each.check_alive()

    def cpu_seconds(self) -> float:
        """What all brokers have used so far."""
        return sum(map(cpu_seconds, self.pids))

    def admin(self) -> "AdminClient":
        """A client that knows all brokers."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition; -1 without a leader."""
        admin = self.admin()
        partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
        return {number: int(each.leader) for number, each in partitions.items()}

    def wait_in_sync(self, topic: str | None = None) -> None:
        """Returns when every partition, or every one of a topic, has all its replicas in sync."""
        admin = self.admin()

        def is_so() -> bool:
            found = admin.list_topics(topic, timeout=30)
            return len(found.brokers) == BROKERS and all(
                each.leader >= 0 and len(each.isrs) == len(each.replicas)
                for one in found.topics.values()
                for each in one.partitions.values()
            )

        self.wait(is_so, f"{topic or 'all topics'} to be in sync")

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        """Asks until it is so. Raises TimeoutError."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                if is_so():
                    return
            time.sleep(_ASK_S)
        raise TimeoutError(f"{self.name}: waited {PATIENCE_S:.0f} s for {what}")

    @contextlib.contextmanager
    def topic(self, name: str, partitions: int) -> Iterator[None]:
        """A topic for the time of the block, led and in sync at its beginning."""
        from confluent_kafka.admin import NewTopic

        admin = self.admin()
        admin.create_topics([NewTopic(name, partitions, BROKERS)])[name].result(ADMIN_TIMEOUT_S)
        self.wait_in_sync(name)
        try:
            yield
        finally:
            admin.delete_topics([name])[name].result(ADMIN_TIMEOUT_S)


def kafka_cluster(folder: Path) -> RaceCluster:
    """Prepared, not started."""
    addresses = _addresses()
    voters = ",".join(f"{number}@127.0.0.1:{each.controller_port}" for number, each in addresses.items())
    return _cluster(folder / "kafka", addresses, {number: KafkaMember(number, voters) for number in addresses})


def ottla_cluster(folder: Path, metadata: str | None = None) -> RaceCluster:
    """Prepared, not started; without a store, the metadata are in a file that all share."""
    addresses = _addresses()
    folder = folder / "ottla"
    folder.mkdir(parents=True)
    store = metadata or f"sqlite:{folder / 'metadata.db'}"
    return _cluster(folder, addresses, {number: OttlaMember(number, store) for number in addresses})


def _addresses() -> dict[int, Address]:
    return {number: Address(port=free_port(), controller_port=free_port()) for number in range(1, BROKERS + 1)}


def _cluster(
    folder: Path, addresses: dict[int, Address], recipes: dict[int, KafkaMember] | dict[int, OttlaMember]
) -> RaceCluster:
    made: dict[int, Recipe] = dict(recipes)
    brokers = {number: RunningBroker(each, folder / str(number), addresses[number]) for number, each in made.items()}
    return RaceCluster(made[1].name, brokers)
