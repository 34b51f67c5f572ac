"""Loads of the Java client: Kafka's own perf tools as classes from the jars, and a program of ours for transactions.

The producer tool's warm-up records are left out of its figures, since a JVM needs some seconds to compile the client;
the consumer tool has no such thing, so its figures are those of a client that has just been started.
"""

import json
import re
import resource
import subprocess
import time
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.kafka_race.raw_load import LOAD_TIMEOUT_S, SOURCES, LoadError, Work
from tests.compat.kafka_jars import compile_java, java_command

JAVA_TOOLS: Final = {
    "produce": "org.apache.kafka.tools.ProducerPerformance",
    "consume": "org.apache.kafka.tools.ConsumerPerformance",
}
TRANSACTION_LOAD: Final = "TransactionLoad"
CLIENT_JVM_OPTIONS: Final = (
    "-Xmx512M",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
"""What kafka-producer-perf-test.sh gives the tool."""

_SUMMARY: Final = re.compile(
    r"^(?P<records>\d+) (?:steady state )?records sent, (?P<rate>[\d.,]+) records/sec .*99\.9th",
    re.MULTILINE,
)


class Consumed(NamedTuple):
    """What the consumer tool did once it had its partitions, and how long it waited for them."""

    work: Work
    rebalance_ms: float


def produce(
    bootstrap: str,
    topic: str,
    *,
    records: int,
    record_bytes: int,
    acks: str,
    warm_up_records: int,
    transaction_ms: int | None = None,
) -> Work:
    """As many records as the Java producer can send with its default settings and these acks.

    With acks=all that includes idempotence, the Java producer's default; with `transaction_ms`, all of them are in
    transactions that last about so long.
    """
    words = [
        "--topic", topic, "--num-records", str(records + warm_up_records), "--warmup-records", str(warm_up_records),
        "--record-size", str(record_bytes), "--throughput", "-1", "--bootstrap-server", bootstrap,
        "--command-property", f"acks={acks}",
    ]  # fmt: skip
    if transaction_ms is not None:
        words += ["--transaction-duration-ms", str(transaction_ms), "--transactional-id", topic]
    printed, client_cores = _run_java(JAVA_TOOLS["produce"], *words)
    return parse_summary(printed, record_bytes=record_bytes, client_cores=client_cores)


def consume(bootstrap: str, topic: str, *, records: int, group: str, protocol: str) -> Consumed:
    """Reads `records` records as the only member of a group, whose protocol is `classic` or `consumer`."""
    words = [
        "--topic", topic, "--num-records", str(records), "--bootstrap-server", bootstrap, "--group", group,
        "--command-property", f"group.protocol={protocol}",
    ]  # fmt: skip
    printed, client_cores = _run_java(JAVA_TOOLS["consume"], *words)
    return parse_consumed(printed, client_cores=client_cores)


def transactions(
    folder: Path,
    bootstrap: str,
    topic: str,
    *,
    records: int,
    record_bytes: int,
    warm_up_s: float,
    seconds: float,
) -> Work:
    """Transactions of `records` records, one after another; the requests of the work are transactions."""
    if not (folder / f"{TRANSACTION_LOAD}.class").exists():
        compile_java(SOURCES / f"{TRANSACTION_LOAD}.java", folder)
    words = [bootstrap, topic, topic, *map(str, (records, record_bytes, warm_up_s, seconds))]
    printed, client_cores = _run_java(TRANSACTION_LOAD, *words, extra_path=str(folder))
    found = json.loads(printed.strip().splitlines()[-1])
    return Work(
        seconds=found["seconds"],
        records=found["records"],
        bytes=found["bytes"],
        requests=found["requests"],
        client_cpu_s=client_cores * found["seconds"],
    )


def _run_java(main_class: str, *words: str, extra_path: str = "") -> tuple[str, float]:
    """What the program printed, and how many cores it kept busy all its life."""
    command = java_command(main_class, *words, jvm_options=CLIENT_JVM_OPTIONS, extra_path=extra_path)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, encoding="utf-8"
    )
    after, whole_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
    if done.returncode != 0 or "Exception" in done.stdout + done.stderr:
        raise LoadError(f"{main_class} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, used / whole_s


def parse_consumed(printed: str, *, client_cores: float = 0.0) -> Consumed:
    """The consumer tool's one line of figures, found by the names in the line before it."""
    lines = [line.split(", ") for line in printed.strip().splitlines()]
    names = next((line for line in lines[:-1] if "rebalance.time.ms" in line), None)
    if names is None or len(lines[-1]) != len(names):
        raise LoadError(f"no figures in what the tool printed:\n{printed[-1000:]}")
    figures = dict(zip(names, lines[-1], strict=True))
    seconds = float(figures["fetch.time.ms"]) / 1e3
    work = Work(
        seconds=seconds,
        records=int(figures["data.consumed.in.nMsg"]),
        bytes=int(float(figures["data.consumed.in.MB"]) * 2**20),
        client_cpu_s=client_cores * seconds,
    )
    return Consumed(work, float(figures["rebalance.time.ms"]))


def parse_summary(printed: str, *, record_bytes: int, client_cores: float = 0.0) -> Work:
    """The tool's last summary line: the one of the steady state, where there was a warm-up.

    The JVM's CPU time is only known for its whole life; the steady state is given its share of it.
    """
    found = list(_SUMMARY.finditer(printed))
    if not found:
        raise LoadError(f"no summary in what the tool printed:\n{printed[-1000:]}")
    records = int(found[-1]["records"])
    rate = float(found[-1]["rate"].replace(",", "."))
    seconds = records / rate
    return Work(seconds=seconds, records=records, bytes=records * record_bytes, client_cpu_s=client_cores * seconds)
