"""Fetch requests and their answers, whose records are views of the frame and are not copied.

Speaks version 12, which names topics by name; and 13, by id, for those who read one topic and never its successor.
Pure; `reader.py` sends them without a session, the consumer's `fetcher.py` with one (`fetch_session_state.py`).
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from ottla.model.ids import TopicPartition
from ottla.protocol.answer_errors import answer_error
from ottla.protocol.fields import FieldReader, compact_string
from ottla.protocol.varints import unsigned_varint

VERSION: Final = 12
VERSION_BY_ID: Final = 13
"""Topics are named by id: one that was made again under the same name is another topic."""
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

_START: Final = Struct(">iiiibii")
_WANTED: Final = Struct(">iiqiqi")
_ANSWER: Final = Struct(">ihi")
_PARTITION: Final = Struct(">ihqqq")
_ABORTED: Final = Struct(">qq")
_REPLICA: Final = Struct(">i")
_CORRELATION_BYTES: Final = 4
_CONSUMER: Final = -1
_INDEX: Final = Struct(">i")
_TOPIC_ID: Final = Struct(">16s")
NO_SESSION: Final = (0, -1)
"""The session and its epoch of one who asks once."""


class Wanted(NamedTuple):
    """From where one partition is to be read."""

    partition: TopicPartition
    offset: int
    bytes_max: int
    leader_epoch: int = -1
    """The leader that the asker knows of; one of another epoch refuses. -1 asks whoever leads."""


class Fetched(NamedTuple):
    """What came of one partition. `records` are batches, perhaps one cut off at the end."""

    partition: TopicPartition
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    """(producer id, first offset) of aborted transactions that overlap; only for read_committed."""
    records: memoryview
    preferred_replica: int = -1
    """The broker that is nearer and should be asked instead; -1 for none."""


def fetch_body(
    wanted: Sequence[Wanted],
    *,
    isolation_level: int,
    wait_ms: int,
    bytes_min: int,
    bytes_max: int,
    rack: str = "",
    session: tuple[int, int] = NO_SESSION,
    forgotten: Sequence[TopicPartition] = (),
    topic_id: UUID | None = None,
) -> list[bytes]:
    """The body of a request for these partitions; those of one topic must be neighbours, also among the forgotten.

    With the id of the one topic that they are of, it is a request of `VERSION_BY_ID`.
    """
    head = bytearray(_START.pack(_CONSUMER, wait_ms, bytes_min, bytes_max, isolation_level, *session))
    topics = [(topic, list(some)) for topic, some in groupby(wanted, key=lambda each: each.partition.topic)]
    head += unsigned_varint(len(topics) + 1)
    for topic, some in topics:
        name = compact_string(topic) if topic_id is None else topic_id.bytes
        head += name + unsigned_varint(len(some) + 1)
        for each in some:
            head += _WANTED.pack(each.partition.partition, each.leader_epoch, each.offset, -1, -1, each.bytes_max)
            head += b"\0"
        head += b"\0"
    dropped = [(topic, list(some)) for topic, some in groupby(forgotten, key=lambda each: each.topic)]
    head += unsigned_varint(len(dropped) + 1)
    for topic, gone in dropped:
        head += compact_string(topic) + unsigned_varint(len(gone) + 1)
        head += b"".join(_INDEX.pack(each.partition) for each in gone) + b"\0"
    head += compact_string(rack) + b"\0"
    return [bytes(head)]


def read_fetch_answer(frame: memoryview, topic: str | None = None) -> list[Fetched]:
    """What came of every partition; raises for a code on the whole answer, and `BrokenAnswerError`.

    `topic` is the name of the one topic that was asked for by its id.
    """
    return read_session_answer(frame, topic)[1]


def read_session_answer(frame: memoryview, topic: str | None = None) -> tuple[int, list[Fetched]]:
    """The session that the broker keeps, 0 for none, and what came of partitions; raises as `read_fetch_answer`."""
    reader = FieldReader(frame, _CORRELATION_BYTES)
    reader.skip_tags()
    _, error_code, session_id = reader.unpack(_ANSWER)
    if error_code:
        raise answer_error(error_code, "fetching")
    return session_id, list(_partitions(reader, topic))


def _partitions(reader: FieldReader, asked: str | None) -> Iterable[Fetched]:
    for _ in range(reader.count()):
        if asked is None:
            topic = reader.string() or ""
        else:
            topic = asked
            reader.unpack(_TOPIC_ID)
        for _ in range(reader.count()):
            index, error_code, high_watermark, last_stable, log_start = reader.unpack(_PARTITION)
            aborted = []
            for _ in range(reader.count()):
                producer_id, first_offset = reader.unpack(_ABORTED)
                aborted.append((producer_id, first_offset))
                reader.skip_tags()
            (preferred_replica,) = reader.unpack(_REPLICA)
            records = reader.bytes()
            reader.skip_tags()
            yield Fetched(
                TopicPartition(topic, index),
                error_code,
                high_watermark,
                last_stable,
                log_start,
                aborted,
                memoryview(b"") if records is None else records,
                preferred_replica,
            )
        reader.skip_tags()
