"""The four clients that write the golden batches, each driven through its own public interface.

Every function takes sections of records and returns when all are acknowledged. Each section gets a fresh producer
that lingers, so that its records leave as one batch. Reading back is `readers.py`'s duty.
"""

import asyncio
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer

from tests.compat.kafka_jars import SHORT_LIVED_JVM, compile_java, java_command
from tests.golden.record_set import NewRecord, Section
from tests.waiting import PATIENCE_SECONDS

LINGER_MS: Final = 200
BATCH_BYTES_MAX: Final = 1_000_000

Write = Callable[[str, str, Iterable[Section]], None]
"""Called with the bootstrap address, the topic and the sections."""


def write_librdkafka(bootstrap: str, topic: str, sections: Iterable[Section]) -> None:
    """confluent-kafka, which is librdkafka."""
    for section in sections:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "compression.type": section.codec,
            "enable.idempotence": section.idempotent,
            "linger.ms": LINGER_MS,
        }
        if section.transaction:
            settings["transactional.id"] = f"{topic}-transactions"
        producer = Producer(settings)
        if section.transaction:
            producer.init_transactions(PATIENCE_SECONDS)
            producer.begin_transaction()
        failures: list[str] = []

        def on_delivery(error: object, _message: object, failures: list[str] = failures) -> None:
            if error is not None:
                failures.append(str(error))

        for record in section.records:
            producer.produce(
                topic,
                partition=0,
                timestamp=record.timestamp,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                on_delivery=on_delivery,
            )
        left = producer.flush(PATIENCE_SECONDS)
        if left or failures:
            raise RuntimeError(f"confluent-kafka did not deliver {left} records; errors: {failures}")
        if section.transaction == "commit":
            producer.commit_transaction(PATIENCE_SECONDS)
        elif section.transaction == "abort":
            producer.abort_transaction(PATIENCE_SECONDS)


def write_kafka_python(bootstrap: str, topic: str, sections: Iterable[Section]) -> None:
    """kafka-python; needs its extras `lz4`, `snappy` and `zstd`, and refuses headers without a value."""
    for section in sections:
        settings: dict[str, Any] = {"transactional_id": f"{topic}-transactions"} if section.transaction else {}
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if section.codec == "none" else section.codec,
            enable_idempotence=section.idempotent,
            linger_ms=LINGER_MS,
            batch_size=BATCH_BYTES_MAX,
            **settings,
        )
        try:
            if section.transaction:
                producer.init_transactions()
                producer.begin_transaction()
            futures = [
                producer.send(
                    topic,
                    partition=0,
                    timestamp_ms=record.timestamp,
                    key=record.key,
                    value=record.value,
                    headers=[each for each in record.headers if each[1] is not None],
                )
                for record in _with_key_or_value(section.records)
            ]
            producer.flush(PATIENCE_SECONDS)
            for future in futures:
                future.get(PATIENCE_SECONDS)
            if section.transaction == "commit":
                producer.commit_transaction()
            elif section.transaction == "abort":
                producer.abort_transaction()
        finally:
            producer.close()


def write_aiokafka(bootstrap: str, topic: str, sections: Iterable[Section]) -> None:
    """aiokafka, whose record encoder is its own C extension."""
    asyncio.run(_write_aiokafka(bootstrap, topic, sections))


async def _write_aiokafka(bootstrap: str, topic: str, sections: Iterable[Section]) -> None:
    for section in sections:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if section.codec == "none" else section.codec,
            enable_idempotence=section.idempotent,
            transactional_id=f"{topic}-transactions" if section.transaction else None,
            linger_ms=LINGER_MS,
            max_batch_size=BATCH_BYTES_MAX,
        )
        await producer.start()
        try:
            if section.transaction:
                await producer.begin_transaction()
            futures = [
                await producer.send(
                    topic,
                    partition=0,
                    timestamp_ms=record.timestamp,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                )
                for record in _with_key_or_value(section.records)
            ]
            await asyncio.wait_for(asyncio.gather(*futures), PATIENCE_SECONDS)
            if section.transaction == "commit":
                await producer.commit_transaction()
            elif section.transaction == "abort":
                await producer.abort_transaction()
        finally:
            await producer.stop()


def write_java(bootstrap: str, topic: str, sections: Iterable[Section]) -> None:
    """Kafka's own Java client, by way of `ScriptedProducer.java`."""
    lines: list[str] = []
    for section in sections:
        settings = {
            "bootstrap.servers": bootstrap,
            "compression.type": section.codec,
            "enable.idempotence": str(section.idempotent).lower(),
            "linger.ms": str(LINGER_MS),
            "batch.size": str(BATCH_BYTES_MAX),
        }
        if section.transaction:
            settings["transactional.id"] = f"{topic}-transactions"
        lines.append("\t".join(["open", *(f"{name}={value}" for name, value in settings.items())]))
        if section.transaction:
            lines.append("begin")
        lines.extend(_java_record(topic, record) for record in section.records)
        lines.append("flush")
        if section.transaction:
            lines.append(section.transaction)
    run_java_script(lines)


def run_java_script(lines: Iterable[str]) -> None:
    """Compiles `ScriptedProducer.java` and feeds it these lines."""
    with tempfile.TemporaryDirectory(prefix="ottla-golden-java-") as folder:
        compile_java(Path(__file__).with_name("ScriptedProducer.java"), Path(folder))
        command = java_command("ScriptedProducer", jvm_options=SHORT_LIVED_JVM, extra_path=folder)
        script = "".join(f"{line}\n" for line in lines)
        done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS)
    if done.returncode != 0 or done.stdout.strip() != "done":
        raise RuntimeError(f"the Java producer failed:\n{done.stdout}{done.stderr[-4000:]}")


def _with_key_or_value(records: Iterable[NewRecord]) -> Iterator[NewRecord]:
    """Two of the clients refuse a record that has neither."""
    return (record for record in records if record.key is not None or record.value is not None)


def _java_record(topic: str, record: NewRecord) -> str:
    headers = (f"{name.encode().hex()}={_java_bytes(value)}" for name, value in record.headers)
    fields = [topic, "0", str(record.timestamp), _java_bytes(record.key), _java_bytes(record.value), *headers]
    return "\t".join(["record", *fields])


def _java_bytes(value: bytes | None) -> str:
    return "-" if value is None else value.hex()


CLIENTS: Final[dict[str, Write]] = {
    "aiokafka": write_aiokafka,
    "java": write_java,
    "kafka-python": write_kafka_python,
    "librdkafka": write_librdkafka,
}
