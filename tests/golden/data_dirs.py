"""The story that fills the golden data dirs: topics with every kind of file, over several lives of one broker.

`live` takes a broker through it and hands over two copies of its data dir: one after a clean shutdown, and one after
a kill in the middle of work, together with what Kafka itself made of each. Packing is `make.py`'s duty.
"""

import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compat.kafka_broker import KafkaBroker
from tests.golden.manifest import ExpectedPartition
from tests.golden.readers import dump_folders, read_partition, with_files
from tests.golden.record_set import CODECS

TIMEOUT_S: Final = 60

BROKER_SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "100",
    # Checkpoints are written twice a second, so that a killed broker leaves some behind.
    "log.initial.task.delay.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
}

# Kafka 4 refuses segments below 1 MiB, so they are made small by timestamps: a new one every eight records or so.
SMALL_SEGMENTS: Final = {
    "segment.ms": "8000",
    "segment.index.bytes": "4096",
    "index.interval.bytes": "1",
    "retention.ms": "-1",
}
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "segments": SMALL_SEGMENTS,
    "transactions": SMALL_SEGMENTS,
    "compacted": {
        **SMALL_SEGMENTS,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.0",
        "delete.retention.ms": "86400000",
    },
    # Rolls when an index is full. Only a topic that is at rest when the broker is killed can have that: Kafka's
    # recovery makes entries that a reopened segment or the cleaner left out, finds the index full, and gives up.
    "trimmed": {**SMALL_SEGMENTS, "segment.index.bytes": "96", "segment.ms": "1000000000000"},
    # With everything at its default: one segment, and indexes preallocated to 10 MiB while the broker runs.
    "append-time": {"message.timestamp.type": "LogAppendTime"},
}
TRIMMED_TO: Final = 20

FIRST_TIMESTAMP: Final = int(time.time()) * 1_000 + 60_000
"""A little ahead, so that the markers' timestamps, which the broker takes from its clock, come before the records'."""


class Writer:
    """Writes numbered records through confluent-kafka, at rising timestamps; one batch each unless told."""

    def __init__(self, bootstrap: str, *, codec: str = "none", transactional_id: str | None = None) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 50,
            "log_level": 0,
        }
        if transactional_id is not None:
            # Left open across restarts: the coordinator must not abort it by itself.
            settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": 900_000}
        self.producer = Producer(settings)
        if transactional_id is not None:
            self.producer.init_transactions(TIMEOUT_S)

    def write(
        self, topic: str, numbers: range, *, keys: int = 10, tombstones: bool = False, per_batch: int = 1
    ) -> None:
        """Record n has the key n mod `keys`, and a value unless `tombstones`. In a batch of several, time runs back."""
        for first in numbers[::per_batch]:
            for number in reversed(range(first, first + per_batch)):
                self.producer.produce(
                    topic,
                    partition=0,
                    timestamp=FIRST_TIMESTAMP + number * 1_000,
                    key=f"key-{number % keys}".encode(),
                    value=None if tombstones else f"value {number} ".encode() * 3,
                    headers=[("number", str(number).encode())],
                    on_delivery=_raise_if_failed,
                )
            if self.producer.flush(TIMEOUT_S):
                raise TimeoutError(f"{topic}: record {first} was not acknowledged")


def live(folder: Path) -> Iterator[tuple[str, Path, dict[str, ExpectedPartition]]]:
    """Yields a name, the copied data dir, and its partitions as Kafka sees them."""
    broker = KafkaBroker(folder, overrides=BROKER_SETTINGS)
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        topics = [NewTopic(name, num_partitions=1, config=dict(config)) for name, config in TOPICS.items()]
        for created in admin.create_topics(topics).values():
            created.result(TIMEOUT_S)
        _first_life(broker.bootstrap)
        broker.stop()

        broker.start()
        _second_life(broker.bootstrap)
        broker.wait_cleaned("compacted")
        partitions = _read_all(broker.bootstrap)
        broker.stop()
        clean = folder / "clean"
        _copy_tree(broker.log_dir, clean)
        yield "clean", clean, _with_dump(partitions, clean)

        broker.start()
        _third_life(broker.bootstrap)
        broker.kill()
        killed = folder / "killed"
        _copy_tree(broker.log_dir, killed)
        broker.start()
        partitions = _read_all(broker.bootstrap)
        broker.stop()
        yield "killed", killed, _with_dump(partitions, broker.log_dir)
    finally:
        broker.kill()


