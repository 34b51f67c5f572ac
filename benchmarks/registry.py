"""Schema registries: look-ups and registrations per second, and the time to start with 10,000 schemas.

    python -m benchmarks.registry [--quick] [--rival NAME=COMMAND]...

A rival is a command that runs in the foreground, with `{bootstrap}`, `{port}`, `{topic}` and `{group}` in it, such as
Karapace or Confluent's registry; without one, Ottla runs alone. All run on the same Ottla broker, each with its own
topic, and are asked over 16 connections by a client that does nothing but write requests and find the end of answers.
They take turns: the others wait idle. A registration is a new Avro schema in a new subject. A start ends when the
subjects that are in the topic are listed; the topic is the same for all, and was written by Ottla.
"""

import argparse
import contextlib
import functools
import json
import selectors
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from benchmarks.measure import Goal, Result, Rival, interleaved, report
from ottla.testing import ProcessBroker
from ottla.testing.free_ports import free_port

CONNECTIONS: Final = 16
LOOK_UPS: Final = 6_000
LOOK_UPS_QUICK: Final = 1_000
REGISTRATIONS: Final = 400
REGISTRATIONS_QUICK: Final = 100
SCHEMAS: Final = 10_000
SCHEMAS_QUICK: Final = 500
START_ROUNDS: Final = 3
START_SECONDS: Final = 180
START_TOPIC: Final = "_bench_start"
OTTLA: Final = (
    f"{shlex.quote(sys.executable)} -m ottla registry serve --bootstrap {{bootstrap}} --listen 127.0.0.1:{{port}}"
    " --topic {topic} --group-id {group} --replication-factor 1"
)


def run(quick: bool = False, rivals: Mapping[str, str] | None = None) -> list[Result]:
    """Rivals are commands by name."""
    commands = {"ottla": OTTLA, **(rivals or {})}
    with tempfile.TemporaryDirectory() as folder, ProcessBroker(Path(folder) / "broker") as broker:
        results = _requests(broker.bootstrap, commands, quick)
        return [*results, _starts(broker.bootstrap, commands, quick)]


def _requests(bootstrap: str, commands: Mapping[str, str], quick: bool) -> list[Result]:
    """Look-ups by id and by version, and registrations."""
    count, new = (LOOK_UPS_QUICK, REGISTRATIONS_QUICK) if quick else (LOOK_UPS, REGISTRATIONS)
    with contextlib.ExitStack() as ends:
        ports = {
            name: ends.enter_context(running(command, bootstrap, f"_bench_{name}", f"bench-{name}"))
            for name, command in commands.items()
        }
        ids = {name: register(port, "orders-value", schema("Order")) for name, port in ports.items()}

        def look_up(port: int, path: str) -> Rival:
            return lambda: ask(port, [get(path)] * count)

        numbers = {name: iter(range(10**9)) for name in ports}

        def registering(name: str) -> Rival:
            def requests() -> float:
                return ask(
                    ports[name], [post(f"s{number}", schema(f"R{number}")) for number in take(numbers[name], new)]
                )

            return requests

        return [
            _raced(
                "look up a schema by its id", {n: look_up(p, f"/schemas/ids/{ids[n]}") for n, p in ports.items()}, quick
            ),
            _raced(
                "look up the latest version of a subject",
                {name: look_up(port, "/subjects/orders-value/versions/latest") for name, port in ports.items()},
                quick,
            ),
            _raced("register new schemas", {name: registering(name) for name in ports}, quick),
        ]


def _starts(bootstrap: str, commands: Mapping[str, str], quick: bool) -> Result:
    """From the start of the process to the first list of all subjects."""
    schemas = SCHEMAS_QUICK if quick else SCHEMAS
    with running(OTTLA, bootstrap, START_TOPIC, "bench-fill") as port:
        register(port, "s", schema("S"))
        ask(port, [post(f"s{number}", schema(f"S{number}")) for number in range(schemas - 1)])

    def start(name: str) -> None:
        with running(commands[name], bootstrap, START_TOPIC, f"bench-start-{name}", subjects=schemas):
            pass

    rivals: dict[str, Rival] = {name: functools.partial(start, name) for name in commands}
    return _raced(f"start with {schemas:,} schemas", rivals, quick, unit="starts", rounds=START_ROUNDS)


