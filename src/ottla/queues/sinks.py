"""Appends batches to the partitions that queues deliver to: led by this broker, or by another one.

An append is one attempt with acks=all; the caller repeats it. Its outcome tells what the caller should do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from ottla.metadata.image import ClusterImage
from ottla.model.buffer import Buffer
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import NotLeaderError, OttlaError, UnknownPartitionError
from ottla.model.ids import BrokerId, TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.produce_frames import VERSION_MAX, produce_body, read_produce_answer
from ottla.records.batch import Batch
from ottla.replication.partition_state import ALL_REPLICAS
from ottla.replication.partition_table import PartitionTable
from ottla.storage.log import Appended

PRODUCE_TIMEOUT_MS: Final = 10_000
"""How long another broker may wait for its replicas; less than the connection waits for the response."""

_REFUSALS: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.POLICY_VIOLATION,
    }
)
_UNKNOWN_PRODUCER: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)

AskRaw = Callable[[BrokerId, ApiKey, int, Sequence[Buffer]], Awaitable[memoryview]]
"""Sends a request to another broker in a version, and returns the response; raises an OttlaError if it cannot."""


class Outcome(Enum):
    """What became of an append."""

    APPENDED = auto()
    """Committed in the sink, now or by an earlier attempt."""
    REFUSED = auto()
    """The sink will never take this batch."""
    UNKNOWN_PRODUCER = auto()
    """The sink does not know the sequences before this one: it has lost records."""
    MISSING = auto()
    """The sink does not exist. It did when the append was planned, so it was deleted with all that was in it."""
    FAILED = auto()
    """Try again."""


class Delivery(NamedTuple):
    """The outcome of one attempt, and why it is not APPENDED."""

    outcome: Outcome
    why: str = ""


class Sinks:
    """The partitions of the cluster, for batches of this broker, `me`."""

    def __init__(
        self, me: BrokerId, partitions: PartitionTable, *, image: Callable[[], ClusterImage], ask: AskRaw
    ) -> None:
        self._me = me
        self._partitions = partitions
        self._image = image
        self._ask = ask

    async def append(self, sink: TopicPartition, batch: bytearray) -> Delivery:
        """Appends a batch once. The batch stays as it is, so that it can be appended again elsewhere."""
        try:
            partition = self._partitions.find(*sink)
        except NotLeaderError as error:
            return await self._append_elsewhere(sink, batch, error)
        except UnknownPartitionError as error:
            return Delivery(Outcome.MISSING, str(error))
        except OttlaError as error:
            return _failed(error.code, str(error))
        waiter = _Waiter()
        try:
            # The log writes offsets and times into what it is given.
            partition.append_soon(Batch(bytearray(batch)), ALL_REPLICAS, waiter, 0)
            outcome = await waiter.outcome
        except OttlaError as error:
            outcome = error
        return _delivery(outcome)

    async def _append_elsewhere(self, sink: TopicPartition, batch: bytearray, error: OttlaError) -> Delivery:
        topic = self._image().topics.get(sink.topic)
        leader = topic.partitions[sink.partition].leader if topic and sink.partition < len(topic.partitions) else None
        if leader is None or leader == self._me or leader not in self._image().brokers:
            return Delivery(Outcome.FAILED, f"partition {sink} has no leader" if leader is not None else str(error))
        body = produce_body([(sink, batch)], acks=ALL_REPLICAS, timeout_ms=PRODUCE_TIMEOUT_MS)
        try:
            answer = await self._ask(leader, ApiKey.PRODUCE, VERSION_MAX, body)
            produced = read_produce_answer(answer)
        except OttlaError as failure:
            return Delivery(Outcome.FAILED, f"broker {leader}: {failure}")
        for part in produced:
            if part.partition == sink:
                if part.error_code == ErrorCode.NONE:
                    return Delivery(Outcome.APPENDED)
                name = _name_of(part.error_code)
                return _failed(part.error_code, f"broker {leader} answered {name}: {part.error_message or name}")
        return Delivery(Outcome.FAILED, f"broker {leader} did not answer for {sink}")


class _Waiter:
    """An append in this broker."""

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Appended | OttlaError] = asyncio.get_running_loop().create_future()

    def on_outcome(self, at: int, outcome: Appended | OttlaError) -> None:
        """It is committed, or has failed."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def on_waiting(self) -> None:
        """It is written and waits for replicas: so do we."""


def _delivery(outcome: Appended | OttlaError) -> Delivery:
    if isinstance(outcome, OttlaError):
        return _failed(outcome.code, str(outcome))
    return Delivery(Outcome.APPENDED)


def _failed(code: int, why: str) -> Delivery:
    if code in _REFUSALS:
        return Delivery(Outcome.REFUSED, why)
    return Delivery(Outcome.UNKNOWN_PRODUCER if code in _UNKNOWN_PRODUCER else Outcome.FAILED, why)


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
