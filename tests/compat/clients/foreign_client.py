"""Drives one client program: a command is a JSON line to its stdin, the answer a JSON line from its stdout.

Bytes travel as base64. An answer with `error` is raised as `ClientError` with Kafka's error code. A program that does
not answer in time, or ends, is an `AssertionError` with the last lines of its log; it does not hang the test run.
"""

import base64
import itertools
import json
import queue
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from tests.compat.clients.broker_under_test import wait_led

ANSWER_TIMEOUT_S: Final = 120.0
"""Longer than any program waits for its library."""
POLL_TIMEOUT_MS: Final = 20_000
EARLIEST: Final = -2
"""As a position: where the partition begins."""
LATEST: Final = -1
"""As a position: where the partition ends."""

Headers = tuple[tuple[str, bytes | None], ...]
Moment = Literal["earliest", "latest", "max_timestamp"] | int
"""What an offset is looked up by; a number is a timestamp in milliseconds."""


class ClientError(Exception):
    """The client library reported an error; `code` is Kafka's, or None for one that is the client's own."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(f"{text} (code {code})")
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A record to be produced; without a partition the client chooses, without a timestamp it is now."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A record as a consumer got it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Another listener than the program's own, and what a client needs there. Files are PEM; keys are PKCS #8."""

    bootstrap: str
    protocol: Literal["SSL", "SASL_SSL"]
    authority: str
    """The file with the certificate that the broker's must be signed with."""
    certificate: str | None = None
    """The file with the client's certificate."""
    key: str | None = None
    mechanism: str | None = None
    username: str | None = None
    password: str | None = None
    token: str | None = None
    """The file with the token of OAUTHBEARER."""


class ForeignClient:
    """One running program. The methods are the commands; producers and consumers live until closed."""

    def __init__(self, name: str, command: Sequence[str], *, bootstrap: str, log: Path) -> None:
        self.name = name
        self._log = log
        self._bootstrap = bootstrap
        self._numbers = itertools.count()
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._turn = threading.Lock()
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, bootstrap], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        self._reader = threading.Thread(target=self._read_answers, daemon=True)
        self._reader.start()

    def close(self) -> None:
        """Ends the program; one that does not leave when its input ends is killed."""
        if self._process.stdin is not None:
            # A program that ended before was reported by its last command.
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def kill(self) -> None:
        """Ends the program as a crash would: its connections are closed, and nobody hears a word of farewell."""
        self._process.kill()
        self._process.wait()

    def call(self, command: str, **arguments: Any) -> dict[str, Any]:
        """One command and its answer. Several threads may call; a program does one thing after another."""
        with self._turn:
            self._write(command, arguments)
            try:
                line = self._answers.get(timeout=ANSWER_TIMEOUT_S)
            except queue.Empty:
                self._process.kill()
                raise AssertionError(f"{self.name} did not answer {command}:\n{self._log_end()}") from None
        if not line:
            raise AssertionError(f"{self.name} ended during {command}:\n{self._log_end()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ClientError(answer["error"]["code"], f"{self.name}: {command}: {answer['error']['text']}")
        return answer

    def next_number(self) -> int:
        """For a producer or consumer that is about to be opened."""
        return next(self._numbers)

    @contextmanager
    def producer(
        self,
        *,
        codec: str = "none",
        idempotent: bool | None = None,
        request_bytes_max: int | None = None,
        login: Login | None = None,
    ) -> Iterator["ForeignProducer"]:
        """A producer, closed in the end; None leaves the library's default."""
        number = self.next_number()
        options = {"codec": codec, "idempotent": idempotent, "request_bytes_max": request_bytes_max}
        self.call("open_producer", id=number, **options, **_given(login))
        try:
            yield ForeignProducer(self, number)
        finally:
            self.call("close_producer", id=number)

    @contextmanager
    def consumer(
        self, topic: str, positions: Mapping[int, int], *, reset: str = "earliest", login: Login | None = None
    ) -> Iterator["ForeignConsumer"]:
        """A consumer of these partitions (partition to offset), closed in the end."""
        number = self.next_number()
        pairs = [list(pair) for pair in positions.items()]
        self.call("open_consumer", id=number, topic=topic, positions=pairs, reset=reset, **_given(login))
        try:
            yield ForeignConsumer(self, number)
        finally:
            self.call("close_consumer", id=number)

    def send(self, topic: str, records: Iterable[Sent], **options: Any) -> list[tuple[int, int]]:
        """Partition and offset of each record, by a producer of its own."""
        with self.producer(**options) as producer:
            return producer.send(topic, records)

    def read(self, topic: str, count: int, *, partitions: int = 1, login: Login | None = None) -> list[Read]:
        """The first `count` records of the topic, by a consumer of its own, in the order of partition and offset."""
        with self.consumer(topic, dict.fromkeys(range(partitions), EARLIEST), login=login) as consumer:
            return sorted(consumer.poll(count), key=lambda record: (record.partition, record.offset))

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Replication factor 1; returns once records can be written."""
        self.call("create_topic", topic=topic, partitions=partitions, configs=dict(configs or {}))
        wait_led(self._bootstrap, topic, partitions)

    def find_offset(self, topic: str, partition: int, at: Moment) -> tuple[int, int]:
        """Offset and timestamp; -1 as the timestamp where the library does not tell it."""
        answer = self.call("find_offset", topic=topic, partition=partition, at=at)
        return answer["offset"], answer["timestamp"]

    def _write(self, command: str, arguments: Mapping[str, Any]) -> None:
        if self._process.stdin is None:
            raise AssertionError(f"{self.name} has no input")
        try:
            self._process.stdin.write(json.dumps({"command": command, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"{self.name} ended before {command}:\n{self._log_end()}") from None

    def _read_answers(self) -> None:
        if self._process.stdout is not None:
            for line in self._process.stdout:
                self._answers.put(line)
        self._answers.put(b"")

    def log_text(self) -> str:
        """All that the program wrote to its log."""
        return self._log.read_text(errors="replace")

    def _log_end(self) -> str:
        return self.log_text()[-4000:]


class ForeignProducer:
    """A producer inside a client program."""

    def __init__(self, client: ForeignClient, number: int) -> None:
        self._client = client
        self._number = number

    def send(self, topic: str, records: Iterable[Sent]) -> list[tuple[int, int]]:
        """Returns partition and offset of each record once all are acknowledged; the first error is raised."""
        rows = [
            {
                "partition": record.partition,
                "key": _text(record.key),
                "value": _text(record.value),
                "headers": [[name, _text(value)] for name, value in record.headers],
                "timestamp": record.timestamp,
            }
            for record in records
        ]
        answer = self._client.call("send", id=self._number, topic=topic, records=rows)
        return [(partition, offset) for partition, offset in answer["acks"]]


class ForeignConsumer:
    """A consumer inside a client program."""

    def __init__(self, client: ForeignClient, number: int) -> None:
        self._client = client
        self._number = number

    def poll(self, count: int, *, timeout_ms: int = POLL_TIMEOUT_MS) -> list[Read]:
        """The next `count` records, fewer when they do not come in time."""
        answer = self._client.call("poll", id=self._number, count=count, timeout_ms=timeout_ms)
        return [
            Read(
                partition=row["partition"],
                offset=row["offset"],
                timestamp=row["timestamp"],
                key=_bytes(row["key"]),
                value=_bytes(row["value"]),
                headers=tuple((name, _bytes(value)) for name, value in row["headers"]),
            )
            for row in answer["records"]
        ]


def _given(login: Login | None) -> dict[str, Any]:
    return {} if login is None else {"login": asdict(login)}


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
