"""A cluster in a network of its own, with its metadata store and its clients, each in a place: what faults are done to.

`arena` makes it and takes all of it away again. The brokers are `ottla.testing`'s processes; ZooKeeper's servers are
`tests.cluster.zookeeper`'s. The clients are programs that write a history (`history.py`). In a secured arena brokers
and clients use SASL_SSL with SCRAM and ACLs and log in again every few seconds; ZooKeeper has TLS and SASL for brokers.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from ottla.testing import BrokerCluster, BrokerHandle, ProcessBroker
from tests.chaos.checker import Contents
from tests.chaos.history import Event, read_events
from tests.chaos.network import Network, Place, network
from tests.cluster.cluster_security import ClusterSecurity, client_acls
from tests.cluster.zookeeper import ZooKeeperEnsemble
from tests.cluster.zookeeper_security import ZooKeeperSecurity
from tests.compat.kafka_jars import SHORT_LIVED_JVM, compile_java, java_command
from tests.processes import Program

SESSION_SECONDS: Final = 3.0
LAG_SECONDS: Final = 5.0
PARTITIONS: Final = 3
TOPICS: Final = ("plain", "moves", "copies")
BROKERS_MAX: Final = 4
APP: Final = "app"
"""The user of all clients in a secured arena."""
SESSION_LIFETIME_MS: Final = 5000
"""In a secured arena, connections log in again after this time."""
SERVERS: Final = 3
CLIENTS: Final = "clients"
READ_SECONDS: Final = 60.0


class LoadProcess(Program):
    """A program that writes a history until it is told to end."""

    def __init__(self, command: Sequence[str], place: Place | None, history: Path) -> None:
        self.name, self.history = history.stem, history
        super().__init__([*(place.launcher if place else ()), *command], history.with_suffix(""), has_input=True)

    def wait_said(self, word: str) -> None:
        """Returns when the program says so; raises if it ends instead, or says nothing."""
        try:
            assert word == self.next_line()
        except AssertionError as error:
            # The programs tell where they hang.
            self.send(signal.SIGUSR1)
            with suppress(AssertionError):
                self.wait(1)
            error.add_note(self.log_end)
            raise

    def end(self) -> None:
        """Returns when everything has ended; raises if it failed."""
        self.end_input()
        assert 0 == self.wait(), self.log_end


class LoadProgram(NamedTuple):
    """A program that is a load."""

    command: Sequence[str]
    """What its command line begins with; `start_load` adds addresses, history, name, partitions and roles."""
    roles: str
    security_options: Callable[[ClusterSecurity], Mapping[str, str]]
    """The options of its clients in a secured arena."""


class Arena:
    """Made by `arena`."""

    def __init__(
        self,
        folder: Path,
        net: Network,
        cluster: BrokerCluster,
        zookeeper: ZooKeeperEnsemble | None,
        security: ClusterSecurity | None,
        stack: ExitStack,
    ) -> None:
        self.folder = folder
        self.network = net
        self.cluster = cluster
        self.zookeeper = zookeeper
        self.security = security
        self.loads: list[LoadProcess] = []
        self._stack = stack

    def start_load(self, name: str, program: LoadProgram) -> LoadProcess:
        """Starts a program in the clients' place."""
        history = self.folder / f"{name}.history"
        words = [*program.command, self.cluster.bootstrap, str(history), name, str(PARTITIONS), program.roles]
        if self.security is not None:
            options = program.security_options(self.security)
            path = self.folder / f"{name}.properties"
            path.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
            words.append(str(path))
        load = self._stack.enter_context(LoadProcess(words, self.network.places[CLIENTS], history))
        self.loads.append(load)
        load.wait_said("ready")
        return load

    def end_loads(self) -> list[Event]:
        """Ends all programs, first what writes, then what reads; answers what they saw."""
        for load in self.loads:
            load.write("quiet")  # what writes is to end
        for load in self.loads:
            load.wait_said("quiet")
        for load in self.loads:
            load.end()
        return self.events()

    def events(self) -> list[Event]:
        """What is in the histories now."""
        return read_events(load.history for load in self.loads)

    def leader(self, topic: str = "plain", partition: int = 0) -> BrokerHandle:
        """Who leads a partition."""
        return self.cluster.leader_of(topic, partition)

    def others(self, broker: BrokerHandle) -> list[BrokerHandle]:
        """All brokers but one."""
        return [each for each in self.cluster.brokers if each.id != broker.id]

    def servers(self) -> list[str]:
        """The places of ZooKeeper's servers."""
        return [f"z{number}" for number in self.zookeeper.ids] if self.zookeeper else []

    def contents(self) -> Contents:
        """Everything that is committed in the topics, read from the start to the end that there is now."""
        return read_contents(
            self.cluster.bootstrap, TOPICS, {} if self.security is None else self.security.librdkafka_options(APP)
        )


