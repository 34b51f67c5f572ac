"""The same logs, cleaned by Kafka and by Ottla: what is left must be the same, at the same offsets."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.model.ids import TopicPartition
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from tests.compat import ottla_logs
from tests.compat.kafka_broker import QUICK_START_JVM_OPTIONS, KafkaBroker
from tests.compat.kafka_dump import Dump, dump, log_files
from tests.golden import stores
from tests.golden.manifest import ExpectedPartition
from tests.golden.readers import read_partition
from tests.waiting import PATIENCE_SECONDS

# Both keep tombstones and their horizons; nothing else in the log may depend on the clock.
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0",
    "delete.retention.ms": "86400000",
    "segment.ms": "1000000000000",
    "index.interval.bytes": "1",
}


def write_again(log: Log) -> None:
    """A log that was cleaned before, so that markers stand alone and batches are empty already."""
    ottla_logs.write_cleanable(log)
    ottla_logs.clean(log)
    ottla_logs.write_cleanable(log, first_sequence=15)


STORIES: Final[dict[str, Callable[[Log], None]]] = {"once": ottla_logs.write_cleanable, "again": write_again}
TOPICS: Final = tuple(STORIES)


def _config_of(partition: TopicPartition) -> LogConfig:
    return ottla_logs.COMPACTED


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs after Ottla's cleaner."""
    data = tmp_path_factory.mktemp("cleaned-by-ottla") / "data"
    with stores.opened(data, _config_of) as store:
        for topic, story in STORIES.items():
            log = store.create(TopicPartition(topic, 0))
            story(log)
            ottla_logs.clean(log)
    return data


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, ExpectedPartition]]:
    """The logs after Kafka's cleaner, and what consumers see of them."""
    folder = tmp_path_factory.mktemp("cleaned-by-kafka")
    with stores.opened(folder / "uncleaned", _config_of) as store:
        for topic, story in STORIES.items():
            story(store.create(TopicPartition(topic, 0)))
    broker = KafkaBroker(
        folder / "broker", overrides={"log.cleaner.backoff.ms": "100"}, jvm_options=QUICK_START_JVM_OPTIONS
    )
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = [NewTopic(topic, num_partitions=1, config=TOPIC_CONFIG) for topic in TOPICS]
        for created in admin.create_topics(topics).values():
            created.result(PATIENCE_SECONDS)
        broker.wait_made(TOPICS)
    for topic in TOPICS:
        target = broker.log_dir / f"{topic}-0"
        for path in target.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in (folder / "uncleaned" / f"{topic}-0").iterdir():
            if path.suffix != ".deleted":
                shutil.copy(path, target / path.name)
    with broker:
        for topic in TOPICS:
            broker.wait_cleaned(topic)
        partitions = {topic: read_partition(broker.bootstrap, topic) for topic in TOPICS}
    return broker.log_dir, partitions


@pytest.mark.parametrize("topic", TOPICS)
def test_consumers_see_the_same(ours: Path, theirs: tuple[Path, dict[str, ExpectedPartition]], topic: str) -> None:
    expected = theirs[1][topic]
    with stores.opened(ours, _config_of) as store:
        log = store.get(TopicPartition(topic, 0))
        log.advance_high_watermark(log.end_offset)
        assert list(expected.records) == stores.read_records(log)
        assert list(expected.committed_offsets) == [record.offset for record in stores.read_committed(log)]
        assert expected.end_offset == log.end_offset


@pytest.mark.parametrize("topic", TOPICS)
def test_the_same_batches_are_left(ours: Path, theirs: tuple[Path, dict[str, ExpectedPartition]], topic: str) -> None:
    """Batches keep their first and last offsets, sequences and epochs, and the same ones carry a delete horizon."""
    mine, kafkas = dump(log_files(ours / f"{topic}-0")), dump(log_files(theirs[0] / f"{topic}-0"))
    assert [] == mine.complaints
    assert _headers(kafkas) == _headers(mine)
    assert [batch for rows in kafkas.batches.values() for batch in rows if batch.delete_horizon >= 0]


def _headers(found: Dump) -> list[tuple[object, ...]]:
    """Of the batches that still hold records or markers; which emptied ones stay depends on how segments merge."""
    return [
        (
            batch.base_offset,
            batch.last_offset,
            batch.count,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.last_sequence,
            batch.leader_epoch,
            batch.is_transactional,
            batch.is_control,
            batch.delete_horizon >= 0,
            batch.max_timestamp,
            batch.codec,
            [(record.offset, record.timestamp, record.key, record.value, record.marker) for record in batch.records],
        )
        for path in sorted(found.batches)
        for batch in found.batches[path]
        if batch.count > 0
    ]
