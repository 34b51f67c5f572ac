"""Real readers for the manifests: two consumers that must agree, and Kafka's log dump tool.

confluent-kafka gives the records; aiokafka, whose decoder shares no code with it, must deliver the same, or making
the golden files fails.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.compat.kafka_dump import Dump, dump, log_files
from tests.golden.manifest import ExpectedPartition, ExpectedRecord, expected_record
from tests.waiting import PATIENCE_SECONDS

FETCH_WAIT_MS: Final = 10
"""The end of a partition shows in an empty answer, which need not be waited for long."""


def read_partition(bootstrap: str, topic: str, partition: int = 0) -> ExpectedPartition:
    """All that consumers see of a partition; `with_files` adds the dump tool's account."""
    records = consume(bootstrap, topic, partition)
    again = asyncio.run(_consume_aiokafka(bootstrap, topic, partition, len(records)))
    if records != again:
        raise RuntimeError(f"confluent-kafka and aiokafka disagree about {topic}-{partition}")
    committed = consume(bootstrap, topic, partition, isolation_level="read_committed")
    log_start_offset, end_offset = watermarks(bootstrap, topic, partition)
    return ExpectedPartition(
        log_start_offset=log_start_offset,
        last_stable_offset=watermarks(bootstrap, topic, partition, isolation_level="read_committed")[1],
        end_offset=end_offset,
        records=tuple(records),
        committed_offsets=tuple(record.offset for record in committed),
        batches=(),
        files={},
    )


def watermarks(
    bootstrap: str, topic: str, partition: int = 0, *, isolation_level: str = "read_uncommitted"
) -> tuple[int, int]:
    """The log's start and the high watermark; for read_committed, the last stable offset in its place."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "watermarks", "isolation.level": isolation_level}
    consumer = Consumer(settings)
    try:
        start, end = consumer.get_watermark_offsets(
            TopicPartition(topic, partition), timeout=PATIENCE_SECONDS, cached=False
        )
        return int(start), int(end)
    finally:
        consumer.close()


def consume(
    bootstrap: str, topic: str, partition: int = 0, *, isolation_level: str = "read_uncommitted"
) -> list[ExpectedRecord]:
    """Reads a partition from its start to its end with confluent-kafka, which checks the CRC of each batch."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "check.crcs": True,
            "isolation.level": isolation_level,
            "auto.offset.reset": "error",
        }
    )
    records: list[ExpectedRecord] = []
    try:
        start = watermarks(bootstrap, topic, partition)[0]
        consumer.assign([TopicPartition(topic, partition, start)])
        while True:
            message: Any = consumer.poll(PATIENCE_SECONDS)
            if message is None:
                raise TimeoutError(
                    f"{topic}-{partition} fell silent for {PATIENCE_SECONDS} s after {len(records)} records"
                )
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return records
            if error is not None:
                raise RuntimeError(f"{topic}-{partition}: {error}")
            content = (message.key(), message.value(), message.headers() or [])
            records.append(expected_record(message.offset(), message.timestamp()[1], *content))
    finally:
        consumer.close()


async def _consume_aiokafka(bootstrap: str, topic: str, partition: int, count: int) -> list[ExpectedRecord]:
    where = AioTopicPartition(topic, partition)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, fetch_max_wait_ms=FETCH_WAIT_MS)
    await consumer.start()
    try:
        consumer.assign([where])
        await consumer.seek_to_beginning(where)
        records: list[ExpectedRecord] = []
        while len(records) < count:
            message = await asyncio.wait_for(consumer.getone(), PATIENCE_SECONDS)
            content = (message.key, message.value, message.headers)
            records.append(expected_record(message.offset, message.timestamp, *content))
        return records
    finally:
        await consumer.stop()


def dump_folders(folders: Iterable[Path]) -> Dump:
    """One run of the dump tool over all files of these partition folders; raises if it finds anything wrong."""
    found = dump([path for folder in folders for path in log_files(folder)])
    if found.complaints:
        raise RuntimeError("Kafka's own files do not pass Kafka's own tool: " + "\n".join(found.complaints))
    return found


def with_files(partition: ExpectedPartition, found: Dump, folder: Path) -> ExpectedPartition:
    """Adds to a partition what the dump tool found in its folder."""
    files: dict[str, Any] = {}
    for entries in (found.offset_entries, found.time_entries):
        files.update({path.name: [list(row) for row in rows] for path, rows in _inside(entries, folder)})
    for objects in (found.aborts, found.producers):
        files.update({path.name: [asdict(each) for each in rows] for path, rows in _inside(objects, folder)})
    batches = [_header(batch, path) for path, rows in _inside(found.batches, folder) for batch in rows]
    return replace(partition, batches=tuple(batches), files=files)


def _header(batch: Any, path: Path) -> dict[str, Any]:
    header = {name: value for name, value in asdict(batch).items() if name not in ("records", "is_valid")}
    return {"file": path.name, **header}


def _inside(by_path: Mapping[Path, list[Any]], folder: Path) -> list[tuple[Path, list[Any]]]:
    return [(path, rows) for path, rows in sorted(by_path.items()) if path.parent == folder]
