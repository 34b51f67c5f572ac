"""The few ratios that must not get worse, in two to three minutes: `make bench-guard`, and a part of every CI run.

Each row races Ottla against bare system calls, or against a process that does the least that any broker must do, in the
same run. A floor is about half of what a quiet machine shows: it catches a change that makes a path twice as slow, and
does not fail because the machine is busy. A row below its floor is measured once more before it counts. For numbers to
believe, run `make bench` and `benchmarks/vs_kafka.py`.
"""

import itertools
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import crc32c
import pyarrow as pa

from benchmarks import append, send
from benchmarks.kafka_race.process_usage import resident_bytes
from benchmarks.kafka_race.raw_load import RawLoad, Work
from benchmarks.kafka_race.throughput import batch_records
from benchmarks.measure import Goal, Result, interleaved, report
from ottla import Admin
from ottla.client.admin.values import NewTopic
from ottla.records.arrow import decode_arrow, encode_arrow
from ottla.testing import ProcessBroker
from ottla.testing.free_ports import free_port

MB: Final = 1_000_000
ROUNDS: Final = 9
BATCH_BYTES: Final = 16 * 1024
RECORD_BYTES: Final = 100
SMALL_REQUESTS: Final = 40_000
PRODUCED_BYTES: Final = 200 * MB
CONSUMED_BYTES: Final = 600 * MB
ARROW_RECORDS: Final = 200_000
ARROW_BATCH_RECORDS: Final = 1_000

APPEND_FLOOR: Final = 0.3
SEND_FLOOR: Final = 0.5
SMALL_FLOOR: Final = 0.08
PRODUCE_FLOOR: Final = 0.2
CONSUME_FLOOR: Final = 0.4
DECODE_FLOOR: Final = 0.25
ENCODE_FLOOR: Final = 0.3
START_FLOOR: Final = 0.015
MEMORY_FLOOR: Final = 0.3


def main() -> int:
    """Measures every row; the exit status is 1 if one stays below its floor."""
    missed = []
    for row in (_append, _send, _small_requests, _produce, _consume, _decode, _encode, _start):
        result = row()
        if not _holds(result):
            print(f"  .. {result.title}: below its floor, measured once more", file=sys.stderr, flush=True)
            result = row()
        report([result])
        if not _holds(result):
            missed.append(result.title)
    if not _memory_holds():
        missed.append("idle memory")
    print(f"below the floor: {', '.join(missed)}" if missed else "every ratio is above its floor", flush=True)
    return 1 if missed else 0


def _holds(result: Result) -> bool:
    return all(verdict.met for verdict in result.verdicts)


def _append() -> Result:
    goals = [Goal(rival="log", at_least=APPEND_FLOOR)]
    return append.compare("64 KiB", 64 * append.KIB, goals=goals, rounds=ROUNDS)


def _send() -> Result:
    return send.compare(goals=[Goal(rival="log ranges", at_least=SEND_FLOOR)], rounds=ROUNDS)


def _small_requests() -> Result:
    def load(raw: RawLoad, port: int) -> float:
        return raw.produce(port, "load", connections=4, in_flight=5, requests=SMALL_REQUESTS).requests

    return _beside_sink("small produce requests, 4 connections x 5 in flight", "requests", load, SMALL_FLOOR)


def _produce() -> Result:
    def load(raw: RawLoad, port: int) -> float:
        return _fill(raw, port, PRODUCED_BYTES).bytes / MB

    return _beside_sink("produce, 16 KiB batches of 100 B", "MB", load, PRODUCE_FLOOR)


def _beside_sink(title: str, unit: str, load: Callable[[RawLoad, int], float], floor: float) -> Result:
    """A broker and a process that writes what it receives, and answers without looking, under the same load."""
    with _raw_load() as (raw, folder), _broker(folder) as broker, _sink(raw, folder) as sink:
        return interleaved(
            {"broker": lambda: load(raw, broker.port), "recv, write, send": lambda: load(raw, sink)},
            title=title,
            unit=unit,
            baseline="recv, write, send",
            goals=[Goal(rival="broker", at_least=floor)],
            rounds=ROUNDS,
        )


