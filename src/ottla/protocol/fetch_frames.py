"""Fetch requests and responses; records are views of the frame and are not copied.

Uses version 12, with topic names, and 13, with topic ids, for readers that must not continue in a recreated topic.
Pure; `transaction_inspection.py` sends them without a session, `fetcher.py` with one (`fetch_session_state.py`).
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from ottla.model.ids import TopicPartition
from ottla.protocol.answer_errors import answer_error
from ottla.protocol.fetch_layout import ABORTED, INDEX, PARTITION, RESPONSE, WANTED, by_topic
from ottla.protocol.fields import FieldReader, compact_string

VERSION: Final = 12
VERSION_BY_ID: Final = 13
"""Topics are identified by id: a topic recreated with the same name is another topic."""
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

_START: Final = Struct(">iiiibii")
_CONSUMER: Final = -1
_TOPIC_ID: Final = Struct(">16s")
NO_SESSION: Final = (0, -1)
"""Session id and epoch of a fetch without a session."""


class Wanted(NamedTuple):
    """The position from which to read one partition."""

    partition: TopicPartition
    offset: int
    bytes_max: int
    leader_epoch: int = -1
    """The leader epoch that the client knows; a leader with another epoch refuses. -1 skips the check."""


class Fetched(NamedTuple):
    """The result for one partition. `records` are batches; the last may be incomplete."""

    partition: TopicPartition
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    """(producer id, first offset) of aborted transactions that overlap; only for read_committed."""
    records: memoryview
    preferred_replica: int = -1
    """The preferred read replica to fetch from instead; -1 for none."""


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
    """The body of a request for these partitions; those of one topic must be adjacent, also among the forgotten ones.

    With `topic_id`, the request has version `VERSION_BY_ID`.
    """

    def topic_bytes(topic: str) -> bytes:
        return compact_string(topic) if topic_id is None else topic_id.bytes

    body = _START.pack(_CONSUMER, wait_ms, bytes_min, bytes_max, isolation_level, *session)
    asked = [
        (topic, WANTED.pack(index, leader_epoch, offset, -1, -1, partition_bytes_max) + b"\0")
        for (topic, index), offset, partition_bytes_max, leader_epoch in wanted
    ]
    body += by_topic(asked, topic_bytes)
    body += by_topic([(topic, INDEX.pack(index)) for topic, index in forgotten], topic_bytes)
    return [body + compact_string(rack) + b"\0"]


def read_fetch_answer(frame: memoryview, topic: str | None = None) -> list[Fetched]:
    """The results of all partitions.

    Raises the error of the whole response, and `BrokenAnswerError`. `topic` is the name of the topic that was requested
    by id.
    """
    return read_session_answer(frame, topic)[1]


def read_session_answer(frame: memoryview, topic: str | None = None) -> tuple[int, list[Fetched]]:
    """The session id, 0 for none, and the results of partitions; raises like `read_fetch_answer`."""
    reader = FieldReader.of_response(frame)
    _, error_code, session_id = reader.unpack(RESPONSE)
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
            index, error_code, high_watermark, last_stable, log_start = reader.unpack(PARTITION)
            aborted = []
            for _ in range(reader.count()):
                producer_id, first_offset = reader.unpack(ABORTED)
                aborted.append((producer_id, first_offset))
                reader.skip_tags()
            (preferred_replica,) = reader.unpack(INDEX)
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
