"""Runs a real Apache Kafka broker: one process that is broker and KRaft controller, on loopback, in its own folder.

Kafka's defaults stay, so that a comparison with it is fair, except for what one broker on a shared machine needs:
addresses, folders, replication factors of the internal topics (1 instead of 3), and the heap (`-Xmx512m` instead of
1 GiB). `overrides` changes more, as `--override` does. The jars come from `kafka_jars`.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from ottla.testing.free_ports import free_ports
from tests.compat.kafka_jars import KAFKA_VERSION, java_command, kafka_tool
from tests.waiting import PATIENCE_SECONDS, wait_until

CLUSTER_ID: Final = "b3R0bGEta2Fma2EtdGVzdA"
START_TIMEOUT_S: Final = PATIENCE_SECONDS
STOP_TIMEOUT_S: Final = 60.0
START_TRIES: Final = 3
"""Free ports are looked up before the broker binds them, so another process may take one in between."""

JVM_OPTIONS: Final = ("-server", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""Kafka's own choice of collector, with a modest heap."""

QUICK_START_JVM_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-Xmx512m", "-XX:+UseSerialGC")
"""For tests, where a broker that starts soon is worth more than one that is fast later. Not for measurements."""


class KafkaBroker:
    """One Kafka broker. Use as a context manager, or call `start` and `stop`; it can start again on the same files."""

    def __init__(
        self,
        folder: Path,
        *,
        version: str = KAFKA_VERSION,
        overrides: Mapping[str, str] | None = None,
        jvm_options: tuple[str, ...] = JVM_OPTIONS,
    ) -> None:
        self.folder = folder
        self.log_dir = folder / "data"
        self.version = version
        self.bootstrap = ""
        """The address to give to clients; known once it has started."""
        self._overrides = dict(overrides or {})
        self._jvm_options = jvm_options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Returns once clients are served; formats the data folder the first time."""
        if self._process is not None:
            raise RuntimeError(f"the broker in {self.folder} is running already")
        for attempt in range(1, START_TRIES + 1):
            properties = self._write_properties()
            if not (self.log_dir / "meta.properties").exists():
                args = ("format", "--cluster-id", CLUSTER_ID, "--config", str(properties))
                kafka_tool("kafka.tools.StorageTool", *args, version=self.version)
            self._launch(properties)
            try:
                self._wait_serving()
                return
            except BaseException:
                port_taken = "Address already in use" in self.log_text()
                self.kill()
                if not port_taken or attempt == START_TRIES:
                    raise

    def stop(self) -> None:
        """A clean shutdown; a broker that does not end in time is killed, and that is an error."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"Kafka did not shut down within {STOP_TIMEOUT_S} s\n{self._log_end()}") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends the whole process group at once, as a crash would."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def is_running(self) -> bool:
        """Whether it was started and has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    def log_text(self) -> str:
        """All that the broker wrote to its console since it last started."""
        path = self.folder / "console.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_made(self, topics: Iterable[str]) -> None:
        """Returns once new topics have a log: the controller answers their creation before the broker knows of it."""
        folders = [self.log_dir / f"{topic}-0" for topic in topics]
        wait_until(
            lambda: all(any(folder.glob("*.log")) for folder in folders),
            lambda: f"Kafka has logs in {folders}:\n{self._log_end()}",
            START_TIMEOUT_S,
        )

    def wait_cleaned(self, topic: str) -> None:
        """Returns once the cleaner's checkpoint has reached the active segment."""

        def is_cleaned() -> bool:
            active = max(int(path.stem) for path in (self.log_dir / f"{topic}-0").glob("*.log"))
            return f"{topic} 0 {active}" in (self.log_dir / "cleaner-offset-checkpoint").read_text().splitlines()

        wait_until(is_cleaned, lambda: f"Kafka has cleaned {topic}:\n{self._log_end()}")

    def properties(self, broker_port: int, controller_port: int) -> dict[str, str]:
        """What the broker is told when it starts with these ports."""
        address = f"127.0.0.1:{broker_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{address},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "log.dirs": str(self.log_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            **self._overrides,
        }

    def _write_properties(self) -> Path:
        broker_port, controller_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{broker_port}"
        properties = self.properties(broker_port, controller_port)
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path

    def _launch(self, properties: Path) -> None:
        options = (*self._jvm_options, "-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.showDateTime=true")
        command = java_command("kafka.Kafka", str(properties), version=self.version, jvm_options=options)
        with (self.folder / "console.log").open("wb") as console:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait_serving(self) -> None:
        """Asks until the broker names itself and answers for every partition; librdkafka waits between tries."""
        deadline = time.monotonic() + START_TIMEOUT_S
        admin = AdminClient(
            {
                "bootstrap.servers": self.bootstrap,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        while True:
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"Kafka ended while it started; its last words:\n{self._log_end()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"Kafka does not serve after {START_TIMEOUT_S:g} s:\n{self._log_end()}")
            with contextlib.suppress(KafkaException, TimeoutError):
                if _serves_everything(admin):
                    return

    def _log_end(self) -> str:
        return self.log_text()[-6000:]


def _serves_everything(admin: AdminClient) -> bool:
    """Whether the broker is a member of its cluster and leads all partitions that there are; raises if it is not."""
    metadata = admin.list_topics(timeout=1)
    if not metadata.brokers:
        return False
    # After a restart the broker knows its partitions before it leads them.
    partitions = [TopicPartition(name, at) for name, topic in metadata.topics.items() for at in topic.partitions]
    if partitions:
        spec: Any = OffsetSpec
        for answer in admin.list_offsets({each: spec.latest() for each in partitions}).values():
            answer.result(1)
    return True