def read_contents(bootstrap: str, topics: Iterable[str], options: Mapping[str, str]) -> Contents:
    """What is committed in topics with `PARTITIONS` partitions; `options` are more of librdkafka's."""
    consumer = Consumer(
        {
            **options,
            "bootstrap.servers": bootstrap,
            "group.id": "contents",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    partitions = [TopicPartition(topic, at, OFFSET_BEGINNING) for topic in topics for at in range(PARTITIONS)]
    found: dict[str, list[tuple[int, str]]] = {f"{each.topic}-{each.partition}": [] for each in partitions}
    try:
        consumer.assign(partitions)
        _read_to_ends(consumer, found)
    finally:
        consumer.close()
    return found


def place_of(broker: BrokerHandle) -> str:
    """The name of a broker's place."""
    return f"b{broker.id}"


def _read_to_ends(consumer: Consumer, found: dict[str, list[tuple[int, str]]]) -> None:
    waiting = set(found)
    deadline = time.monotonic() + READ_SECONDS
    while waiting:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the ends of {sorted(waiting)} cannot be reached after {READ_SECONDS:.0f} s")
        for each in consumer.consume(1000, 0.5):
            at = f"{each.topic()}-{each.partition()}"
            value = each.value()
            error = each.error()
            if error is not None:
                # Any other error is one that the consumer gets over.
                if error.code() == KafkaError._PARTITION_EOF and _is_end(consumer, each):
                    waiting.discard(at)
            elif isinstance(value, bytes):
                found[at].append((each.offset() or 0, value.decode()))


def _is_end(consumer: Consumer, ended: Message) -> bool:
    """Whether the end of what is committed is that of the partition: a transaction that a client left open, or whose
    markers are being written, hides what follows until it has ended. Then the end is told again.
    """
    found = consumer.get_watermark_offsets(TopicPartition(ended.topic() or "", ended.partition() or 0), cached=True)
    return found is not None and found[1] <= (ended.offset() or 0)


def librdkafka_load(roles: str) -> LoadProgram:
    """`librdkafka_load.py`."""
    command = [sys.executable, "-m", "tests.chaos.librdkafka_load"]
    return LoadProgram(command, roles, lambda security: security.librdkafka_options(APP))


def java_load(classes: Path, roles: str) -> LoadProgram:
    """`JavaLoad.java`, which is compiled into `classes` the first time."""
    if not (classes / "JavaLoad.class").exists():
        classes.mkdir(exist_ok=True)
        compile_java(Path(__file__).with_name("JavaLoad.java"), classes)
    command = java_command("JavaLoad", jvm_options=SHORT_LIVED_JVM, extra_path=str(classes))
    return LoadProgram(command, roles, lambda security: security.java_options(APP))


def share_load(roles: str) -> LoadProgram:
    """`share_load.py`; without logins."""
    return LoadProgram([sys.executable, "-m", "tests.chaos.share_load"], roles, lambda _: {})


@contextmanager
def arena(
    folder: Path, store: str, *, is_secured: bool = False, configs: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Arena]:
    """Three brokers on `zookeeper` or `sqlite`, with the topics that loads use. Only the folder is left of it.

    `configs` are more of the brokers'.
    """
    with ExitStack() as stack:
        brokers = [f"b{number}" for number in range(BROKERS_MAX)]
        servers = [f"z{number + 1}" for number in range(SERVERS)] if store == "zookeeper" else []
        net = stack.enter_context(network([*brokers, *servers, CLIENTS]))
        security = ClusterSecurity(folder / "security", APP) if is_secured else None
        chosen = {
            "broker.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
            "replica.lag.time.max.ms": str(int(LAG_SECONDS * 1000)),
            **configs,
        }
        zookeeper, addresses = None, ""
        if servers:
            places = [net.places[name] for name in servers]
            guard = None if security is None else ZooKeeperSecurity(security.certificates, places)
            server_options: dict[str, Any] = {} if guard is None else guard.server_options()
            zookeeper = stack.enter_context(
                ZooKeeperEnsemble(folder / "zookeeper", SERVERS, places=places, **server_options)
            )
            addresses = zookeeper.servers if guard is None else guard.addresses
            chosen |= {} if guard is None else guard.broker_configs()

        def make(at: Path, configs: Mapping[str, str], *, metadata: Path) -> ProcessBroker:
            where: dict[str, Any] = (
                {"metadata": metadata} if not addresses else {"store": f"zookeeper://{addresses}/ottla"}
            )
            place = net.places[f"b{configs['node.id']}"]
            if security is not None:
                return security.make_broker(at, configs, place, **where)
            return ProcessBroker(at, configs, host=place.address, launcher=place.launcher, **where)

        if security is not None:
            chosen["connections.max.reauth.ms"] = str(SESSION_LIFETIME_MS)
        options = {} if security is None else security.client_options()
        cluster = stack.enter_context(BrokerCluster(folder / "brokers", chosen, kind=make, client_options=options))
        if security is not None:
            with security.admin(cluster.bootstrap) as admin:
                admin.create_acls(client_acls(APP))
        for topic in TOPICS:
            cluster.create_topic(topic, PARTITIONS)
        yield Arena(folder, net, cluster, zookeeper, security, stack)
