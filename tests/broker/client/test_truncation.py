"""A broker process that loses records, and comes back as a new leader: consumers notice by the leader epoch.

The broker is stopped, its log cut back to a batch, and its metadata removed, so that it takes its folders over under a
leader epoch that no batch has: what a cluster sees when a replica that lagged behind is made the leader.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.consumer.errors import LogTruncatedError
from ottla.client.producer.blocking_producer import Producer
from ottla.model.ids import TopicPartition
from ottla.records.batch import scan
from ottla.storage.data_dirs.names import CLEAN_SHUTDOWN, HIGH_WATERMARKS, RECOVERY_POINTS
from tests.broker.client.producer_log import make_topic
from tests.broker_process import BrokerProcess

TOPIC = "truncated"
PARTITION = TopicPartition(TOPIC, 0)
BATCH = 10
POLL_MS = 20_000
WAIT_S = 30


@pytest.fixture
def lossy(tmp_path: Path) -> Iterator["LossyBroker"]:
    """A broker with ten batches of ten records in a topic."""
    with LossyBroker(tmp_path) as broker:
        make_topic(broker.address, TOPIC)
        broker.write(0, 10 * BATCH)
        yield broker


class LossyBroker(BrokerProcess):
    """See the module's docstring."""

    def write(self, start: int, end: int) -> None:
        """Appends numbers, ten to a batch."""
        # Only a flush sends what is there.
        with Producer(bootstrap_servers=self.address, linger_ms=60_000) as producer:
            for first in range(start, end, BATCH):
                for number in range(first, first + BATCH):
                    producer.send(TOPIC, b"%d" % number)
                producer.flush(WAIT_S)

    def lose(self, batches: int) -> None:
        """Comes back without the last batches, as a new leader."""
        self.stop()
        (log,) = (self.data / f"{TOPIC}-0").glob("*.log")
        found, _, _ = scan(memoryview(log.read_bytes()), check_crc=False)
        with log.open("r+b") as file:
            file.truncate(sum(batch.size_bytes for batch in found[: len(found) - batches]))
        # Otherwise the broker would notice that records are missing, and go on behind them.
        evidence = (CLEAN_SHUTDOWN, RECOVERY_POINTS, HIGH_WATERMARKS)
        for gone in (*self.data.glob("metadata.db*"), *(self.data / name for name in evidence)):
            gone.unlink()
        self.start()


def consumer(broker: BrokerProcess, **more: Any) -> Consumer:
    options: dict[str, Any] = {"auto_offset_reset": "earliest", **more}
    return Consumer(bootstrap_servers=broker.address, **options)


def read(reading: Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        records = reading.poll(POLL_MS)
        assert records, f"only {found} came"
        found += [int(record.value) for record in records.get(PARTITION, ())]
    return found


def test_reading_goes_on_where_the_logs_part(lossy: LossyBroker, caplog: pytest.LogCaptureFixture) -> None:
    with consumer(lossy) as reading:
        reading.assign([PARTITION])
        assert list(range(100)) == read(reading, 100)
        lossy.lose(batches=4)
        lossy.write(1000, 1020)
        with caplog.at_level(logging.WARNING, "ottla.client"):
            assert list(range(1000, 1020)) == read(reading, 20)
        assert 80 == reading.position(PARTITION)
    assert [f"partition {PARTITION}: log truncated at 60, below the position 100"] == [
        record.getMessage() for record in caplog.records if "truncated" in record.getMessage()
    ]


def test_without_a_policy_the_program_is_told_and_says_where_to_go_on(lossy: LossyBroker) -> None:
    with consumer(lossy, auto_offset_reset="none") as reading:
        reading.assign([PARTITION])
        reading.seek(PARTITION, 0)
        assert list(range(100)) == read(reading, 100)
        lossy.lose(batches=4)
        lossy.write(1000, 1060)
        with pytest.raises(
            LogTruncatedError, match=r"truncated-0 \(truncated at 60\); call seek to continue"
        ) as caught:
            read(reading, 1)
        assert {PARTITION: 60} == caught.value.offsets
        reading.seek(PARTITION, 60)
        assert list(range(1000, 1060)) == read(reading, 60)


def test_a_new_leader_that_has_everything_is_read_on_from(lossy: LossyBroker) -> None:
    with consumer(lossy, auto_offset_reset="none") as reading:
        reading.assign([PARTITION])
        reading.seek(PARTITION, 0)
        assert list(range(100)) == read(reading, 100)
        lossy.lose(batches=0)
        lossy.write(100, 120)
        assert list(range(100, 120)) == read(reading, 20)


@pytest.mark.parametrize("kills", [1, 2])
def test_records_older_than_the_leader_are_read_from_the_beginning(lossy: LossyBroker, kills: int) -> None:
    """Nobody has to be asked about records before the first one."""
    for _ in range(kills):
        lossy.lose(batches=0)
    with consumer(lossy) as reading:
        reading.subscribe([TOPIC])
        assert list(range(100)) == read(reading, 100)


def test_a_position_with_its_epoch_is_checked_before_reading(lossy: LossyBroker) -> None:
    """Committed offsets carry the epoch of what was read, so a loss shows when the group comes back."""
    with consumer(lossy, group_id="comes-back") as reading:
        reading.subscribe([TOPIC])
        assert list(range(100)) == read(reading, 100)
        reading.commit()
    lossy.lose(batches=4)
    lossy.write(1000, 1060)
    with consumer(lossy, group_id="comes-back", auto_offset_reset="none") as reading:
        reading.subscribe([TOPIC])
        with pytest.raises(LogTruncatedError, match=r"truncated-0 \(truncated at 60\)"):
            read(reading, 1)
