"""Loads of the Java client: Kafka's own `kafka-producer-perf-test` as a class from the jars.

The tool's warm-up records are left out of its figures, since a JVM needs some seconds to compile the client. Its
consumer's twin needs a group; `JAVA_TOOLS` is where it joins.
"""

import re
import resource
import subprocess
import time
from typing import Final

from benchmarks.kafka_race.raw_load import LOAD_TIMEOUT_S, LoadError, Work
from tests.compat.kafka_jars import java_command

JAVA_TOOLS: Final = {"produce": "org.apache.kafka.tools.ProducerPerformance"}
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


def produce(bootstrap: str, topic: str, *, records: int, record_bytes: int, acks: str, warm_up_records: int) -> Work:
    """As many records as the Java producer can send with its default settings and these acks.

    With acks=all that includes idempotence, the Java producer's default.
    """
    words = [
        "--topic", topic, "--num-records", str(records + warm_up_records), "--warmup-records", str(warm_up_records),
        "--record-size", str(record_bytes), "--throughput", "-1", "--bootstrap-server", bootstrap,
        "--command-property", f"acks={acks}",
    ]  # fmt: skip
    command = java_command(JAVA_TOOLS["produce"], *words, jvm_options=CLIENT_JVM_OPTIONS)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, encoding="utf-8"
    )
    after, whole_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
    if done.returncode != 0 or "Exception" in done.stdout + done.stderr:
        raise LoadError(f"{JAVA_TOOLS['produce']} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return parse_summary(done.stdout, record_bytes=record_bytes, client_cores=used / whole_s)


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
