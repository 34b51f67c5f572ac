"""The two rivals as processes: Apache Kafka from its jars, and Ottla from this tree.

Both get a folder of their own, a free port and their default settings. Kafka runs as its own start script runs it: one
process that is broker and controller, a heap of 1 GiB and the collector's flags of the script. What is set beyond
addresses and folders is what a single broker cannot do without, internal topics with one replica; and, the same for
both, `COMMON_SETTINGS`. Preparing the folder (Kafka formats it, with a second JVM) is not part of the time to start.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from ottla.testing.free_ports import free_port
from tests.compat.kafka_jars import java_command, kafka_tool

START_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 60.0
CLUSTER_ID: Final = "b3R0bGEtYmVuY2htYXJrcw"
PROJECT: Final = Path(__file__).parents[2]

COMMON_SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}
"""By default a new group waits three seconds for more members, and a server-side one computes an assignment once in a
second at most: waits that say nothing about a broker's speed."""

KAFKA_JVM_OPTIONS: Final = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""What kafka-server-start.sh and kafka-run-class.sh give a broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a broker listens, and the second port that Kafka's controller needs."""

    port: int
    controller_port: int

    @property
    def bootstrap(self) -> str:
        """For clients."""
        return f"127.0.0.1:{self.port}"


class Recipe(Protocol):
    """How one rival is prepared and started."""

    name: str

    def prepare(self, folder: Path, address: Address) -> None:
        """Writes what the broker needs before its first start."""

    def command(self, folder: Path, address: Address) -> list[str]:
        """The command line."""

    def environment(self, folder: Path) -> dict[str, str]:
        """Of the process."""


class Kafka:
    """Apache Kafka with KRaft."""

    name = "kafka"

    def prepare(self, folder: Path, address: Address) -> None:
        """Writes the properties file and formats the log folder."""
        settings = folder / "server.properties"
        settings.write_text(kafka_properties(folder, address))
        kafka_tool("kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(settings))

    def command(self, folder: Path, address: Address) -> list[str]:
        """The class that kafka-server-start.sh runs; the garbage collector's log is on, as it is there."""
        collector_log = f"-Xlog:gc*:file={folder / 'gc.log'}:time,tags:filecount=10,filesize=100M"
        options = (*KAFKA_JVM_OPTIONS, collector_log)
        return java_command("kafka.Kafka", str(folder / "server.properties"), jvm_options=options)

    def environment(self, folder: Path) -> dict[str, str]:
        """The one of the benchmark."""
        return dict(os.environ)


class Ottla:
    """The broker of this tree, run by the Python that runs the benchmark."""

    name = "ottla"

    def prepare(self, folder: Path, address: Address) -> None:
        """Ottla makes its data folder itself."""

    def command(self, folder: Path, address: Address) -> list[str]:
        """As a user starts it."""
        data = str(folder / "data")
        settings = [word for key, value in COMMON_SETTINGS.items() for word in ("--set", f"{key}={value}")]
        return [sys.executable, "-m", "ottla", "serve", "--data", data, "--listen", address.bootstrap, *settings]

    def environment(self, folder: Path) -> dict[str, str]:
        """With bytecode kept in the folder, as an installed Ottla has it; without, each start compiles every module."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


class RunningBroker:
    """One broker process: `start`, `stop`, and start again on the same files."""

    def __init__(self, recipe: Recipe, folder: Path, address: Address | None = None) -> None:
        self.name = recipe.name
        self.address = address or Address(port=free_port(), controller_port=free_port())
        self._recipe = recipe
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        recipe.prepare(folder, self.address)

    @property
    def pid(self) -> int:
        """Of the running process."""
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process.pid

    def start(self) -> float:
        """Starts the process without waiting; the moment before it began, on the monotonic clock."""
        if self._process is not None:
            raise RuntimeError(f"{self.name} is running already")
        with (self._folder / "console.log").open("ab") as console:
            begun = time.monotonic()
            self._process = subprocess.Popen(
                self._recipe.command(self._folder, self.address),
                cwd=PROJECT,
                env=self._recipe.environment(self._folder),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return begun

    def wait_listening(self) -> None:
        """Returns when the port takes connections; raises with the broker's last words if it ended instead."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            self.check_alive()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.address.port), 1):
                return
            time.sleep(0.01)
        raise TimeoutError(f"{self.name} does not listen after {START_TIMEOUT_S} s:\n{self.last_words()}")

    def check_alive(self) -> None:
        """Raises with the broker's last words if it has ended."""
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"{self.name} has ended; its last words:\n{self.last_words()}")

    def last_words(self) -> str:
        """The end of what the broker wrote to its console."""
        return (self._folder / "console.log").read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        """Asks it to shut down, and ends its whole process group if it does not."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            print(f"{self.name} did not shut down within {STOP_TIMEOUT_S} s and is killed", file=sys.stderr)
        finally:
            _kill(process)

    def kill(self) -> None:
        """Ends the whole process group at once, as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            _kill(process)

    def pause(self) -> None:
        """It hangs from now on: its connections stay open, and nothing is answered."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """It goes on after `pause`."""
        os.killpg(self.pid, signal.SIGCONT)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


RECIPES: Final[tuple[Recipe, ...]] = (Kafka(), Ottla())


def kafka_properties(folder: Path, address: Address, overrides: Mapping[str, str] | None = None) -> str:
    """The text of a properties file for one process that is broker and controller."""
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{address.bootstrap},CONTROLLER://127.0.0.1:{address.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{address.bootstrap}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{address.controller_port}",
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        **COMMON_SETTINGS,
        **(overrides or {}),
    }
    return "".join(f"{key}={value}\n" for key, value in properties.items())
