"""Producers whose broker is killed and comes back: nothing lost, nothing twice, order kept, transactions whole."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import pytest

from ottla.client.producer.blocking_producer import Producer
from ottla.client.producer.errors import TransactionFailedError
from ottla.model.errors import OttlaError
from tests.broker.client.producer_log import make_topic, read_topic
from tests.broker_process import BrokerProcess

KILLS: Final = 4
KEYS: Final = 8
PARTITIONS: Final = 3
DELIVERED_S: Final = 60


class Killing:
    """Kills the broker each time that the producer has come so far, and starts it again at once.

    With `is_sending` it is stopped first, and killed once a request is under way that it does not answer.
    """

    def __init__(self, broker: BrokerProcess, is_sending: Callable[[], bool] | None = None) -> None:
        self._broker = broker
        self._is_sending = is_sending
        self._wanted = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.kills = 0
        self.failure: Exception | None = None
        self._thread.start()

    def now(self) -> None:
        """In the background: the producer goes on meanwhile."""
        self._wanted.set()

    def _run(self) -> None:
        while not self._done.is_set():
            self._wanted.wait()
            self._wanted.clear()
            if not self._done.is_set():
                if self._is_sending is not None:
                    self._wait_sending()  # the producer is connected then
                    self._broker.program.pause()
                    self._wait_sending()
                self._broker.kill()
                try:
                    self._broker.start()
                except Exception as error:
                    self.failure = error
                    return
                self.kills += 1

    def _wait_sending(self) -> None:
        """Until a request is under way, or the producer has nothing left to send."""
        assert self._is_sending is not None
        while not self._is_sending() and not self._done.wait(0.001):
            pass

    def end(self) -> None:
        """Waits until the broker is there again."""
        self._done.set()
        self._wanted.set()
        self._thread.join(DELIVERED_S)
        if self.failure is not None:
            raise self.failure


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_no_loss_no_duplicate_and_order_by_key(tmp_path: Path, codec: Literal["none", "lz4"]) -> None:
    with BrokerProcess(tmp_path) as broker:
        make_topic(broker.address, "killed", PARTITIONS)
        total = 8000
        with Producer(
            bootstrap_servers=broker.address,
            batch_size=500,
            linger_ms=1,
            buffer_memory=100_000,
            compression_type=codec,
        ) as producer:
            killing = Killing(broker, lambda: producer.metrics()["producer-metrics"]["requests-in-flight"] > 0)
            deliveries = []
            for number in range(total):
                key = b"%d" % (number % KEYS)
                deliveries.append((key, number, producer.send("killed", b"%d" % number, key=key)))
                if number % (total // (KILLS + 1)) == total // (KILLS + 1) - 1 and killing.kills < KILLS:
                    killing.now()
            try:
                producer.flush(DELIVERED_S)
            finally:
                killing.end()
            metadata = {number: delivery.get(0) for _, number, delivery in deliveries}
            retried = producer.metrics()["producer-metrics"]["record-retry-total"]
        found = read_topic(broker.address, "killed", PARTITIONS)
    assert killing.kills >= 2
    assert retried > 0
    by_key: dict[bytes, list[int]] = {}
    for index, records in found.items():
        for record in records:
            number = int(record.value or b"")
            by_key.setdefault(bytes(record.key or b""), []).append(number)
            assert (index, record.offset) == (metadata[number].partition, metadata[number].offset)
    assert {b"%d" % key: list(range(key, total, KEYS)) for key in range(KEYS)} == by_key


def test_transactions_are_whole(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        make_topic(broker.address, "whole", PARTITIONS)
        killing = Killing(broker)
        committed: list[int] = []
        with Producer(bootstrap_servers=broker.address, transactional_id="survivor", linger_ms=1) as producer:
            producer.init_transactions()
            for number in range(60):
                producer.begin_transaction()
                try:
                    for part in range(6):
                        producer.send("whole", b"%d.%d" % (number, part), partition=part % PARTITIONS)
                    if number % 15 == 7:
                        killing.now()
                    if number % 5 == 4:
                        producer.abort_transaction()
                        continue
                    producer.commit_transaction()
                    committed.append(number)
                except TransactionFailedError:
                    producer.abort_transaction()
        killing.end()
        found = read_topic(broker.address, "whole", PARTITIONS, committed=True)
    assert killing.kills >= 2
    assert len(committed) > 30
    expected = {
        index: [b"%d.%d" % (number, part) for number in committed for part in range(6) if part % PARTITIONS == index]
        for index in range(PARTITIONS)
    }
    assert expected == {index: [record.value for record in records] for index, records in found.items()}


def test_a_broker_that_stays_away_is_told_within_the_time_given(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        make_topic(broker.address, "away")
        with Producer(
            bootstrap_servers=broker.address, request_timeout_ms=2000, delivery_timeout_ms=6000, linger_ms=0
        ) as producer:
            producer.send("away", b"x").get(DELIVERED_S)
            broker.kill()
            delivery = producer.send("away", b"y")
            with pytest.raises(OttlaError, match=r"not acknowledged within 6000 ms \(delivery_timeout_ms\).*refused"):
                delivery.get(DELIVERED_S)
            broker.start()
            # What was given up may leave a gap in the numbers; the producer goes on nevertheless.
            assert producer.send("away", b"z").get(DELIVERED_S).offset >= 1
