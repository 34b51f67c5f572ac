"""Brokers on ZooKeeper are restarted one after the other, as for an upgrade, while a producer writes."""

import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.producer.blocking_producer import Producer
from ottla.model.ids import TopicPartition
from ottla.testing import BrokerCluster, ProcessBroker
from tests.cluster.zookeeper import ZooKeeperEnsemble
from tests.waiting import PATIENCE_SECONDS

PARTITIONS = 2
BATCH = 10
SECONDS = PATIENCE_SECONDS


def test_every_record_is_stored_once_and_in_order(zookeeper: ZooKeeperEnsemble, tmp_path: Path) -> None:
    def make(folder: Path, settings: Mapping[str, str], *, metadata: Path) -> ProcessBroker:
        return ProcessBroker(folder, settings, store=f"zookeeper://{zookeeper.servers}/rolling")

    with BrokerCluster(tmp_path, kind=make) as cluster:
        cluster.create_topic("t", PARTITIONS)
        pids = [each.pid for each in cluster.brokers if isinstance(each, ProcessBroker)]
        sent: list[int] = []
        is_over = threading.Event()
        failures: list[BaseException] = []

        def write() -> None:
            try:
                with Producer(bootstrap_servers=cluster.bootstrap, acks="all", enable_idempotence=True) as producer:
                    while not is_over.is_set():
                        for _ in range(BATCH):
                            sent.append(len(sent))
                            last = producer.send("t", b"%d" % sent[-1], partition=sent[-1] % PARTITIONS)
                        last.get(SECONDS)
            except BaseException as failure:
                failures.append(failure)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            cluster.restart()
        finally:
            is_over.set()
            writer.join(SECONDS)
        assert [] == failures
        assert all(each.pid not in pids for each in cluster.brokers if isinstance(each, ProcessBroker))
        read: dict[int, list[int]] = defaultdict(list)
        with Consumer("t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            for _, record in zip(sent, consumer, strict=False):
                read[record.partition].append(int(record.value))
            ends = consumer.end_offsets([TopicPartition("t", each) for each in range(PARTITIONS)])
        assert {each: sent[each::PARTITIONS] for each in range(PARTITIONS)} == read
        assert len(sent) == sum(ends.values())
