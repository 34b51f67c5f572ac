"""Committed offsets, from the request to the records and back: damaged bodies, damaged records, texts of any length.

The kernels are compared with those who say the same more slowly: kio behind its guard for the request and its answer,
`group_records.py` for the records. Batches and other requests are in `kernels.py`, which calls the targets here.
"""

import io
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.constants import EntityType

from ottla.coordination.groups.offset_records import offset_records, read_offset_records
from ottla.coordination.groups.offset_table import OffsetTable
from ottla.coordination.groups.records import OffsetKey, OffsetValue, offset_record, read_key, read_offset
from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.model.errors import OttlaError
from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.offset_commits import OffsetCommit, read_offset_commit
from ottla.protocol.shapes import checked
from ottla.records.builder import BatchBuilder
from tests.fuzz import damage
from tests.fuzz.requests import RequestWriter
from tests.wire.exchange import message_class

VERSIONS = range(SERVED[ApiKey.OFFSET_COMMIT].lowest, SERVED[ApiKey.OFFSET_COMMIT].highest + 1)
TEXTS = ("", "t", "topic", "é", "long" * 40, "x" * 1000, "é" * 5000, "x" * 32767, "x" * 32768, "\ud800")
MILLISECOND = timedelta(milliseconds=1)
RETENTION_MS_MAX = 2**50
"""Much more than that is no span for kio; old clients may well ask for ever."""
ERRORS = (0, 3, 25, -1)
Said = tuple[object, ...]


def commit_body(chance: Random, version: int) -> bytes:
    """What a client might send."""
    writer = RequestWriter(chance, flexible=version >= 8)
    writer.text()
    writer.number("i")
    writer.text()
    if version >= 7:
        writer.text(nullable=True)
    if version <= 4:
        writer.number("q")
    for _ in range(writer.count()):
        writer.topic(by_id=version >= 10)
        for _ in range(writer.count((0, 1, 2, 3, 200))):
            for layout in "iqi" if version >= 6 else "iq":
                writer.number(layout)
            writer.text(nullable=True)
            writer.tags()
        writer.tags()
    writer.tags()
    return bytes(writer.content)


def commit(chance: Random) -> None:
    """A body is read as kio reads it, or refused as kio's guard refuses it; the answer is the one that kio writes."""
    version = chance.choice(VERSIONS)
    body = commit_body(chance, version)
    if chance.random() < 0.6:
        body = damage.damaged_bytes(chance, body)
    if chance.random() < 0.3:
        body = body[: chance.randrange(len(body) + 1)]
    try:
        request = read_offset_commit(version, damage.exact(body))
    except ValueError:
        request = None
    if request is not None and abs(request.retention_ms) > RETENTION_MS_MAX:
        return
    expected = _read_slowly(version, body)
    said = None if request is None else _said(request)
    if expected != said:
        raise AssertionError(f"v{version} {body[:500].hex()} reads as {said}, and with kio as {expected}")
    if request is not None:
        outcomes = [[chance.choice(ERRORS) for _ in topic.partitions] for topic in request.topics]
        _check_answer(request, outcomes, request.answer(outcomes))
        _check_answer(request, [[25] * len(topic.partitions) for topic in request.topics], request.answer_all(25))


def _said(request: OffsetCommit) -> Said:
    topics = [(topic.name, topic.topic_id, topic.partitions) for topic in request.topics]
    return request.group_id, request.generation, request.member_id, request.instance_id, request.retention_ms, topics


def _read_slowly(version: int, body: bytes) -> Said | None:
    """What kio finds; None if it is no request."""
    request_class = message_class(ApiKey.OFFSET_COMMIT, version, EntityType.request)
    request: Any
    try:
        request, _ = entity_reader(request_class)(checked(request_class, body), 0)
    except (SerialError, ValueError, OverflowError, EOFError):
        return None
    topics = [
        (
            getattr(topic, "name", None),
            (topic.topic_id or UUID(int=0)) if version >= 10 else None,
            [
                (
                    part.partition_index,
                    part.committed_offset,
                    getattr(part, "committed_leader_epoch", -1),
                    part.committed_metadata,
                )
                for part in topic.partitions
            ],
        )
        for topic in request.topics
        if topic.partitions
    ]
    generation = next(getattr(request, name) for name in dir(request) if name.startswith("generation_id"))
    instance_id = getattr(request, "group_instance_id", None)
    retention_ms = request.retention_time // MILLISECOND if version <= 4 else -1
    return request.group_id, generation, request.member_id, instance_id, retention_ms, topics