def _raced(title: str, rivals: dict[str, Rival], quick: bool, *, unit: str = "requests", rounds: int = 5) -> Result:
    others = [name for name in rivals if name != "ottla"]
    return interleaved(
        rivals,
        title=title,
        unit=unit,
        baseline=others[0] if others else "ottla",
        goals=[Goal(rival="ottla", at_least=1.0, against=name) for name in others],
        rounds=rounds,
        quick=quick,
    )


# Registries


@contextlib.contextmanager
def running(command: str, bootstrap: str, topic: str, group: str, *, subjects: int = 0) -> Iterator[int]:
    """The port of a registry that answers, and lists this many subjects."""
    port = free_port()
    words = shlex.split(command.format(bootstrap=bootstrap, port=port, topic=topic, group=group))
    with tempfile.TemporaryFile() as log, subprocess.Popen(words, stdout=log, stderr=log) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while not lists(port, subjects):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise RuntimeError(f"{words[0]} did not start:\n{log.read()[-3000:].decode(errors='replace')}")
                time.sleep(0.02)
            yield port
        finally:
            process.kill()


def lists(port: int, subjects: int) -> bool:
    """Whether a registry answers, and lists this many subjects at least."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/subjects", timeout=5) as answer:
            return len(json.load(answer)) >= subjects
    except (OSError, ValueError):
        return False


def register(port: int, subject: str, text: str) -> int:
    """The id of a schema; waits until the registry has a leader."""
    url = f"http://127.0.0.1:{port}/subjects/{subject}/versions"
    request = urllib.request.Request(
        url, json.dumps({"schema": text}).encode(), {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    )
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(json.load(answer)["id"])
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def schema(name: str) -> str:
    """An Avro record of usual size."""
    fields = [{"name": f"field_{number}", "type": ["null", "string"], "default": None} for number in range(10)]
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": fields})


# The client


def get(path: str) -> bytes:
    """The request for a path."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/vnd.schemaregistry.v1+json\r\n\r\n".encode()


def post(subject: str, text: str) -> bytes:
    """The request that registers a schema."""
    body = json.dumps({"schema": text})
    return (
        f"POST /subjects/{subject}/versions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/vnd.schemaregistry.v1+json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def take(numbers: Iterator[int], count: int) -> list[int]:
    """The next numbers."""
    return [next(numbers) for _ in range(count)]


def ask(port: int, requests: Iterable[bytes]) -> float:
    """Sends requests over all connections, the next one on each as soon as it has its answer. Returns how many."""
    left = iter(requests)
    answered = 0
    with contextlib.ExitStack() as ends, selectors.DefaultSelector() as selector:
        for _ in range(CONNECTIONS):
            request = next(left, None)
            if request is not None:
                connection = ends.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(request)
                selector.register(connection, selectors.EVENT_READ, bytearray())
        while selector.get_map():
            for key, _ in selector.select(60):
                peer, received = key.fileobj, key.data
                assert isinstance(peer, socket.socket)
                received += peer.recv(65536)
                if not is_whole(received):
                    continue
                answered += 1
                received.clear()
                request = next(left, None)
                if request is None:
                    selector.unregister(peer)
                else:
                    peer.sendall(request)
    return answered


def is_whole(answer: bytearray) -> bool:
    """Whether all of an answer has arrived. Raises `RuntimeError` if it is an error."""
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        if not answer:
            raise RuntimeError("the registry closed the connection")
        return False
    head = bytes(answer[:end]).lower()
    if not head.startswith(b"http/1.1 200"):
        raise RuntimeError(f"the registry refused a request: {bytes(answer[:1000])!r}")
    _, found, rest = head.partition(b"content-length:")
    if found:
        return len(answer) >= end + 4 + int(rest.split(b"\r\n")[0])
    return answer.endswith(b"\r\n0\r\n\r\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.registry", description="Schema registries.")
    parser.add_argument("--quick", action="store_true", help="few rounds: shows that it works, not how fast it is")
    parser.add_argument("--rival", action="append", default=[], metavar="NAME=COMMAND", help="another registry")
    options = parser.parse_args()
    report(run(options.quick, dict(each.split("=", 1) for each in options.rival)))
