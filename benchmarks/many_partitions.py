"""One broker with 2,000 topics of 5 partitions: to start, to tell clients of all of them, to hold them, to do nothing.

Starts are compared with that of an empty broker, a request for all metadata with one for a single topic. What creating
took, memory, descriptors and the CPU time of an idle minute are told beside, on standard error. Each partition has a
few records, so that a start after a kill has something to look at.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import Result, interleaved, report
from ottla.protocol.apis import ApiKey
from tests.broker_process import BrokerProcess
from tests.hostile.batches import numbered_batch
from tests.wire.exchange import RawConnection, request_frame

TOPICS: Final = 2_000
TOPICS_QUICK: Final = 100
PARTITIONS: Final = 5
TOPICS_PER_REQUEST: Final = 200
IDLE_SECONDS: Final = 30.0
IDLE_SECONDS_QUICK: Final = 3.0
SETTINGS: Final = {"auto.create.topics.enable": "false"}


def run(quick: bool = False) -> list[Result]:
    """Makes the partitions, then measures."""
    topics = TOPICS_QUICK if quick else TOPICS
    with _folder() as folder:
        empty = BrokerProcess(folder / "empty", settings=SETTINGS)
        many = BrokerProcess(folder / "many", settings=SETTINGS)
        with empty, many:
            _fill(many, topics)
            _tell_idle(many, empty, IDLE_SECONDS_QUICK if quick else IDLE_SECONDS)
            results = [_metadata(many, topics, quick)]
            _tell_confluent(many)
            began = time.perf_counter()
            many.stop()
            _tell(f"a clean stop, each partition having been written to, took {time.perf_counter() - began:.1f} s")
            empty.stop()
            results.append(_starts(many, empty, topics, quick))
    return results


def _fill(broker: BrokerProcess, topics: int) -> None:
    began = time.perf_counter()
    with RawConnection(broker.address) as connection:
        connection._socket.settimeout(300)
        names = [f"topic-{number:05d}" for number in range(topics)]
        for at in range(0, topics, TOPICS_PER_REQUEST):
            wishes = [
                {"name": name, "num_partitions": PARTITIONS, "replication_factor": 1}
                for name in names[at : at + TOPICS_PER_REQUEST]
            ]
            _ask(connection, ApiKey.CREATE_TOPICS, {"topics": wishes, "timeout": timedelta(minutes=5)})
        _tell(f"creating {topics * PARTITIONS} partitions took {time.perf_counter() - began:.1f} s")
        began = time.perf_counter()
        found = _ask(connection, ApiKey.METADATA, {"topics": None}).topics
        batch = numbered_batch(0, 5)
        parts = [{"index": index, "records": batch} for index in range(PARTITIONS)]
        for at in range(0, topics, TOPICS_PER_REQUEST):
            data = [
                {"topic_id": topic.topic_id, "partition_data": parts} for topic in found[at : at + TOPICS_PER_REQUEST]
            ]
            _ask(connection, ApiKey.PRODUCE, {"acks": -1, "timeout": timedelta(minutes=1), "topic_data": data})
        _tell(f"one batch to each took {time.perf_counter() - began:.1f} s")


def _tell_idle(broker: BrokerProcess, empty: BrokerProcess, seconds: float) -> None:
    for name, each in (("empty", empty), ("full", broker)):
        before = each.cpu_seconds()
        time.sleep(seconds)
        used = (each.cpu_seconds() - before) * 60 / seconds
        _tell(
            f"{name}: {each.resident_bytes() >> 20} MiB, {each.descriptors()} descriptors,"
            f" {used:.2f} s of CPU in an idle minute"
        )


def _metadata(broker: BrokerProcess, topics: int, quick: bool) -> Result:
    with RawConnection(broker.address) as connection:
        everything = {"topics": None}
        one = {"topics": [{"name": "topic-00001"}], "allow_auto_topic_creation": False}
        began = time.perf_counter()
        _ask(connection, ApiKey.METADATA, everything)
        first = time.perf_counter() - began
        size = len(_frame(connection, everything))
        _tell(f"all metadata: {size >> 10} KiB; the first time {first * 1e3:.0f} ms, with reading it in Python")

        def ask(values: dict[str, Any], times: int) -> float:
            for _ in range(times):
                _frame(connection, values)
            return times

        return interleaved(
            {"all topics": partial(ask, everything, 20), "one topic": partial(ask, one, 1000)},
            title=f"metadata of {topics * PARTITIONS} partitions",
            unit="requests",
            baseline="one topic",
            quick=quick,
        )


def _tell_confluent(broker: BrokerProcess) -> None:
    """What a client of another make needs for all metadata, if it is installed."""
    try:
        from confluent_kafka.admin import AdminClient
    except ImportError:
        return
    client = AdminClient({"bootstrap.servers": broker.address})
    for number in ("first", "second"):
        began = time.perf_counter()
        found = client.list_topics(timeout=60)
        _tell(f"librdkafka's {number} look at {len(found.topics)} topics: {(time.perf_counter() - began) * 1e3:.0f} ms")


def _starts(many: BrokerProcess, empty: BrokerProcess, topics: int, quick: bool) -> Result:
    def after(broker: BrokerProcess, end: Callable[[], None]) -> None:
        if not broker.is_running():
            broker.start()
        end()

    def start(broker: BrokerProcess) -> float:
        broker.start()
        return 1

    return interleaved(
        {
            "empty": partial(start, empty),
            "after a clean stop": partial(start, many),
            "after kill -9": partial(start, many),
        },
        title=f"starting with {topics * PARTITIONS} partitions",
        unit="starts",
        baseline="empty",
        before={
            "empty": partial(after, empty, empty.stop),
            "after a clean stop": partial(after, many, many.stop),
            "after kill -9": partial(after, many, many.kill),
        },
        rounds=1,  # A clean stop of all of them takes minutes where fsync is slow.
        quick=quick,
    )


def _ask(connection: RawConnection, api_key: ApiKey, values: dict[str, Any]) -> Any:
    return connection.ask_newest(api_key, values)


def _frame(connection: RawConnection, values: dict[str, Any]) -> bytes:
    connection.send(request_frame(ApiKey.METADATA, 12, values))
    return connection.receive()


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _tell(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    report(run())
