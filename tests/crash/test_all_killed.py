"""All brokers are killed, and one returns: what readers see until it knows again what was committed."""

from pathlib import Path

import pytest

from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.producer.blocking_producer import Producer
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.answer_errors import AnswerError
from ottla.testing import BrokerCluster, InProcessBroker
from tests.waiting import PATIENCE_SECONDS

COUNT = 300
KNOWN = 100
PARTITION = TopicPartition("t", 0)
SETTINGS = {"replica.high.watermark.checkpoint.interval.ms": "3600000"}
"""The checkpoint is as old as the test wants, not as five seconds make it."""


def send(cluster: BrokerCluster, first: int, end: int) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for number in range(first, end):
            producer.send("t", b"%d" % number, partition=0)


def read(bootstrap: str, start: int, *, wait_ms: int) -> list[int]:
    """The values of the records from an offset on that arrive within a while."""
    with Consumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="none") as consumer:
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, start)
        found: list[int] = []
        while len(found) < COUNT - start and (polled := consumer.poll(wait_ms)):
            found += [int(record.value or b"") for records in polled.values() for record in records]
        return found


def end_of(bootstrap: str, *, wait_ms: int) -> int:
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        return consumer.end_offsets([PARTITION], wait_ms)[PARTITION]


def test_the_end_does_not_go_back(tmp_path: Path) -> None:
    with BrokerCluster(tmp_path, SETTINGS, kind=InProcessBroker) as cluster:
        cluster.create_topic("t")
        cluster.wait_in_sync()
        send(cluster, 0, KNOWN)
        cluster.restart()  # in order, so that the checkpoints know what was committed so far
        cluster.wait_in_sync()
        send(cluster, KNOWN, COUNT)
        assert COUNT == end_of(cluster.bootstrap, wait_ms=PATIENCE_SECONDS * 1000)
        _, other, one = cluster.brokers  # the last one that is killed may lead alone
        for broker in cluster.brokers:
            broker.kill()
        one.start()
        assert one is cluster.leader_of("t")
        # Whether the others have the last records is not known. Nobody is told that the partition ends before them.
        with pytest.raises(AnswerError) as refused:
            end_of(one.bootstrap, wait_ms=500)
        assert ErrorCode.OFFSET_NOT_AVAILABLE == refused.value.error_code
        assert list(range(KNOWN)) == read(one.bootstrap, 0, wait_ms=500)
        assert [] == read(one.bootstrap, COUNT - 1, wait_ms=500), "neither a record nor OFFSET_OUT_OF_RANGE"
        other.start()
        assert COUNT == end_of(one.bootstrap, wait_ms=PATIENCE_SECONDS * 1000)
        assert list(range(COUNT)) == read(one.bootstrap, 0, wait_ms=PATIENCE_SECONDS * 1000)
