"""Ottla in a process of its own, and delayed records in it.

Batches are made before they are sent and have the size that Kafka's clients make by default. The consumer fetches raw
answers, notes when they arrived, and looks at them afterwards.
"""

import re
import time
from collections import deque
from datetime import timedelta
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Final, Self

from benchmarks.queue_race.rival import VALUE_BYTES, Arrival, body_of
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import DELAY_MS, DELIVER_AT_MS, delayed_topic
from ottla.protocol.apis import ApiKey
from ottla.protocol.produce_frames import VERSION_MAX, produce_body, read_produce_answer
from ottla.records.batch import whole_bytes
from ottla.records.builder import BatchBuilder
from ottla.records.record import Headers
from tests.broker_process import BrokerProcess
from tests.wire.exchange import HEADER, LENGTH, SHORT, RawConnection, request_frame

TOPIC: Final = "orders"
PLAIN: Final = "plain"
SYNCED: Final = "synced"
EXPIRING: Final = "expiring"
TOPICS: Final = {
    TOPIC: {"ottla.delay.enable": "true"},
    SYNCED: {"ottla.delay.enable": "true", "flush.messages": "1"},
    PLAIN: {},
    EXPIRING: {"ottla.ttl.ms": "86400000"},
}
BATCH_RECORDS: Final = 16_384 // (VALUE_BYTES + 40)
IN_FLIGHT_MAX: Final = 5
TIMEOUT_S: Final = 120.0
FETCH_VERSION: Final = 11
FETCH_BYTES_MAX: Final = 8 << 20
LATEST: Final = -1
_DUE: Final = re.compile(rb"due=(\d{15});")
_PLACEHOLDER: Final = 0x7EEDFACE7EEDFACE
_OFFSET: Final = Struct(">q")
_ANSWER_HEAD_BYTES: Final = 4 + 4 + 2 + 4 + 4 + 2 + 4
"""Correlation id, throttle time, error, session, count of topics, size of the topic's name, count of partitions."""
_PART: Final = Struct(">ihqqqiii")
"""Partition, error, high watermark, last stable offset, log start, aborted transactions, preferred replica, size."""


