"""Producers that go on through every end of the broker, and remember what was acknowledged; a consumer that follows.

A producer sends numbered records of one batch after another to one partition, one batch at a time, and sends a batch
again until it is acknowledged. An idempotent one sends it under the same sequence numbers, so that a batch which was
stored but not acknowledged is not stored twice.
"""

import threading
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from ottla.records.batch import scan
from ottla.records.builder import BatchBuilder
from ottla.records.decode import decode_records
from ottla.records.record import Record
from tests.hostile.requests import SPAN
from tests.waiting import tries
from tests.wire.exchange import RawConnection

RETRY_SECONDS: Final = 0.02
TIMESTAMP: Final = 1_700_000_000_000
FETCH_BYTES: Final = 1 << 20

LOST: Final = (OSError, EOFError)
"""What a client sees of a broker that is gone, or not there yet."""


class RefusedError(Exception):
    """The broker answered, and said no."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code


@dataclass(slots=True, kw_only=True)
class Producer:
    """One partition's; `acked` has the first and last offset of each batch that was acknowledged, by its number."""

    address: str
    topic_id: UUID
    partition: int
    acks: int
    producer_id: int = -1
    records: int = 5
    value_bytes: int = 100
    acked: list[int] = field(default_factory=list)
    refused: int = 0
    """Answers with an error."""
    _connection: RawConnection | None = None

    @property
    def is_idempotent(self) -> bool:
        """Whether a batch that is sent again is stored once."""
        return self.producer_id >= 0

    def batch(self, number: int) -> bytes:
        """The records of one batch, which say in which batch they are."""
        is_idempotent = self.is_idempotent
        builder = BatchBuilder(
            producer_id=self.producer_id,
            producer_epoch=0 if is_idempotent else -1,
            base_sequence=number * self.records if is_idempotent else -1,
        )
        for place in range(self.records):
            builder.append(TIMESTAMP, None, f"{self.partition}/{number}/{place} ".encode() + b"." * self.value_bytes)
        return bytes(builder.build())

    def send_once(self) -> int:
        """The base offset of the next batch; raises what a client sees if it is not acknowledged."""
        if self._connection is None:
            self._connection = RawConnection(self.address)
        part = {"index": self.partition, "records": self.batch(len(self.acked))}
        topics = [{"topic_id": self.topic_id, "partition_data": [part]}]
        try:
            answer = self._connection.ask_newest(
                ApiKey.PRODUCE, {"acks": self.acks, "timeout": SPAN * 100, "topic_data": topics}
            )
        except LOST:
            self.close()
            raise
        result = answer.responses[0].partition_responses[0]
        if result.error_code is not ErrorCode.none:
            self.refused += 1
            raise RefusedError(result.error_code, result.error_message)
        self.acked.append(int(result.base_offset))
        return int(result.base_offset)

    def run(self, is_over: threading.Event) -> None:
        """Sends until told to end; whatever is refused or lost is sent again."""
        while not is_over.is_set():
            try:
                self.send_once()
            except (RefusedError, *LOST):
                is_over.wait(RETRY_SECONDS)
        self.close()

    def close(self) -> None:
        """Ends its connection; the next batch opens another."""
        if self._connection is not None:
            self._connection.__exit__(None, None, None)
            self._connection = None

    def check(self, records: list[Record]) -> None:
        """Of a partition's records: those that were acknowledged are there, in order, where they were said to be."""
        assert list(range(len(records))) == [record.offset for record in records], "offsets are not without gaps"
        found = [_place(record) for record in records]
        for number, base_offset in enumerate(self.acked):
            expected = [(self.partition, number, place) for place in range(self.records)]
            assert expected == found[base_offset : base_offset + self.records], f"acknowledged batch {number}"
        numbers = [number for _, number, place in found if place == 0]
        assert sorted(numbers) == numbers, "batches are out of order"
        if self.is_idempotent:
            assert list(range(len(numbers))) == numbers, "a batch is there twice, or not at all"


@dataclass(slots=True, kw_only=True)
class Follower:
    """A consumer of one partition that carries on from where it was."""

    address: str
    topic_id: UUID
    partition: int
    read: list[Record] = field(default_factory=list)

    def run(self, is_over: threading.Event) -> None:
        """Reads until told to end."""
        while not is_over.is_set():
            try:
                with RawConnection(self.address) as connection:
                    while not is_over.is_set():
                        self.read += fetch(connection, self.topic_id, self.partition, len(self.read))
            except (RefusedError, *LOST):
                is_over.wait(RETRY_SECONDS)


def fetch(connection: RawConnection, topic_id: UUID, partition: int, offset: int) -> list[Record]:
    """Records from an offset on, as far as one response reaches."""
    part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": FETCH_BYTES}
    topics = [{"topic_id": topic_id, "partitions": [part]}]
    values = {"topics": topics, "max_bytes": FETCH_BYTES, "session_epoch": -1, "max_wait": SPAN / 4, "min_bytes": 1}
    (found,) = connection.ask_newest(ApiKey.FETCH, values).responses[0].partitions
    if found.error_code is not ErrorCode.none:
        raise RefusedError(found.error_code, None)
    batches, _, _ = scan(found.records or b"")
    return [record for batch in batches for record in decode_records(batch) if record.offset >= offset]


def fetch_all(address: str, topic_id: UUID, partition: int) -> list[Record]:
    """Everything that a partition has."""
    records: list[Record] = []
    with RawConnection(address) as connection:
        while more := fetch(connection, topic_id, partition, len(records)):
            records += more
    return records


def ask(address: str, api_key: ApiKey, values: dict[str, Any]) -> Any:
    """One question on a connection of its own."""
    with RawConnection(address) as connection:
        return connection.ask_newest(api_key, values)


def new_producer_id(address: str) -> int:
    """One that nobody had; a broker that has just started may first have to get some."""
    for _ in tries("the broker gives a producer id"):
        answer = ask(address, ApiKey.INIT_PRODUCER_ID, {"transaction_timeout": SPAN, "producer_id": -1})
        if answer.error_code is not ErrorCode.coordinator_load_in_progress:
            break
    assert ErrorCode.none is answer.error_code
    return int(answer.producer_id)


def _place(record: Record) -> tuple[int, int, int]:
    partition, number, place = (record.value or b"").split(b" ", 1)[0].split(b"/")
    return int(partition), int(number), int(place)