def _first_life(bootstrap: str) -> None:
    for number, codec in enumerate(CODECS):
        Writer(bootstrap, codec=codec).write("segments", range(number * 6, number * 6 + 6))
    writer = Writer(bootstrap)
    writer.write("trimmed", range(40))
    writer.write("append-time", range(5))
    writer.write("compacted", range(30))
    writer.write("compacted", range(33, 35), tombstones=True)

    first, second = (Writer(bootstrap, codec="lz4", transactional_id=f"transaction-{name}") for name in "ab")
    for start in (0, 10, 20):
        first.producer.begin_transaction()
        second.producer.begin_transaction()
        first.write("transactions", range(start, start + 3))
        second.write("transactions", range(start + 3, start + 7))
        first.write("transactions", range(start + 7, start + 9))
        first.producer.abort_transaction(TIMEOUT_S)
        second.write("transactions", range(start + 9, start + 10))
        second.producer.commit_transaction(TIMEOUT_S)


def _second_life(bootstrap: str) -> None:
    writer = Writer(bootstrap, codec="zstd")
    writer.write("segments", range(30, 42), per_batch=2)
    writer.write("append-time", range(5, 10))
    writer.write("compacted", range(40, 64))
    aborting = Writer(bootstrap, transactional_id="transaction-c")
    aborting.producer.begin_transaction()
    aborting.write("compacted", range(64, 70))
    aborting.producer.abort_transaction(TIMEOUT_S)
    writer.write("compacted", range(71, 73), tombstones=True)
    # The active segment is never cleaned: these push everything before them out of it.
    writer.write("compacted", range(80, 100), keys=1)

    _leave_open(bootstrap, "transaction-d", range(30, 34))
    writer.write("transactions", range(34, 36))
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for trimmed in admin.delete_records([TopicPartition("trimmed", 0, TRIMMED_TO)]).values():
        trimmed.result(TIMEOUT_S)


def _third_life(bootstrap: str) -> None:
    writer = Writer(bootstrap, codec="gzip")
    writer.write("segments", range(42, 72), per_batch=3)
    writer.write("append-time", range(10, 16), per_batch=2)
    _leave_open(bootstrap, "transaction-e", range(40, 46))
    aborting = Writer(bootstrap, transactional_id="transaction-f")
    aborting.producer.begin_transaction()
    aborting.write("transactions", range(46, 49))
    aborting.producer.abort_transaction(TIMEOUT_S)
    # The marker may follow the answer; but a producer's next transaction waits for the marker of its last.
    aborting.producer.begin_transaction()
    aborting.write("transactions", range(49, 50))
    _left_open.append(aborting)
    writer.write("transactions", range(50, 53))


_left_open: Final[list[Writer]] = []
"""Producers are kept, since destroying one ends its transaction."""


def _leave_open(bootstrap: str, transactional_id: str, numbers: range) -> None:
    writer = Writer(bootstrap, transactional_id=transactional_id)
    writer.producer.begin_transaction()
    writer.write("transactions", numbers)
    _left_open.append(writer)


def _read_all(bootstrap: str) -> dict[str, ExpectedPartition]:
    return {f"{topic}-0": read_partition(bootstrap, topic) for topic in TOPICS}


def _copy_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".lock"))


def _with_dump(partitions: dict[str, ExpectedPartition], data: Path) -> dict[str, ExpectedPartition]:
    found = dump_folders([data / name for name in partitions])
    return {name: with_files(partition, found, data / name) for name, partition in partitions.items()}


def _raise_if_failed(error: object, message: Any) -> None:
    if error is not None:
        raise RuntimeError(f"{message.topic()}: {error}")
