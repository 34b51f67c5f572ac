"""Reading a log as file ranges into a socket against a bare `os.sendfile` of the same bytes.

Both send the same log, a megabyte a turn, to a process that throws it away. A log's read finds the batch by its offset,
bounds the range and knows that it was verified; the rival only knows positions. The first read after a restart, which
checks every batch once, is shown beside them.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from benchmarks.bench_log import PARTITION, BenchStore, bench_store, fill, make_batch
from benchmarks.measure import Goal, Result, interleaved, report
from ottla.model.ids import Offset
from ottla.records.batch import Batch
from ottla.storage.log_config import LogConfig

MIB = 1024 * 1024
LOG_BYTES = 256 * MIB
SINK = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
buffer = bytearray(1 << 20)
while connection.recv_into(buffer):
    pass
"""


def run(quick: bool = False) -> list[Result]:
    """One comparison."""
    return [compare(goals=[Goal(rival="log ranges", at_least=0.9)], quick=quick)]


def compare(*, goals: Sequence[Goal], rounds: int = 11, quick: bool = False) -> Result:
    """The three rivals on one log."""
    batch = make_batch(64 * 1024)
    with bench_store(LogConfig()) as bench, discarding_process() as connection:
        fill(bench.new_log(), batch, LOG_BYTES)
        log = bench.store.get(PARTITION)
        with open(log.segments[0].log_path, "rb") as raw:
            return interleaved(
                {
                    "log ranges": lambda: _send_log(bench, batch, connection.fileno()),
                    "log ranges, first read": lambda: _send_log(bench, batch, connection.fileno()),
                    "os.sendfile": bare_sendfile(raw.fileno(), log.size_bytes, connection.fileno()),
                },
                title="log to socket, 1 MiB a turn",
                unit="MB",
                baseline="os.sendfile",
                goals=goals,
                before={"log ranges, first read": bench.reopen},
                rounds=rounds,
                quick=quick,
            )


@contextmanager
def discarding_process() -> Iterator[socket.socket]:
    """A connection to a process that reads and forgets."""
    with subprocess.Popen([sys.executable, "-c", SINK], stdout=subprocess.PIPE, text=True) as sink:
        port = int(sink.stdout.readline() if sink.stdout else 0)
        with socket.create_connection(("127.0.0.1", port)) as connection:
            yield connection


def _send_log(bench: BenchStore, batch: bytearray, out: int) -> float:
    log = bench.store.get(PARTITION)
    records = Batch(batch).count
    offset, sent = log.start_offset, 0
    while (found := log.read(offset, MIB)) is not None:
        position, end = found.position, found.position + found.size
        while position < end:
            position += os.sendfile(out, found.file.fileno(), position, end - position)
        sent += found.size
        offset = Offset(offset + found.size // len(batch) * records)
    return sent / 1e6


def bare_sendfile(file: int, size: int, out: int) -> Callable[[], float]:
    """Sends the file's first bytes, a megabyte a call; answers megabytes."""

    def send() -> float:
        position = 0
        while position < size:
            position += os.sendfile(out, file, position, min(MIB, size - position))
        return size / 1e6

    return send


if __name__ == "__main__":
    report(run())
