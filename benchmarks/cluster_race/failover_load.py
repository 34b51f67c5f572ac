"""Writes with acks=all, one record after the other's acknowledgement, and finds the longest pause around a fault.

The pause is from the last acknowledgement before to the first one after, as the writer sees it: it includes how
long the cluster takes to see that a broker is gone and to have another lead, and how long the client takes to find it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Final

from benchmarks.kafka_race.raw_load import LoadError

WARM_S: Final = 2.0
AFTER_S: Final = 1.0
PATIENCE_S: Final = 120.0
_PAUSE_S: Final = 0.002
RECORD: Final = b"v" * 100

Write = Callable[[], None]
"""Writes one record and returns when it is acknowledged."""


@contextmanager
def librdkafka_writer(bootstrap: str, topic: str) -> Iterator[Write]:
    """Its defaults, without lingering."""
    yield _librdkafka_writes(bootstrap, topic, 1)


@contextmanager
def ottla_writer(bootstrap: str, topic: str) -> Iterator[Write]:
    """The same with our own client."""
    from ottla.client.producer.blocking_producer import Producer

    timeout_ms = int(PATIENCE_S * 1000)
    with Producer(bootstrap_servers=bootstrap, acks="all", linger_ms=0, delivery_timeout_ms=timeout_ms) as producer:
        yield lambda: producer.send(topic, RECORD, partition=0).get(PATIENCE_S) and None


def pause_around(write: Write, fault: Callable[[], None]) -> float:
    """The seconds for which nothing was acknowledged around a fault that happens during writes."""
    acknowledged: list[float] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def keep_writing() -> None:
        try:
            while not done.is_set():
                write()
                acknowledged.append(time.monotonic())
                time.sleep(_PAUSE_S)
        except BaseException as error:
            failures.append(error)

    writing = threading.Thread(target=keep_writing, daemon=True)
    writing.start()
    try:
        _until(lambda: bool(acknowledged) and acknowledged[-1] - acknowledged[0] > WARM_S, failures)
        fault()
        at = time.monotonic()
        _until(lambda: _is_over(acknowledged, at), failures)
    finally:
        done.set()
        writing.join(PATIENCE_S)
    return longest_pause(acknowledged, at)


def _is_over(acknowledged: list[float], at: float) -> bool:
    """Whether one that was sent after the fault is acknowledged, and more for a while."""
    later = [each for each in acknowledged[-1000:] if each > at]
    # The first may have been under way when it happened; that is known once others follow it without a pause.
    return len(later) > 2 and later[-1] - later[2] > AFTER_S


def longest_pause(acknowledged: Sequence[float], at: float) -> float:
    """The longest time between an acknowledgement and the next, of those that end after a moment."""
    return max((after - before for before, after in pairwise(acknowledged) if after > at), default=0.0)


def _until(is_so: Callable[[], bool], failures: list[BaseException]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if failures:
            raise failures[0]
        if time.monotonic() > deadline:
            raise LoadError(f"nothing was acknowledged for {PATIENCE_S:.0f} s")
        time.sleep(_PAUSE_S)


def first_records(bootstrap: str, topic: str, partitions: int, fault: Callable[[], None]) -> float:
    """The seconds from a fault until every partition has taken a record that was sent after it."""
    write_to_all = _librdkafka_writes(bootstrap, topic, partitions)
    write_to_all()
    fault()
    at = time.monotonic()
    write_to_all()
    return time.monotonic() - at


def _librdkafka_writes(bootstrap: str, topic: str, partitions: int) -> Write:
    """Writes a record to each partition."""
    from confluent_kafka import KafkaError, Message, Producer

    settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
    producer = Producer({**settings, "message.timeout.ms": int(PATIENCE_S * 1000)})
    failures: list[object] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    def write() -> None:
        for number in range(partitions):
            producer.produce(topic, RECORD, partition=number, on_delivery=on_delivery)
        if producer.flush(PATIENCE_S) or failures:
            raise LoadError(f"records were not delivered: {failures[:1]}")

    return write