def _check_answer(request: OffsetCommit, outcomes: list[list[int]], content: bytes) -> None:
    response_class = message_class(ApiKey.OFFSET_COMMIT, request.version, EntityType.response)
    response: Any
    response, _ = entity_reader(response_class)(content, 0)
    buffer = io.BytesIO()
    entity_writer(response_class)(buffer, response)
    if content != buffer.getvalue():
        raise AssertionError(f"answered with {content.hex()}, where kio writes {buffer.getvalue().hex()}")
    expected = [
        [(row[0], code) for row, code in zip(topic.partitions, codes, strict=True)]
        for topic, codes in zip(request.topics, outcomes, strict=True)
    ]
    found = [[(part.partition_index, part.error_code.value) for part in topic.partitions] for topic in response.topics]
    if expected != found:
        raise AssertionError(f"answered with {found}, not with {expected}")


# Records


def write_offsets(chance: Random) -> None:
    """Rows of any kind become the records that they become one by one, or a refusal where those refuse."""
    group_id, topics = _group_id(chance), _topics(chance)
    commit_ms = chance.choice((0, -1, 2**63 - 1, 2**63))
    refusals = (OttlaError, OverflowError, UnicodeEncodeError)
    try:
        records = offset_records(group_id, topics, commit_ms)
    except refusals:
        return
    expected = tuple(
        offset_record(group_id, topic, row[0], OffsetValue(row[1], commit_ms, row[2], row[3] or "", None, topic_id))
        for topic, topic_id, rows in topics
        for row in rows
    )
    if expected != tuple(records):
        raise AssertionError(f"{group_id!r} {topics} become {tuple(records)}, and one by one {expected}")
    builder = BatchBuilder()
    for record in expected:
        builder.append(1, *record)
    if expected and builder.build() != records.batch(1):
        raise AssertionError(f"{group_id!r} {topics} become another batch than one by one")
    table = OffsetTable()
    for kept in records.topics:
        table.put(kept.topic, kept.topic_id, kept.rows, commit_ms, 0)
    if len(table) != len({(topic, row[0]) for topic, _, rows in topics for row in rows}):
        raise AssertionError(f"a table keeps {len(table)} of the offsets of {topics}")


def read_offsets(chance: Random) -> None:
    """Records of one group are read, and damaged ones only as they would be one by one."""
    group_id = chance.choice(("", "g", "gé"))
    topics = [(chance.choice(("", "t", "u")), topic_id, rows) for _, topic_id, rows in _topics(chance, texts=TEXTS[:5])]
    whole = list(offset_records(group_id, topics, chance.choice((0, -1, 2**63 - 1))))
    records = [_damaged_record(chance, record) for record in whole] if chance.random() < 0.8 else list(whole)
    found = read_offset_records(records, 7)
    if found is None:
        if records == whole and records:
            raise AssertionError(f"{records} are not read")
        return
    for turn, (record, (place, offset)) in enumerate(zip(records, found[1], strict=True), start=8):
        slowly = (read_key(record.key), read_offset(record.value or b""), turn)
        if (OffsetKey(found[0], *place), *offset) != slowly:
            raise AssertionError(f"{record} reads as {found[0]} {place} {offset}, and by itself as {slowly}")


def _group_id(chance: Random) -> str:
    return chance.choice(TEXTS if chance.random() < 0.3 else TEXTS[:6])


def _topics(chance: Random, texts: tuple[str, ...] | None = None) -> list[tuple[str, UUID | None, list[Any]]]:
    odd = texts is None and chance.random() < 0.3
    choices = texts or (TEXTS if odd else TEXTS[:6])

    def number(bits: int) -> int:
        return chance.choice((0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 2 ** (bits - 1) if odd else 5))

    return [
        (
            chance.choice(choices),
            chance.choice((None, UUID(int=chance.getrandbits(127) + 1))),
            [
                (number(32), number(64), number(32), chance.choice((None, *choices)))
                for _ in range(chance.choice((0, 1, 1, 2, 5)))
            ],
        )
        for _ in range(chance.choice((0, 1, 1, 2, 3)))
    ]


def _damaged_record(chance: Random, record: CoordinatorRecord) -> CoordinatorRecord:
    key, value = record
    match chance.randrange(5):
        case 0:
            key = damage.damaged_bytes(chance, key)
        case 1:
            value = damage.damaged_bytes(chance, value or b"")
        case 2:
            value = (value or b"")[: chance.randrange(len(value or b"") + 1)]
    return CoordinatorRecord(key, value)
