"""Fetch as a follower asks it, and its leader's answers, whose records are views of the frame. Pure.

Speaks version 15, the first that says which life of a broker asks. Topics go by id; a session remembers what was asked,
so that only what changed is said. A broker that is about to stop says so with its epoch, below -1, where Kafka has no
meaning for it: what it copies counts wherever it is in sync, and nobody takes it in anew. `replica_fetcher.py` sends
and reads these; `handlers/fetch.py` answers them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from struct import Struct
from typing import Final, NamedTuple, Self

from ottla.model.error_codes import ErrorCode
from ottla.model.ids import NO_OFFSET, BrokerId, LeaderEpoch, Offset
from ottla.protocol.fields import FieldReader, compact_string
from ottla.protocol.varints import unsigned_varint

VERSION: Final = 15
_START: Final = Struct(">iiibii")
_WANTED: Final = Struct(">iiqiqi")
_INDEX: Final = Struct(">i")
_REPLICA_STATE: Final = Struct(">iq")
_ANSWER: Final = Struct(">ihi")
_PARTITION: Final = Struct(">ihqqq")
_ABORTED: Final = Struct(">qq")
_DIVERGING: Final = Struct(">iq")
_CORRELATION_BYTES: Final = 4
_REPLICA_STATE_TAG: Final = 1
_DIVERGING_TAG: Final = 0
_UUID_BYTES: Final = 16
_NO_EPOCH: Final = -1
_LEAVING: Final = -2
"""Epochs count down from here instead of up from 0."""

Place = tuple[bytes, int]
"""(topic id, partition)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a leader says of one partition, without the records themselves."""

    error: ErrorCode = ErrorCode.NONE
    has_records: bool = False
    high_watermark: Offset = NO_OFFSET
    start_offset: Offset = NO_OFFSET
    end_offset: Offset = NO_OFFSET
    """Told with OFFSET_OUT_OF_RANGE only."""
    diverging: tuple[LeaderEpoch, Offset] | None = None


class Question(NamedTuple):
    """From where one partition is asked for."""

    leader_epoch: int
    offset: int
    last_epoch: int
    start_offset: int
    bytes_max: int


class Asker(NamedTuple):
    """Who asks: which life of which broker, and whether that one is about to end."""

    broker: BrokerId
    broker_epoch: int
    is_leaving: bool = False

    @classmethod
    def read(cls, broker: BrokerId, spoken_epoch: int) -> Self:
        """The asker, by what it says; its epoch is -1 if it names none."""
        if spoken_epoch < _NO_EPOCH:
            return cls(broker, _LEAVING - spoken_epoch, is_leaving=True)
        return cls(broker, spoken_epoch)

    @property
    def spoken_epoch(self) -> int:
        """The epoch as it is said."""
        return _LEAVING - self.broker_epoch if self.is_leaving else self.broker_epoch


class Limits(NamedTuple):
    """How long a leader may wait, and for how much."""

    wait_ms: int
    bytes_min: int
    bytes_max: int


class Part(NamedTuple):
    """What a leader says of one partition. `records` are batches, perhaps one cut off at the end."""

    place: Place
    answer: Answer
    records: memoryview


class Told(NamedTuple):
    """A whole answer; with an `error` there are no parts."""

    error: ErrorCode
    session_id: int
    parts: list[Part]


def fetch_body(
    asker: Asker,
    limits: Limits,
    session: tuple[int, int],
    wanted: Sequence[tuple[Place, Question]],
    forgotten: Iterable[Place],
) -> bytes:
    """The body of a request in a session, (id, epoch); partitions of one topic must be neighbours."""
    body = bytearray(_START.pack(*limits, 0, *session))
    topics = [(topic, list(some)) for topic, some in groupby(wanted, key=lambda each: each[0][0])]
    body += unsigned_varint(len(topics) + 1)
    for topic, some in topics:
        body += topic + unsigned_varint(len(some) + 1)
        for (_, index), question in some:
            body += _WANTED.pack(index, *question) + b"\0"
        body += b"\0"
    gone = [(topic, list(places)) for topic, places in groupby(sorted(forgotten), key=lambda place: place[0])]
    body += unsigned_varint(len(gone) + 1)
    for topic, places in gone:
        body += topic + unsigned_varint(len(places) + 1)
        body += b"".join(_INDEX.pack(index) for _, index in places) + b"\0"
    state = _REPLICA_STATE.pack(asker.broker, asker.spoken_epoch) + b"\0"
    body += compact_string("") + b"\1" + bytes((_REPLICA_STATE_TAG, len(state))) + state
    return bytes(body)


def read_answer(frame: memoryview) -> Told:
    """What the leader says; raises `BrokenAnswerError` for what cannot be read."""
    reader = FieldReader(frame, _CORRELATION_BYTES)
    reader.skip_tags()
    _, code, session_id = reader.unpack(_ANSWER)
    if code:
        return Told(ErrorCode(code), session_id, [])
    return Told(ErrorCode.NONE, session_id, list(_parts(reader)))


def _parts(reader: FieldReader) -> Iterator[Part]:
    for _ in range(reader.count()):
        topic = bytes(reader.take(_UUID_BYTES))
        for _ in range(reader.count()):
            index, code, high_watermark, _, start_offset = reader.unpack(_PARTITION)
            for _ in range(reader.count()):
                reader.unpack(_ABORTED)
                reader.skip_tags()
            reader.unpack(_INDEX)
            records = reader.bytes()
            diverging = _diverging(reader)
            is_beyond = code == ErrorCode.OFFSET_OUT_OF_RANGE
            answer = Answer(
                error=ErrorCode(code),
                has_records=bool(records),
                high_watermark=Offset(high_watermark),
                start_offset=Offset(start_offset),
                # Where the asker is outside the log, its end stands in the high watermark's place.
                end_offset=Offset(high_watermark if is_beyond else -1),
                diverging=diverging,
            )
            yield Part((topic, index), answer, memoryview(b"") if records is None else records)
        reader.skip_tags()


def _diverging(reader: FieldReader) -> tuple[LeaderEpoch, Offset] | None:
    found: tuple[LeaderEpoch, Offset] | None = None
    for _ in range(reader.varint()):
        tag, size = reader.varint(), reader.varint()
        field = reader.take(size)
        if tag == _DIVERGING_TAG:
            epoch, end_offset = FieldReader(field).unpack(_DIVERGING)
            found = (LeaderEpoch(epoch), Offset(end_offset)) if epoch >= 0 else None
    return found
