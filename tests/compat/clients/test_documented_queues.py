"""The samples of docs/queues.md for Java, Go, Node and Python run as they stand, with the address of a broker."""

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compat.clients import client_builds
from tests.compat.clients.broker_under_test import TARGET, Broker, broker_under_test
from tests.compat.clients.catalogue import BY_NAME
from tests.compat.clients.foreign_client import EARLIEST, ForeignClient, Sent
from tests.compat.kafka_jars import SHORT_LIVED_JVM, java_command
from tests.documented import ADDRESS, ROOT, samples

pytestmark = pytest.mark.skipif(TARGET != "ottla", reason="Apache Kafka has no such queues")

DOCUMENT = "docs/queues.md"
FOLDER = client_builds.HERE / "samples"
TIMEOUT_S = 60.0
MINUTE_MS = 60_000
SILENCE_MS = 1000
SLACK_MS = 10_000
"""Between two clocks that a loaded machine reads."""

QUEUES = {
    "ottla.delay.enable": "true",
    "ottla.retry.enable": "true",
    "ottla.retry.backoff.ms": "100",
    "ottla.half.enable": "true",
}
TOPICS = ("orders", "orders.billing.redelivery")
Command = Callable[[Path], Sequence[str]]
"""How a program in this file is run."""


def java(source: Path) -> list[str]:
    classes = str(client_builds.java_sample(source))
    return java_command("Sample", jvm_options=SHORT_LIVED_JVM, extra_path=classes)


def go(source: Path) -> list[str]:
    return [str(client_builds.go_sample(source))]


def node(source: Path) -> list[str]:
    return ["env", f"NODE_PATH={client_builds.node_modules()}", "node", str(source)]


def python(source: Path) -> list[str]:
    return ["env", f"PYTHONPATH={ROOT / 'src'}", sys.executable, str(source)]


def written(name: str, found: dict[str, str], address: str, folder: Path) -> Path:
    """The program of that name, with the samples where their names stand."""
    lines = (FOLDER / name).read_text().splitlines(keepends=True)
    for mark, sample in found.items():
        (at,) = [index for index, line in enumerate(lines) if line.rstrip() in (f"// {mark}", f"# {mark}")]
        lines[at] = sample
    source = folder / name
    source.write_text("".join(lines).replace(ADDRESS, address))
    return source


@contextmanager
def printing(command: Sequence[str], log: Path) -> Iterator["queue.SimpleQueue[str]"]:
    """The lines that a program prints; it is killed in the end, and "" means that it has ended."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line.rstrip())
        lines.put("")

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield lines
    finally:
        process.kill()
        process.wait()
        reader.join()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """The samples name their topics, so each has its own broker."""
    with broker_under_test(tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def client(own_broker: Broker, tmp_path: Path) -> Iterator[ForeignClient]:
    """Creates the topic, and looks at what the samples did."""
    client = BY_NAME["confluent-kafka"].start(own_broker.bootstrap, tmp_path / "client.log")
    client.create_topic("orders", configs=QUEUES)
    yield client
    client.close()


def undecided(order: bytes, value: bytes) -> Sent:
    """A half message whose producer is asked at once."""
    headers = (("ottla.half.id", order), ("ottla.half.state", b"prepare"), ("ottla.half.check-after-ms", b"100"))
    return Sent(key=order, value=value, headers=headers, partition=0)


def check(command: Sequence[str], client: ForeignClient, log: Path, delivered: Sequence[str] = ()) -> None:
    """Runs a program until it has processed all records of the topic, each of which it handed back once."""
    client.send("orders", [Sent(key=b"order-1", value=b"book", partition=0)])
    deadline = time.monotonic() + TIMEOUT_S
    expected = {f"{topic} {value}" for topic in TOPICS for value in ("book", *delivered)}
    printed: list[str] = []
    with printing(command, log) as lines:
        while len(printed) < len(expected):
            line = lines.get(timeout=max(0.001, deadline - time.monotonic()))
            assert line, f"{printed}\n{log.read_text()}"
            printed.append(line)
    assert sorted(expected) == sorted(printed)
    (again, *_) = client.read("orders.billing.redelivery", 1)
    assert b"out of stock" in (dict(again.headers)["ottla.retry.reason"] or b"")
    (later,) = client.read("orders.delayed", 1)
    assert (b"order-4711", b"ship") == (later.key, later.value)
    due_ms = int(dict(later.headers)["ottla.due-ms"] or b"")
    assert MINUTE_MS - SLACK_MS <= due_ms - later.timestamp <= MINUTE_MS + SLACK_MS


@pytest.mark.parametrize(
    ("heading", "language", "name", "command"),
    [("Java", "java", "Sample.java", java), ("Go", "go", "sample.go", go), ("Node", "js", "sample.js", node)],
    ids=["java", "go", "node"],
)
def test_samples(
    heading: str, language: str, name: str, command: Command, own_broker: Broker, client: ForeignClient, tmp_path: Path
) -> None:
    found = dict(zip(("delay", "retry", "half", "answers"), samples(DOCUMENT, language, heading), strict=True))
    source = written(name, found, own_broker.bootstrap, tmp_path)
    # The producers of these are gone: the broker asks the sample.
    client.send("orders.half", [undecided(b"order-2", b"asked"), undecided(b"order-unpaid", b"unpaid")])
    check(command(source), client, tmp_path / "sample.log", ["paid", "asked"])
    with client.consumer("orders", {0: EARLIEST}) as consumer:
        assert {b"book", b"paid", b"asked"} == {record.value for record in consumer.poll(4, timeout_ms=SILENCE_MS)}


@pytest.mark.parametrize(("at", "library"), [(0, "ottla"), (1, "confluent_kafka")])
def test_python_samples(at: int, library: str, own_broker: Broker, client: ForeignClient, tmp_path: Path) -> None:
    found = samples(DOCUMENT, "python", "Python")
    assert 2 == len(found)
    assert f"from {library} import" in found[at]
    source = written("sample.py", {"retry": found[at]}, own_broker.bootstrap, tmp_path)
    if library == "confluent_kafka":
        client.create_topic("orders.billing.retry")
    check(python(source), client, tmp_path / "sample.log")


def test_python_half_messages(own_broker: Broker, client: ForeignClient, tmp_path: Path) -> None:
    (sample,) = samples(DOCUMENT, "python", "Half messages")
    source = written("half_messages.py", {"half": sample}, own_broker.bootstrap, tmp_path)
    done = subprocess.run(python(source), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (0, True) == (done.returncode, "HalfDecision.COMMIT" in done.stdout), done
    (delivered,) = client.read("orders", 1)
    assert (b"customer-3", b"one book") == (delivered.key, delivered.value)
