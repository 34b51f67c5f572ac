"""OffsetCommit without kio says the same as kio, in every version, and refuses what kio's guard refuses."""

import io
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from ottla.model.errors import MisuseError
from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.offset_commits import OffsetCommit, read_offset_commit
from ottla.protocol.shapes import ELEMENTS_MAX, ShapeError
from tests.wire.exchange import message_class, request_body

pytestmark = pytest.mark.slow


class Row(NamedTuple):
    """An offset."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class Topic(NamedTuple):
    """Offsets of one topic."""

    name: str | None
    topic_id: UUID | None
    rows: list[Row]


class Commit(NamedTuple):
    """What a request says."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    retention_ms: int
    topics: list[Topic]


VERSIONS = range(SERVED[ApiKey.OFFSET_COMMIT].lowest, SERVED[ApiKey.OFFSET_COMMIT].highest + 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
INT = st.integers(-(2**31), 2**31 - 1)
PARTITION = st.builds(Row, INT, st.integers(-(2**63), 2**63 - 1), INT, st.none() | TEXT)
TOPIC = st.builds(Topic, TEXT, st.uuids().filter(lambda each: each.int != 0), st.lists(PARTITION, max_size=5))
COMMITS = st.builds(Commit, TEXT, INT, TEXT, st.none() | TEXT, st.integers(-1, 2**40), st.lists(TOPIC, max_size=4))
SAMPLE = Commit("group", 1, "member", "instance", 5, [Topic("t", UUID(int=7), [Row(0, 1, 2, "m")])])


def body_of(version: int, commit: Commit) -> bytes:
    """What kio writes."""
    topics = [
        {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "partitions": [
                {
                    "partition_index": part.partition,
                    "committed_offset": part.offset,
                    "committed_leader_epoch": part.leader_epoch,
                    "committed_metadata": part.metadata,
                }
                for part in topic.rows
            ],
        }
        for topic in commit.topics
    ]
    values: dict[str, Any] = {
        "group_id": commit.group_id,
        "generation_id_or_member_epoch": commit.generation,
        "member_id": commit.member_id,
        "group_instance_id": commit.instance_id,
        "retention_time": timedelta(milliseconds=commit.retention_ms),
        "topics": topics,
    }
    return request_body(ApiKey.OFFSET_COMMIT, version, values)


def as_known(version: int, commit: Commit) -> Commit:
    """Without what the version cannot say."""
    return commit._replace(
        instance_id=commit.instance_id if version >= 7 else None,
        retention_ms=commit.retention_ms if version <= 4 else -1,
        topics=[
            Topic(
                topic.name if version < 10 else None,
                topic.topic_id if version >= 10 else None,
                [part if version >= 6 else part._replace(leader_epoch=-1) for part in topic.rows],
            )
            for topic in commit.topics
            if topic.rows
        ],
    )


def said(commit: OffsetCommit) -> Commit:
    """What was read."""
    return Commit(
        commit.group_id,
        commit.generation,
        commit.member_id,
        commit.instance_id,
        commit.retention_ms,
        [Topic(topic.name, topic.topic_id, [Row(*row) for row in topic.partitions]) for topic in commit.topics],
    )


@pytest.mark.parametrize("version", VERSIONS)
@given(commit=COMMITS)
def test_reads_what_kio_writes(version: int, commit: Commit) -> None:
    found = read_offset_commit(version, body_of(version, commit))
    assert (version, as_known(version, commit)) == (found.version, said(found))
    rows = [row for topic in commit.topics for row in topic.rows]
    assert max((len((row.metadata or "").encode()) for row in rows), default=0) == found.metadata_bytes_max
    for topic in found.topics:
        indexes = [row[0] for row in topic.partitions]
        assert (min(indexes), max(indexes)) == (topic.lowest, topic.highest)


@pytest.mark.parametrize("version", VERSIONS)
@given(commit=COMMITS, codes=st.randoms())
def test_answers_what_kio_reads(version: int, commit: Commit, codes: Any) -> None:
    request = read_offset_commit(version, body_of(version, commit))
    outcomes = [[codes.choice((0, 3, 25, -1)) for _ in topic.partitions] for topic in request.topics]
    for content, errors in (
        (request.answer(outcomes), outcomes),
        (request.answer_all(25), [[25] * len(topic.partitions) for topic in request.topics]),
    ):
        response_class = message_class(ApiKey.OFFSET_COMMIT, version, EntityType.response)
        response: Any
        response, size = entity_reader(response_class)(content, 0)
        assert len(content) == size
        assert [
            (topic.name, topic.topic_id, [(row[0], code) for row, code in zip(topic.partitions, codes_, strict=True)])
            for topic, codes_ in zip(request.topics, errors, strict=True)
        ] == [
            (
                getattr(topic, "name", None),
                getattr(topic, "topic_id", None),
                [(part.partition_index, part.error_code.value) for part in topic.partitions],
            )
            for topic in response.topics
        ]
        buffer = io.BytesIO()
        entity_writer(response_class)(buffer, response)
        assert buffer.getvalue() == content


def test_outcomes_that_do_not_fit() -> None:
    request = read_offset_commit(9, body_of(9, SAMPLE))
    several: list[list[list[int]]] = [[], [[0, 0]], [[]], [[0], [0]]]
    for wrong in several:
        with pytest.raises(MisuseError):
            request.answer(wrong)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_is_refused(version: int) -> None:
    body = body_of(version, SAMPLE)
    for size in range(len(body)):
        with pytest.raises(ShapeError):
            read_offset_commit(version, body[:size])


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_damage_is_refused_or_read(version: int, data: st.DataObject) -> None:
    """Whatever a byte becomes, the answer is a commit or a refusal."""
    body = bytearray(body_of(version, SAMPLE))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ValueError):
        read_offset_commit(version, bytes(body))


@pytest.mark.parametrize("version", [8, 9, 10])
def test_unknown_tags_are_stepped_over(version: int) -> None:
    body = body_of(version, SAMPLE)
    assert body.endswith(b"\0\0\0")
    tagged = body[:-3] + b"\x01\x05\x02xy" + b"\0" + b"\x02\x00\x00\x01\x01z"
    assert as_known(version, SAMPLE) == said(read_offset_commit(version, tagged))


@pytest.mark.parametrize("version", [2, 10])
def test_counts_that_lie(version: int) -> None:
    commit = SAMPLE._replace(topics=[])
    body = body_of(version, commit)
    count = b"\x7f\xff\xff\xff" if version < 8 else b"\xff\xff\xff\xff\x07"
    lie = body[: -4 if version < 8 else -2] + count
    for behind in (b"", b"\0" * 100_000):
        with pytest.raises(ShapeError, match="elements"):
            read_offset_commit(version, lie + behind)
    many = SAMPLE._replace(topics=[Topic("t", UUID(int=7), [Row(0, 1, 2, "")] * (ELEMENTS_MAX + 1))])
    with pytest.raises(ShapeError, match="more elements"):
        read_offset_commit(version, body_of(version, many))


def test_nulls_where_none_may_be() -> None:
    body = body_of(9, SAMPLE)
    with pytest.raises(ShapeError, match="null"):
        read_offset_commit(9, b"\0" + body[6:])
    with pytest.raises(ShapeError, match="null"):
        read_offset_commit(2, b"\xff\xff" + body_of(2, SAMPLE)[7:])