def _consume() -> Result:
    with _raw_load() as (raw, folder), _broker(folder) as broker, send.discarding_process() as connection:
        _fill(raw, broker.port, PRODUCED_BYTES)
        (segment,) = broker.data.glob("load-0/*.log")
        with segment.open("rb") as file:
            bare = send.bare_sendfile(file.fileno(), segment.stat().st_size, connection.fileno())
            return interleaved(
                {
                    "broker": lambda: raw.fetch(broker.port, "load", bytes=CONSUMED_BYTES).bytes / MB,
                    "os.sendfile": lambda: sum(bare() for _ in range(CONSUMED_BYTES // PRODUCED_BYTES)),
                },
                title="consume, 1 partition",
                unit="MB",
                baseline="os.sendfile",
                goals=[Goal(rival="broker", at_least=CONSUME_FLOOR)],
                rounds=ROUNDS,
            )


def _fill(raw: RawLoad, port: int, size: int) -> Work:
    return raw.produce(
        port,
        "load",
        connections=4,
        in_flight=5,
        batch_records=batch_records(RECORD_BYTES, BATCH_BYTES),
        record_bytes=RECORD_BYTES,
        requests=size // BATCH_BYTES,
    )


def _table() -> pa.RecordBatch:
    values = [b"%0*d" % (RECORD_BYTES, number) for number in range(ARROW_RECORDS)]
    return pa.record_batch({"value": pa.array(values)})


def _decode() -> Result:
    log = b"".join(encode_arrow(_table(), batch_records_max=ARROW_BATCH_RECORDS))
    return interleaved(
        {
            "decode": lambda: len(log) / MB if decode_arrow(log)[0].num_rows == ARROW_RECORDS else 0.0,
            "copy and checksum": _copied(log),
        },
        title="batches to Arrow, 100-byte values",
        unit="MB",
        baseline="copy and checksum",
        goals=[Goal(rival="decode", at_least=DECODE_FLOOR)],
        rounds=ROUNDS,
    )


def _encode() -> Result:
    table = _table()
    log = b"".join(encode_arrow(table, batch_records_max=ARROW_BATCH_RECORDS))
    return interleaved(
        {
            "encode": lambda: sum(map(len, encode_arrow(table, batch_records_max=ARROW_BATCH_RECORDS))) / MB,
            "copy and checksum": _copied(log),
        },
        title="Arrow to batches, 100-byte values",
        unit="MB",
        baseline="copy and checksum",
        goals=[Goal(rival="encode", at_least=ENCODE_FLOOR)],
        rounds=ROUNDS,
    )


def _copied(data: bytes) -> Callable[[], float]:
    def copy() -> float:
        copied = bytearray(data)
        crc32c.crc32c(copied)
        return len(copied) / MB

    return copy


def _start() -> Result:
    with _raw_load() as (_, folder):
        numbers = itertools.count()
        running: list[ProcessBroker] = []

        def stop() -> None:
            while running:
                running.pop().close()

        def start() -> float:
            running.append(ProcessBroker(folder / f"start-{next(numbers)}"))
            running[-1].start()
            return 1

        try:
            return interleaved(
                {"broker": start, "bare Python": _bare_python},
                title="start, until it serves",
                unit="starts",
                baseline="bare Python",
                before={"broker": stop},
                goals=[Goal(rival="broker", at_least=START_FLOOR)],
                rounds=ROUNDS,
            )
        finally:
            stop()


def _bare_python() -> float:
    subprocess.run([sys.executable, "-c", ""], check=True)
    return 1


def _memory_holds() -> bool:
    """An idle broker beside an idle interpreter with an event loop, in resident memory."""
    idle = "import asyncio, sys, uvloop; print(flush=True); sys.stdin.read()"
    with (
        _raw_load() as (_, folder),
        _broker(folder) as broker,
        subprocess.Popen([sys.executable, "-c", idle], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as python,
    ):
        if python.stdout is not None:
            python.stdout.readline()
        ours, bare = resident_bytes(broker.pid), resident_bytes(python.pid)
        python.terminate()
    holds = bare / ours >= MEMORY_FLOOR
    print(f"idle memory: broker {ours / MB:.0f} MB, Python with an event loop {bare / MB:.0f} MB: {bare / ours:.2f} x")
    print(f"  floor {'kept' if holds else 'missed'}: {MEMORY_FLOOR:g} x", flush=True)
    return holds


@contextmanager
def _raw_load() -> Iterator[tuple[RawLoad, Path]]:
    """The load generator, and a folder that is removed in the end."""
    folder = Path(tempfile.mkdtemp(prefix="ottla-guard-"))
    try:
        yield RawLoad(folder), folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _broker(folder: Path) -> Iterator[ProcessBroker]:
    """A broker process with a topic `load` of one partition."""
    with ProcessBroker(folder / "broker") as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics([NewTopic("load", 1)])
        yield broker


@contextmanager
def _sink(raw: RawLoad, folder: Path) -> Iterator[int]:
    """The port of a process that writes what it receives and answers every request with success."""
    port = free_port()
    with raw.start_sink(port, folder / "received") as sink:
        try:
            wait_listening(port)
            yield port
        finally:
            sink.kill()


def wait_listening(port: int) -> None:
    """Returns when a process accepts connections on the port."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.01)
    raise TimeoutError(f"nothing listens on port {port}")


if __name__ == "__main__":
    sys.exit(main())
