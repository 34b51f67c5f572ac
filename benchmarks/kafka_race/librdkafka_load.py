"""Loads of librdkafka through confluent-kafka, each in a process of its own so that its CPU time can be told apart.

Runs both ways: the functions start `python -m benchmarks.kafka_race.librdkafka_load MODE JSON`, and that is the client.
Consumers are assigned their partitions, without a group. Defaults of the client stay, except for the producer's queue
size (or the producer loop would be measured instead), the pause of a consumer whose queue is full (by default it
fetches nothing for a second, so that the faster broker would look slower), and, for latency, lingering, which is none.
"""

import json
import resource
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

from benchmarks.kafka_race.raw_load import Latency, LoadError, Work, run_and_parse, work_of

CHUNK: Final = 10_000
PAUSE_MS: Final = 1
DEFAULT_PAUSE_MS: Final = 1000
"""librdkafka's fetch.queue.backoff.ms: how long a consumer whose queue is full fetches nothing."""
LATENCY_WARM_UP_S: Final = 2
SILENCE_MAX_S: Final = 30.0


def produce(
    bootstrap: str,
    topic: str,
    *,
    records: int,
    record_bytes: int,
    acks: str,
    security: Mapping[str, str] | None = None,
) -> Work:
    """As many records as the client can send, without keys, spread over the partitions by the client."""
    options = {"bootstrap": bootstrap, "topic": topic, "records": records, "record_bytes": record_bytes, "acks": acks}
    return work_of(_in_process("produce", {**options, "security": dict(security or {})}))


def consume(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    records: int,
    security: Mapping[str, str] | None = None,
    pause_ms: int = PAUSE_MS,
) -> Work:
    """Reads `records` records from the beginning of all partitions."""
    options = {"bootstrap": bootstrap, "topic": topic, "partitions": partitions, "records": records}
    return work_of(_in_process("consume", {**options, "security": dict(security or {}), "pause_ms": pause_ms}))


def latency(bootstrap: str, topic: str, *, rate: int, seconds: int, record_bytes: int) -> Latency:
    """From the moment a record was due to the moment the consumer of the same process has it."""
    options = {"bootstrap": bootstrap, "topic": topic, "rate": rate, "seconds": seconds, "record_bytes": record_bytes}
    return Latency(**_in_process("latency", options))


def transactions(bootstrap: str, topic: str, *, records: int, record_bytes: int, seconds: float) -> Work:
    """Transactions of `records` records, one after another; the requests of the work are transactions."""
    options = {"bootstrap": bootstrap, "topic": topic, "records": records, "record_bytes": record_bytes}
    return work_of(_in_process("transactions", {**options, "seconds": seconds}))


