"""Kafka opens partition folders that Ottla wrote, serves them, writes on, and Ottla opens the result again.

A KRaft broker takes a folder for stray unless its topic id is in the cluster's metadata. So the topics are made in
Kafka first, and while it is down their files give way to ours; `partition.metadata` keeps Kafka's id.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.model.ids import TopicPartition
from ottla.storage.data_dirs.partition_identity import encode_identity
from tests.compat import ottla_logs
from tests.compat.kafka_broker import QUICK_START_JVM_OPTIONS, KafkaBroker
from tests.compat.kafka_dump import dump, log_files
from tests.golden import stores
from tests.golden.manifest import ExpectedPartition, ExpectedRecord, digest
from tests.golden.readers import read_partition
from tests.waiting import PATIENCE_SECONDS

TOPICS = tuple(ottla_logs.STORIES)
ADDED_VALUE = b"written by Kafka"


Reading = dict[str, ExpectedPartition]
"""What one reader found in each topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """The data dir's life: written by Ottla, opened by Kafka as it is, continued by Kafka, recovered by Kafka."""

    ours: Reading
    trusted: Reading
    """Kafka after a clean shutdown: it believes our indexes and snapshots."""
    recovered: Reading
    """Kafka as after a crash: it walks our batches and builds everything anew; it had added a record per topic."""
    data: Path
    """Kafka's data dir after its last clean shutdown."""


def _read_ours(data: Path) -> Reading:
    partitions: Reading = {}
    with stores.opened(data, ottla_logs.config_of) as store:
        for topic in TOPICS:
            log = store.get(TopicPartition(topic, 0))
            log.advance_high_watermark(log.end_offset)
            partitions[topic] = ExpectedPartition(
                log_start_offset=log.start_offset,
                last_stable_offset=log.last_stable_offset,
                end_offset=log.end_offset,
                records=tuple(stores.read_records(log)),
                committed_offsets=tuple(record.offset for record in stores.read_committed(log)),
                batches=(),
                files={},
            )
    return partitions


def _read_kafka(broker: KafkaBroker) -> Reading:
    return {topic: read_partition(broker.bootstrap, topic) for topic in TOPICS}


def _create_topics(broker: KafkaBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"retention.ms": "-1", "segment.ms": "1000000000000"}
    append_time = {**config, "message.timestamp.type": "LogAppendTime"}
    topics = [
        NewTopic(topic, num_partitions=1, config=append_time if topic == "append-time" else config) for topic in TOPICS
    ]
    for created in admin.create_topics(topics).values():
        created.result(PATIENCE_SECONDS)
    broker.wait_made(TOPICS)


def _put_in_place(ours: Path, theirs: Path) -> None:
    for topic in TOPICS:
        folder = theirs / f"{topic}-0"
        for path in folder.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in (ours / f"{topic}-0").iterdir():
            shutil.copy(path, folder / path.name)
        # As we write it, with lines that Kafka does not know; the topic's id is Kafka's.
        metadata = folder / "partition.metadata"
        topic_id = metadata.read_text().partition("topic_id: ")[2].split()[0]
        metadata.write_bytes(encode_identity(TopicPartition(topic, 0), topic_id))
    shutil.copy(ours / "log-start-offset-checkpoint", theirs / "log-start-offset-checkpoint")


def _add_records(broker: KafkaBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    failures: list[object] = []
    for topic in TOPICS:
        producer.produce(
            topic,
            partition=0,
            key=b"added",
            value=ADDED_VALUE,
            on_delivery=lambda error, _: None if error is None else failures.append(error),
        )
    assert 0 == producer.flush(PATIENCE_SECONDS)
    assert [] == failures


@pytest.fixture(scope="module")
def lives(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Lives:
    """Takes the data dir through its lives; a broker of its own, since it is stopped and started."""
    folder = tmp_path_factory.mktemp("adopted")
    ours = folder / "ours"
    shutil.copytree(written, ours)
    broker = KafkaBroker(folder / "broker", jvm_options=QUICK_START_JVM_OPTIONS)
    with broker:
        _create_topics(broker)
    _put_in_place(ours, broker.log_dir)
    with broker:
        trusted = _read_kafka(broker)
        _add_records(broker)
    (broker.log_dir / ".kafka_cleanshutdown").unlink()
    (broker.log_dir / "recovery-point-offset-checkpoint").unlink()
    with broker:
        recovered = _read_kafka(broker)
        assert "Recovering unflushed segment" in broker.log_text()
    return Lives(ours=_read_ours(ours), trusted=trusted, recovered=recovered, data=broker.log_dir)


@pytest.mark.parametrize("topic", TOPICS)
def test_kafka_serves_what_ottla_wrote(lives: Lives, topic: str) -> None:
    assert lives.ours[topic].records
    assert lives.ours[topic] == lives.trusted[topic]


@pytest.mark.parametrize("topic", TOPICS)
def test_kafka_recovers_what_ottla_wrote(lives: Lives, topic: str) -> None:
    """Nothing is cut off or changed, and behind it stands the record that Kafka added."""
    ours, recovered = lives.ours[topic], lives.recovered[topic]
    added = recovered.records[-1]
    assert ours.records == recovered.records[:-1]
    assert (ours.end_offset, digest(ADDED_VALUE)) == (added.offset, added.value)
    assert ours.end_offset + 1 == recovered.end_offset


@pytest.mark.parametrize("topic", TOPICS)
def test_ottla_opens_what_kafka_continued(lives: Lives, topic: str, tmp_path: Path) -> None:
    shutil.copytree(lives.data, tmp_path / "data", ignore=shutil.ignore_patterns(".lock"))
    expected = lives.recovered[topic]
    with stores.opened(tmp_path / "data") as store:
        log = store.get(TopicPartition(topic, 0))
        log.advance_high_watermark(log.end_offset)

        found: list[ExpectedRecord] = stores.read_records(log)
        assert list(expected.records) == found
        assert expected.end_offset == log.end_offset
        assert expected.last_stable_offset == log.last_stable_offset
        assert list(expected.committed_offsets) == [record.offset for record in stores.read_committed(log)]


def test_kafkas_recovery_agrees_with_our_indexes(lives: Lives, written: Path) -> None:
    """What Kafka rebuilt from our batches has the producers and aborted transactions that we had written."""
    for topic in ("producers", "transactions"):
        before, after = written / f"{topic}-0", lives.data / f"{topic}-0"
        mine, theirs = dump(log_files(before)), dump(log_files(after))
        for path, rows in mine.aborts.items():
            assert rows == theirs.aborts[after / path.name]
        both = [path for path in mine.producers if after / path.name in theirs.producers]
        assert both
        for path in both:
            rebuilt = theirs.producers[after / path.name]
            assert {row.producer_id: row for row in mine.producers[path]} == {row.producer_id: row for row in rebuilt}
