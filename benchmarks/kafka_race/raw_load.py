"""The load generator in C, compiled when it is first needed: prepared bytes out, answers read and thrown away.

Its source is in `benchmarks/load`; each mode is a file there. Whatever a full client costs, this does not: where it and
a client differ, the client is the limit.
"""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parents[1] / "load"
CRC_FOLDER: Final = Path(__file__).parents[2] / "src" / "ottla" / "records"
COMPILER_OPTIONS: Final = ("-O2", "-std=gnu11", "-pthread", "-Wall", "-Wextra", "-Werror")
LOAD_TIMEOUT_S: Final = 300
Option = int | str


class LoadError(Exception):
    """A load could not run or was refused; the message has what it printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a load did: how long it took, how much it moved, and the CPU seconds of the client itself."""

    seconds: float
    records: int
    bytes: int
    requests: int = 0
    client_cpu_s: float = 0.0

    @property
    def client_cores(self) -> float:
        """How many cores the client kept busy; a client with one working thread is the limit when it nears 1."""
        return self.client_cpu_s / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Percentiles of the time from when a record was due to when it was read, in milliseconds."""

    records: int
    p50_ms: float
    p99_ms: float
    p999_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalances:
    """Medians of the time until every member has its assignment: when all join, when one leaves, when one joins."""

    repeats: int
    formed_ms: float
    left_ms: float
    joined_ms: float


class RawLoad:
    """The compiled program."""

    def __init__(self, folder: Path) -> None:
        """Compiles it into `folder` unless it is there; without a C compiler on the machine it raises `LoadError`."""
        self._program = folder / "load"
        if self._program.exists():
            return
        compiler = shutil.which("cc")
        if compiler is None:
            raise LoadError("cc is not on the PATH: the load generator is written in C and needs a compiler")
        command = [compiler, *COMPILER_OPTIONS, f"-I{CRC_FOLDER}", *map(str, sorted(SOURCES.glob("*.c")))]
        compiled = folder / "load.new"
        done = subprocess.run([*command, "-o", str(compiled)], capture_output=True, text=True)
        if done.returncode != 0:
            raise LoadError(f"the load generator does not compile:\n{done.stderr}")
        compiled.rename(self._program)

    def produce(self, port: int, topic: str, **options: Option) -> Work:
        """Pipelined Produce requests; `load.h` names the options."""
        return work_of(self._run("produce", port, topic, options))

    def fetch(self, port: int, topic: str, **options: Option) -> Work:
        """Reads and discards, again from the start where the data ends."""
        return work_of(self._run("fetch", port, topic, options))

    def latency(self, port: int, topic: str, **options: Option) -> Latency:
        """One record per request at a steady rate, read back by a long poll in the same process."""
        found = self._run("latency", port, topic, options)
        return Latency(
            records=int(found["records"]),
            p50_ms=found["p50_us"] / 1e3,
            p99_ms=found["p99_us"] / 1e3,
            p999_ms=found["p999_us"] / 1e3,
        )

    def commit(self, port: int, topic: str, **options: Option) -> Work:
        """Pipelined OffsetCommit requests, each for all partitions; the records of the work are offsets."""
        return work_of(self._run("commit", port, topic, options))

    def rebalance(self, port: int, topic: str, **options: Option) -> Rebalances:
        """A classic group whose members join and leave."""
        return rebalances_of(self._run("rebalance", port, topic, options))

    def consumer_group(self, port: int, topic: str, **options: Option) -> Rebalances:
        """A server-side group whose members join and leave."""
        return rebalances_of(self._run("consumer_group", port, topic, options))

    def transactions(self, port: int, topic: str, **options: Option) -> Work:
        """Transactions one after another; the requests of the work are transactions."""
        return work_of(self._run("transactions", port, topic, options))

    def share_consume(self, port: int, topic: str, **options: Option) -> Work:
        """A share group that reads and accepts; the records of the work are those whose acceptance was answered."""
        return work_of(self._run("share_consume", port, topic, options))

    def share_acknowledge(self, port: int, topic: str, **options: Option) -> Work:
        """A share group that accepts every record by a request of its own; the records of the work are these."""
        return work_of(self._run("share_acknowledge", port, topic, options))

    def share_redelivery(self, port: int, topic: str, **options: Option) -> float:
        """Milliseconds from a member's death until another member has its records: the median of the repeats."""
        return self._run("share_redelivery", port, topic, options)["redelivered_ms"]

    def start_idle_groups(self, port: int, topic: str, **options: Option) -> "subprocess.Popen[str]":
        """Groups with one member each: prints a line when all have one, and another one before they leave."""
        words = self._words("idle_groups", port, topic, options)
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def start_first(self, port: int, topic: str, *, seconds: int) -> "subprocess.Popen[str]":
        """Begins to knock; `first_answer` waits for the moment a record was taken."""
        words = self._words("first", port, topic, {"seconds": seconds})
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def start_sink(self, port: int, file: Path) -> "subprocess.Popen[bytes]":
        """A process that writes every Produce request to a file and answers it with success, until it is killed."""
        return subprocess.Popen(self._words("sink", port, "load", {"name": str(file)}))

    def _run(self, mode: str, port: int, topic: str, options: dict[str, Option]) -> dict[str, float]:
        return run_and_parse(self._words(mode, port, topic, options))

    def _words(self, mode: str, port: int, topic: str, options: dict[str, Option]) -> list[str]:
        named = {"port": port, "topic": topic, **options}
        return [str(self._program), mode, *(f"{name}={value}" for name, value in named.items())]


def work_of(printed: Mapping[str, float]) -> Work:
    """What a load printed as one JSON object."""
    return Work(
        seconds=printed["seconds"],
        records=int(printed["records"]),
        bytes=int(printed["bytes"]),
        requests=int(printed.get("requests", 0)),
        client_cpu_s=printed["client_cpu_s"],
    )


def rebalances_of(printed: Mapping[str, float]) -> Rebalances:
    """What a load of a group printed."""
    return Rebalances(
        repeats=int(printed["repeats"]),
        formed_ms=printed["formed_ms"],
        left_ms=printed["left_ms"],
        joined_ms=printed["joined_ms"],
    )


def first_answer(knocking: "subprocess.Popen[str]") -> float:
    """The moment, on the monotonic clock, at which the broker took the first record."""
    printed, complaint = knocking.communicate(timeout=LOAD_TIMEOUT_S)
    if knocking.returncode != 0:
        raise LoadError(complaint)
    return float(json.loads(printed)["at_s"])


def run_and_parse(command: Sequence[str]) -> dict[str, float]:
    """Runs a load to its end and reads the JSON object in its last line; its complaints become a `LoadError`."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise LoadError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-500:]}{done.stderr[-2000:]}")
    parsed: dict[str, float] = json.loads(lines[-1])
    return parsed
