"""RabbitMQ as Debian packages it, in a folder of its own, and delayed messages in it.

Its way to delay: messages with a TTL each in a durable queue without consumers; when they expire, the dead-letter
exchange puts them into the queue that is consumed. Messages are persistent, and publishing counts when it is confirmed.
A message expires only at the head of its queue, so that messages are published here in the order in which they are due:
with mixed delays RabbitMQ would be late by the longest.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.kafka_race.process_usage import resident_bytes
from benchmarks.queue_race.amqp import AmqpConnection
from benchmarks.queue_race.rival import Arrival, body_of, due_of
from ottla.testing.free_ports import free_ports

SERVER: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
START_TIMEOUT_S: Final = 120.0
CHUNK: Final = 500
OUTSTANDING_MAX: Final = 5_000
"""Messages on the way while parking: enough to keep RabbitMQ busy."""
PROMPT_OUTSTANDING_MAX: Final = 500
"""The same where the TTL must begin when it is sent."""


def is_installed() -> bool:
    """Whether the server is where Debian puts it."""
    return Path(SERVER).exists() and shutil.which("epmd") is not None


class RabbitMq:
    """A node with its own port mapper; `start` and `stop` as often as wanted."""

    name = "rabbitmq"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, self._mapper_port, self._distribution_port = free_ports(3)
        self._mapper: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        # In the foreground, so that it ends with the race.
        self._mapper = subprocess.Popen(
            ["epmd", "-port", str(self._mapper_port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.start()
        with AmqpConnection(self._port) as connection:
            connection.declare("delivered")
            connection.declare("parked", dead_letters_to="delivered")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait()

    def start(self) -> None:
        """Returns when it accepts clients."""
        environment = {
            **os.environ,
            "HOME": str(self._folder),
            "ERL_EPMD_PORT": str(self._mapper_port),
            "RABBITMQ_NODENAME": f"race{self._port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self._port),
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq"),
            "RABBITMQ_PID_FILE": str(self._folder / "pid"),
        }
        with (self._folder / "console.log").open("ab") as console:
            self._server = subprocess.Popen(
                [SERVER],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=environment,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with AmqpConnection(self._port):
                    return
            except OSError as error:
                if self._server.poll() is not None or time.monotonic() > deadline:
                    end = (self._folder / "console.log").read_text()[-2000:]
                    raise RuntimeError(f"RabbitMQ did not start: {end}") from error
                time.sleep(0.05)

    def stop(self) -> None:
        """Ends it in order."""
        if self._server is not None:
            os.killpg(self._server.pid, signal.SIGTERM)
            try:
                self._server.wait(START_TIMEOUT_S)
            finally:
                if self._server.poll() is None:
                    os.killpg(self._server.pid, signal.SIGKILL)
                    self._server.wait()
            self._server = None

    def park(self, count: int, delay_ms: int) -> float:
        """Messages with the same delay, confirmed; returns how many there are."""
        with AmqpConnection(self._port) as connection:
            bodies = [body_of(0)] * CHUNK
            for _ in range(0, count, CHUNK):
                connection.publish("parked", bodies, [delay_ms] * CHUNK, OUTSTANDING_MAX)
            connection.wait_confirmed()
        return count

    def deliver(self, dues_ms: list[int]) -> list[Arrival]:
        """Parks a message for each time, in order, and consumes them."""
        with AmqpConnection(self._port) as consumer, AmqpConnection(self._port) as producer:
            consumer.consume("delivered")
            for at in range(0, len(dues_ms), CHUNK // 5):
                some = dues_ms[at : at + CHUNK // 5]
                now_ms = time.time() * 1000
                delays = [max(0, round(due - now_ms)) for due in some]
                producer.publish("parked", [body_of(due) for due in some], delays, PROMPT_OUTSTANDING_MAX)
            producer.wait_confirmed()
            if time.time() * 1000 > dues_ms[0]:
                raise RuntimeError("RabbitMQ took longer to park than there was time; give it more")
            received = consumer.receive(len(dues_ms))
        return [Arrival(due_ms=due_of(body), arrived_ms=arrived * 1000) for body, arrived in received]

    def memory_bytes(self) -> int:
        """Resident memory."""
        if self._server is None:
            raise RuntimeError("RabbitMQ is not running")
        return resident_bytes(self._server.pid)
