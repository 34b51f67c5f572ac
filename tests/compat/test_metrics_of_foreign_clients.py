"""What librdkafka and kafka-python do to a broker process, told by its metrics: records, bytes, requests and lag."""

import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer

from ottla.testing.free_ports import free_port
from tests.waiting import PATIENCE_SECONDS

RECORDS = 1000
CONSUMED = 600
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


class Served:
    """A broker with its HTTP endpoint."""

    def __init__(self, folder: Path) -> None:
        self.http = f"127.0.0.1:{free_port()}"
        settings = ("--set", "offsets.topic.num.partitions=1", "--set", "num.partitions=2")
        command = [sys.executable, "-m", "ottla", "serve", "--data", str(folder), "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [*command, "--http", self.http, *settings], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[1]

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels; 0 if there is none."""
        text = urllib.request.urlopen(f"http://{self.http}/metrics", timeout=PATIENCE_SECONDS).read().decode()
        found = [SAMPLE.match(line) for line in text.splitlines() if line.startswith(name)]
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        return sum(
            float(each[3]) for each in found if each and each[1] == name and wanted <= set((each[2] or "").split(","))
        )


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    broker = Served(tmp_path / "data")
    try:
        yield broker
    finally:
        broker.process.terminate()
        broker.process.wait(PATIENCE_SECONDS)


def test_records_bytes_requests_and_lag(served: Served) -> None:
    producer = Producer({"bootstrap.servers": served.address, "acks": "all"})
    for number in range(RECORDS):
        producer.produce("t", value=b"value %d" % number, partition=number % 2)
    assert 0 == producer.flush(PATIENCE_SECONDS)
    assert RECORDS == served.metric("ottla_topic_appended_records_total", topic="t")
    sent = served.metric("ottla_topic_appended_bytes_total", topic="t")
    assert sent > RECORDS * len("value 1")
    produced = served.metric("ottla_requests_total", api="produce")
    assert produced == served.metric("ottla_request_seconds_count", api="produce") > 0
    assert 0 < served.metric("ottla_request_seconds_sum", api="produce") < PATIENCE_SECONDS

    settings = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": served.address, **settings})
    consumer.assign([TopicPartition("t", 0, 0), TopicPartition("t", 1, 0)])
    read = 0
    deadline = time.monotonic() + PATIENCE_SECONDS
    while read < RECORDS:
        assert time.monotonic() < deadline
        read += len(consumer.consume(RECORDS, 1.0))
    committed = [TopicPartition("t", partition, CONSUMED // 2) for partition in range(2)]
    consumer.commit(offsets=committed, asynchronous=False)
    consumer.close()
    assert RECORDS - CONSUMED == served.metric("ottla_consumer_group_lag", group="g", topic="t")
    assert 0 == served.metric("ottla_consumer_group_lag_unknown_partitions", group="g")
    assert served.metric("ottla_topic_fetched_bytes_total", topic="t") >= sent

    other = KafkaConsumer("t", bootstrap_servers=served.address, group_id="h", auto_offset_reset="earliest")
    values: list[bytes] = []
    while len(values) < RECORDS:
        assert time.monotonic() < deadline
        values += [each.value for some in other.poll(1000).values() for each in some]
    other.commit()
    other.close()
    assert 0 == served.metric("ottla_consumer_group_lag", group="h", topic="t")
    assert 1 == served.metric("ottla_active_controller")
    assert 0 == served.metric("ottla_partitions_under_replicated")
    # The topic, and the one partition of the groups' offsets.
    assert 3 == served.metric("ottla_partitions_led")
    assert RECORDS == served.metric("ottla_topic_appended_records_total", topic="t")