class OttlaQueue:
    """A broker; `start` and `stop` as often as wanted."""

    name = "ottla"

    def __init__(self, folder: Path) -> None:
        self.broker = BrokerProcess(folder, settings={"auto.create.topics.enable": "false"})

    def __enter__(self) -> Self:
        self.broker.start()
        with RawConnection(self.broker.address) as connection:
            topics = [
                {
                    "name": name,
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "configs": [{"name": key, "value": value} for key, value in configs.items()],
                }
                for name, configs in TOPICS.items()
            ]
            answer = connection.ask(ApiKey.CREATE_TOPICS, 5, {"topics": topics, "timeout": timedelta(seconds=30)})
            refused = [topic.error_message for topic in answer.topics if topic.error_code]
            if refused:
                raise RuntimeError(f"topics cannot be created: {refused}")
        self.wait_topic(delayed_topic(TOPIC))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.broker.kill()

    def wait_topic(self, name: str) -> None:
        """Returns when a topic is there."""
        deadline = time.monotonic() + TIMEOUT_S
        with RawConnection(self.broker.address) as connection:
            while True:
                (topic,) = connection.ask(ApiKey.METADATA, 8, {"topics": [{"name": name}]}).topics
                if not topic.error_code and all(not partition.error_code for partition in topic.partitions):
                    return
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{name} does not appear: {topic.error_code}")
                time.sleep(0.05)

    # What is measured

    def park(self, count: int, delay_ms: int, topic: str = TOPIC) -> float:
        """Records with the same delay, acknowledged; returns how many there are."""
        batch = _batch_of([body_of(0)] * BATCH_RECORDS, ((DELAY_MS, b"%d" % delay_ms),))
        return self._produce(delayed_topic(topic), [batch] * (count // BATCH_RECORDS)) * BATCH_RECORDS

    def produce(self, count: int, topic: str = PLAIN) -> float:
        """The same records to an ordinary topic."""
        batch = _batch_of([body_of(0)] * BATCH_RECORDS, ((DELAY_MS, b"3600000"),))
        return self._produce(topic, [batch] * (count // BATCH_RECORDS)) * BATCH_RECORDS

    def deliver(self, dues_ms: list[int]) -> list[Arrival]:
        """Parks a record for each time, in order, and consumes them."""
        builders = []
        for at in range(0, len(dues_ms), BATCH_RECORDS):
            builder = BatchBuilder()
            for due in dues_ms[at : at + BATCH_RECORDS]:
                builder.append(due, b"key", body_of(due), ((DELIVER_AT_MS, b"%d" % due),))
            builders.append(builder.build())
        with RawConnection(self.broker.address) as consumer:
            fetcher = _Fetcher(consumer, TOPIC, _end_offset(consumer, TOPIC))
            self._produce(delayed_topic(TOPIC), builders)
            if time.time() * 1000 > dues_ms[0]:
                raise RuntimeError("Ottla took longer to park than there was time; give it more")
            answers: list[tuple[bytes, float]] = []
            seen = 0
            while seen < len(dues_ms):
                records = fetcher.fetch()
                answers.append((records, time.time() * 1000))
                seen += records.count(b"due=")
        return [
            Arrival(due_ms=int(found[1]), arrived_ms=arrived)
            for records, arrived in answers
            for found in _DUE.finditer(records)
        ]

    def read_all(self, topic: str) -> float:
        """Fetches a topic from its start; returns how many records it has."""
        count = 0
        with RawConnection(self.broker.address) as connection:
            fetcher = _Fetcher(connection, topic, 0)
            while fetcher.offset != fetcher.end:
                count += fetcher.fetch().count(b"due=")
        return count

    def memory_bytes(self) -> int:
        """Resident memory."""
        return self.broker.resident_bytes()

    def start(self) -> None:
        """Returns when the broker accepts clients and its queue is ready for more records."""
        self.broker.start()

    def stop(self) -> None:
        """Ends it in order."""
        self.broker.stop()

    def _produce(self, topic: str, batches: list[bytes]) -> int:
        waiting: deque[int] = deque()
        with RawConnection(self.broker.address) as connection:
            connection._socket.settimeout(TIMEOUT_S)
            for number, batch in enumerate(batches):
                if len(waiting) == IN_FLIGHT_MAX:
                    _check(connection.receive())
                    waiting.popleft()
                body = b"".join(produce_body([(TopicPartition(topic, 0), batch)], acks=-1, timeout_ms=30_000))
                head = HEADER.pack(ApiKey.PRODUCE, VERSION_MAX, number) + SHORT.pack(-1) + b"\0"
                connection.send(LENGTH.pack(len(head) + len(body)) + head + body)
                waiting.append(number)
            while waiting:
                _check(connection.receive())
                waiting.popleft()
        return len(batches)


def _batch_of(values: list[bytes], headers: Headers) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(int(time.time() * 1000), b"key", value, headers)
    return builder.build()


def _check(answer: bytes) -> None:
    for produced in read_produce_answer(memoryview(answer)):
        if produced.error_code:
            raise RuntimeError(f"{produced.partition}: error {produced.error_code}: {produced.error_message}")


def _end_offset(connection: RawConnection, topic: str) -> int:
    wanted = {"name": topic, "partitions": [{"partition_index": 0, "timestamp": LATEST}]}
    (found,) = connection.ask(ApiKey.LIST_OFFSETS, 5, {"replica_id": -1, "topics": [wanted]}).topics
    return int(found.partitions[0].offset)


class _Fetcher:
    """Fetches a partition with as little work per answer as possible: the request is made once and gets its offset."""

    def __init__(self, connection: RawConnection, topic: str, offset: int) -> None:
        self.offset = offset
        self.end = -1
        """The high watermark of the last answer."""
        self._connection = connection
        wanted = {"partition": 0, "fetch_offset": _PLACEHOLDER, "partition_max_bytes": FETCH_BYTES_MAX}
        values = {
            "replica_id": -1,
            "max_wait": timedelta(milliseconds=500),
            "min_bytes": 1,
            "max_bytes": FETCH_BYTES_MAX,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": topic, "partitions": [wanted]}],
        }
        self._request = bytearray(request_frame(ApiKey.FETCH, FETCH_VERSION, values))
        self._offset_at = self._request.index(_OFFSET.pack(_PLACEHOLDER))
        self._part_at = _ANSWER_HEAD_BYTES + len(topic)

    def fetch(self) -> bytes:
        """The next records, none if nothing came for a while."""
        _OFFSET.pack_into(self._request, self._offset_at, self.offset)
        self._connection.send(bytes(self._request))
        answer = self._connection.receive()
        _, error, self.end, _, _, aborted, _, size = _PART.unpack_from(answer, self._part_at)
        if error or aborted > 0:
            raise RuntimeError(f"fetching offset {self.offset} failed: error {error}, {aborted} aborted transactions")
        records = answer[self._part_at + _PART.size :][: max(size, 0)]
        self.offset = _end_of(records, self.offset)
        return records


def _end_of(records: bytes, offset: int) -> int:
    """The offset after the whole batches."""
    at, end = 0, whole_bytes(records)
    while at < end:
        base, length = int.from_bytes(records[at : at + 8], "big"), int.from_bytes(records[at + 8 : at + 12], "big")
        offset = base + int.from_bytes(records[at + 23 : at + 27], "big") + 1
        at += 12 + length
    return offset
