"""Fetch requests of followers and their leaders' responses; records are views of the frame. Pure.

Uses version 15, the first with the follower's broker epoch. Topics are identified by id; in a fetch session, a request
lists only the partitions that changed. A broker that is about to stop sends an epoch below -1, which has no meaning in
Kafka: its fetches still count for the ISRs that it is in, but no leader adds it to an ISR. `replica_fetcher.py` sends
and reads these; `handlers/records/fetch.py` answers them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple, Self

from ottla.model.error_codes import ErrorCode
from ottla.model.ids import NO_OFFSET, BrokerId, LeaderEpoch, Offset
from ottla.protocol.fetch_layout import ABORTED, INDEX, PARTITION, RESPONSE, WANTED, by_topic
from ottla.protocol.fields import FieldReader, compact_string

VERSION: Final = 15
_START: Final = Struct(">iiibii")
_REPLICA_STATE: Final = Struct(">iq")
_DIVERGING: Final = Struct(">iq")
_REPLICA_STATE_TAG: Final = 1
_DIVERGING_TAG: Final = 0
_UUID_BYTES: Final = 16
_NO_EPOCH: Final = -1
_LEAVING: Final = -2
"""Epochs count down from here instead of up from 0."""

TopicIdPartition = tuple[bytes, int]
"""(topic id, partition)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAnswer:
    """A leader's result for one partition, without the records."""

    error: ErrorCode = ErrorCode.NONE
    has_records: bool = False
    high_watermark: Offset = NO_OFFSET
    start_offset: Offset = NO_OFFSET
    end_offset: Offset = NO_OFFSET
    """Set only with OFFSET_OUT_OF_RANGE."""
    diverging: tuple[LeaderEpoch, Offset] | None = None

    @property
    def is_refusal(self) -> bool:
        """Whether the leader did not serve the fetch: an error, or another history."""
        return bool(self.error) or self.diverging is not None


class FetchPosition(NamedTuple):
    """The position from which to fetch one partition."""

    leader_epoch: int
    offset: int
    last_epoch: int
    start_offset: int
    bytes_max: int


class Follower(NamedTuple):
    """A follower as it names itself in a request: broker id and epoch, and whether it is about to stop."""

    broker: BrokerId
    broker_epoch: int
    is_leaving: bool = False

    @classmethod
    def read(cls, broker: BrokerId, sent_epoch: int) -> Self:
        """The follower of a request; its epoch is -1 if the request has none."""
        if sent_epoch < _NO_EPOCH:
            return cls(broker, _LEAVING - sent_epoch, is_leaving=True)
        return cls(broker, sent_epoch)

    @property
    def sent_epoch(self) -> int:
        """The epoch as it is sent."""
        return _LEAVING - self.broker_epoch if self.is_leaving else self.broker_epoch


class Limits(NamedTuple):
    """How long a leader may wait, and for how much."""

    wait_ms: int
    bytes_min: int
    bytes_max: int


class Part(NamedTuple):
    """A leader's result for one partition. `records` are batches; the last may be incomplete."""

    place: TopicIdPartition
    answer: PartitionAnswer
    records: memoryview


class FetchAnswer(NamedTuple):
    """A response; with an `error` it has no parts."""

    error: ErrorCode
    session_id: int
    parts: list[Part]


def fetch_body(
    follower: Follower,
    limits: Limits,
    session: tuple[int, int],
    wanted: Sequence[tuple[TopicIdPartition, FetchPosition]],
    forgotten: Iterable[TopicIdPartition],
) -> bytes:
    """The body of a request in a session, (id, epoch); partitions of one topic must be adjacent."""
    body = _START.pack(*limits, 0, *session)
    body += by_topic([(topic, WANTED.pack(index, *position) + b"\0") for (topic, index), position in wanted], bytes)
    body += by_topic([(topic, INDEX.pack(index)) for topic, index in sorted(forgotten)], bytes)
    state = _REPLICA_STATE.pack(follower.broker, follower.sent_epoch) + b"\0"
    return body + compact_string("") + b"\1" + bytes((_REPLICA_STATE_TAG, len(state))) + state


def read_answer(frame: memoryview) -> FetchAnswer:
    """The leader's response; raises `BrokenAnswerError` if it is malformed."""
    reader = FieldReader.of_response(frame)
    _, code, session_id = reader.unpack(RESPONSE)
    if code:
        return FetchAnswer(ErrorCode(code), session_id, [])
    return FetchAnswer(ErrorCode.NONE, session_id, list(_parts(reader)))


def _parts(reader: FieldReader) -> Iterator[Part]:
    for _ in range(reader.count()):
        topic = bytes(reader.take(_UUID_BYTES))
        for _ in range(reader.count()):
            index, code, high_watermark, _, start_offset = reader.unpack(PARTITION)
            for _ in range(reader.count()):
                reader.unpack(ABORTED)
                reader.skip_tags()
            reader.unpack(INDEX)
            records = reader.bytes()
            diverging = _diverging(reader)
            is_beyond = code == ErrorCode.OFFSET_OUT_OF_RANGE
            answer = PartitionAnswer(
                error=ErrorCode(code),
                has_records=bool(records),
                high_watermark=Offset(high_watermark),
                start_offset=Offset(start_offset),
                # Where the follower is outside the log, its end stands in the high watermark's place.
                end_offset=Offset(high_watermark if is_beyond else -1),
                diverging=diverging,
            )
            yield Part((topic, index), answer, memoryview(b"") if records is None else records)
        reader.skip_tags()


def _diverging(reader: FieldReader) -> tuple[LeaderEpoch, Offset] | None:
    found: tuple[LeaderEpoch, Offset] | None = None
    for tag, field in reader.tags():
        if tag == _DIVERGING_TAG:
            epoch, end_offset = FieldReader(field).unpack(_DIVERGING)
            found = (LeaderEpoch(epoch), Offset(end_offset)) if epoch >= 0 else None
    return found