def percentile(ordered: list[float], share: float) -> float:
    """The value below which that share of an ordered list lies."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _in_process(mode: str, options: dict[str, Any]) -> dict[str, Any]:
    return run_and_parse([sys.executable, "-m", "benchmarks.kafka_race.librdkafka_load", mode, json.dumps(options)])


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _run_produce(options: dict[str, Any]) -> dict[str, float]:
    failures: list[object] = []

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": options["bootstrap"],
            "acks": options["acks"],
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
            # Only failures come back: a Python call for every record would be the slowest part of the run.
            "delivery.report.only.error": True,
            **options.get("security", {}),
        }
    )
    producer.list_topics(options["topic"], timeout=10)
    value, topic, records = b"v" * options["record_bytes"], options["topic"], options["records"]
    used, start = _cpu_seconds(), time.perf_counter()
    for first in range(0, records, CHUNK):
        for _ in range(min(CHUNK, records - first)):
            while True:
                try:
                    producer.produce(topic, value, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
    left = producer.flush(60)
    seconds = time.perf_counter() - start
    if left or failures:
        raise LoadError(f"{left} records were not delivered; {len(failures)} failed: {failures[:3]}")
    return {
        "seconds": seconds,
        "records": records,
        "bytes": records * options["record_bytes"],
        "client_cpu_s": _cpu_seconds() - used,
    }


def _assigned(options: dict[str, Any], partitions: int, **settings: object) -> "Consumer":
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": options["bootstrap"],
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": options.get("pause_ms", PAUSE_MS),
            **options.get("security", {}),
            **settings,
        }
    )
    consumer.assign([TopicPartition(options["topic"], number, OFFSET_BEGINNING) for number in range(partitions)])
    return consumer


def _run_consume(options: dict[str, Any]) -> dict[str, float]:
    """The clock starts with the first record: finding the leader and opening connections is not what is measured."""
    wanted, seen, size = options["records"], 0, 0
    consumer = _assigned(options, options["partitions"])
    if not consumer.consume(1, timeout=SILENCE_MAX_S):
        raise LoadError(f"no record came within {SILENCE_MAX_S} s")
    used, start = _cpu_seconds(), time.perf_counter()
    while seen < wanted - 1:
        found = consumer.consume(min(CHUNK, wanted - 1 - seen), timeout=SILENCE_MAX_S)
        if not found:
            raise LoadError(f"{seen + 1} of {wanted} records came, then none for {SILENCE_MAX_S} s")
        for record in found:
            if record.error():
                raise LoadError(str(record.error()))
            size += len(record.value())
        seen += len(found)
    seconds = time.perf_counter() - start
    cpu = _cpu_seconds() - used
    consumer.close()
    return {"seconds": seconds, "records": seen, "bytes": size, "client_cpu_s": cpu}


def _run_latency(options: dict[str, Any]) -> dict[str, float]:
    rate, record_bytes = options["rate"], options["record_bytes"]
    total = rate * (options["seconds"] + LATENCY_WARM_UP_S)
    consumer = _assigned(options, 1)
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": options["bootstrap"], "linger.ms": 0, "acks": "1"})
    producer.list_topics(options["topic"], timeout=10)
    start_ns = time.monotonic_ns() + 500_000_000
    sender = threading.Thread(
        target=_send_at_rate, args=(producer, options["topic"], start_ns, rate, total, record_bytes)
    )
    sender.start()
    found: list[float] = []
    measure_from = start_ns + LATENCY_WARM_UP_S * 1_000_000_000
    for _ in range(total):
        record = consumer.poll(SILENCE_MAX_S)
        now = time.monotonic_ns()
        if record is None or record.error():
            raise LoadError(f"a record did not come back: {record and record.error()}")
        due = int.from_bytes(record.value()[:8], "big")
        if due >= measure_from:
            found.append((now - due) / 1e6)
    sender.join()
    consumer.close()
    found.sort()
    return {
        "records": len(found),
        "p50_ms": percentile(found, 0.5),
        "p99_ms": percentile(found, 0.99),
        "p999_ms": percentile(found, 0.999),
    }


def _send_at_rate(producer: "Producer", topic: str, start_ns: int, rate: int, total: int, record_bytes: int) -> None:
    padding = b"v" * (record_bytes - 8)
    for number in range(total):
        due = start_ns + number * 1_000_000_000 // rate
        wait = due - time.monotonic_ns()
        if wait > 0:
            time.sleep(wait / 1e9)
        producer.produce(topic, due.to_bytes(8, "big") + padding)
        producer.poll(0)
    producer.flush(30)


def _run_transactions(options: dict[str, Any]) -> dict[str, float]:
    """The first transaction is not counted: it finds the coordinator and the leader."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": options["bootstrap"], "transactional.id": options["topic"]}
    producer = Producer({**settings, "delivery.report.only.error": True})
    producer.init_transactions(SILENCE_MAX_S)
    value, topic, records = b"v" * options["record_bytes"], options["topic"], options["records"]
    count, used, start = -1, 0.0, 0.0
    while count < 0 or time.perf_counter() < start + options["seconds"]:
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, value)
        producer.commit_transaction(SILENCE_MAX_S)
        count += 1
        if count == 0:
            used, start = _cpu_seconds(), time.perf_counter()
    return {
        "seconds": time.perf_counter() - start,
        "requests": count,
        "records": count * records,
        "bytes": count * records * len(value),
        "client_cpu_s": _cpu_seconds() - used,
    }


MODES: Final[dict[str, Callable[[dict[str, Any]], dict[str, float]]]] = {
    "produce": _run_produce,
    "consume": _run_consume,
    "latency": _run_latency,
    "transactions": _run_transactions,
}

if __name__ == "__main__":
    print(json.dumps(MODES[sys.argv[1]](json.loads(sys.argv[2]))))
