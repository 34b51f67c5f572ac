"""Many offsets to records and back in one pass: the same bytes and the same state as one by one."""

from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.groups.consumer.requests import ConsumerGroupConfig
from ottla.coordination.groups.group_shard_state import GroupShard
from ottla.coordination.groups.offset_records import offset_records, read_offset_records
from ottla.coordination.groups.records import (
    OffsetKey,
    OffsetValue,
    group_tombstone,
    offset_record,
    offset_tombstone,
    read_key,
    read_offset,
)
from ottla.coordination.groups.requests import (
    GroupSettings,
    OffsetCommitResponse,
    PartitionOutcome,
    TopicOffsets,
    WholeCommitRequest,
    WholeCommitResponse,
)
from ottla.coordination.runtime.effects import CoordinatorRecord, Respond, Write
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.records.builder import BatchBuilder
from ottla.sim.random import SimRandom

NOW: Final = 1_700_000_000_000
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
ROW = st.tuples(INT, LONG, INT, st.none() | TEXT | st.just("é" * 3000))
IDS = st.none() | st.uuids().filter(lambda each: each.int != 0)
TOPICS = st.lists(st.tuples(TEXT, IDS, st.lists(ROW, min_size=1, max_size=4)), min_size=1, max_size=4)
Topics = list[tuple[str, UUID | None, list[tuple[int, int, int, str | None]]]]


def one_by_one(group_id: str, topics: Topics, commit_ms: int) -> tuple[CoordinatorRecord, ...]:
    """The same records, each by itself."""
    return tuple(
        offset_record(
            group_id,
            topic,
            partition,
            OffsetValue(
                offset=offset, leader_epoch=epoch, metadata=metadata or "", commit_ms=commit_ms, topic_id=topic_id
            ),
        )
        for topic, topic_id, rows in topics
        for partition, offset, epoch, metadata in rows
    )


@given(group_id=TEXT, topics=TOPICS, commit_ms=LONG)
def test_the_same_bytes(group_id: str, topics: Topics, commit_ms: int) -> None:
    records = tuple(offset_records(group_id, topics, commit_ms))
    assert one_by_one(group_id, topics, commit_ms) == records
    assert {CoordinatorRecord} == {type(record) for record in records}


@given(group_id=TEXT, topics=TOPICS, commit_ms=LONG)
def test_the_same_batch(group_id: str, topics: Topics, commit_ms: int) -> None:
    """As of a builder that gets each record by itself."""
    records = offset_records(group_id, topics, commit_ms)
    builder = BatchBuilder()
    for key, value in records:
        builder.append(NOW, key, value)
    assert len(records) == builder.count
    assert builder.build() == records.batch(NOW)


@given(group_id=TEXT, topics=TOPICS, turn=st.integers(0, 2**40))
def test_the_same_values(group_id: str, topics: Topics, turn: int) -> None:
    records = offset_records(group_id, topics, NOW)
    found = read_offset_records(records, turn)
    assert found is not None
    assert group_id == found[0]
    expected = []
    for number, record in enumerate(records, start=turn + 1):
        key = read_key(record.key)
        assert isinstance(key, OffsetKey)
        assert record.value is not None
        expected.append((TopicPartition(key.topic, key.partition), (read_offset(record.value), number)))
    assert expected == found[1]
    assert {(TopicPartition, OffsetValue)} == {(type(place), type(offset.value)) for place, offset in found[1]}


USUAL = offset_record("g", "t", 0, OffsetValue(offset=1, commit_ms=NOW))


@pytest.mark.parametrize(
    "other",
    [
        offset_tombstone("g", "t", 0),
        offset_record("h", "t", 0, OffsetValue(offset=1, commit_ms=NOW)),
        offset_record("g", "t", 0, OffsetValue(offset=1, commit_ms=NOW, expire_ms=5)),
        group_tombstone("g"),
        CoordinatorRecord(USUAL.key[:-1], USUAL.value),
        CoordinatorRecord(USUAL.key + b"\0", USUAL.value),
        CoordinatorRecord(USUAL.key, (USUAL.value or b"")[:-1]),
        CoordinatorRecord(USUAL.key, (USUAL.value or b"") + b"\0"),
        CoordinatorRecord(b"\0\x01\0\x01\xff\0\x01t\0\0\0\0", USUAL.value),
        CoordinatorRecord(USUAL.key, (USUAL.value or b"")[:-1] + b"\x01\0\x10" + bytes(16)),
        CoordinatorRecord(USUAL.key, (USUAL.value or b"")[:-1] + b"\x02"),
        CoordinatorRecord(b"", b""),
    ],
)
def test_anything_else_is_left_to_others(other: CoordinatorRecord) -> None:
    assert read_offset_records((USUAL, other), 0) is None
    assert read_offset_records((), 0) is None
    assert read_offset_records((USUAL,), 0) is not None


@given(data=st.data())
def test_damage(data: st.DataObject) -> None:
    """Whatever is read from damaged bytes is what the other reader reads, too."""
    key, value = bytearray(USUAL.key), bytearray(USUAL.value or b"")
    for _ in range(data.draw(st.integers(1, 3))):
        part = data.draw(st.sampled_from((key, value)))
        part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    found = read_offset_records((CoordinatorRecord(bytes(key), bytes(value)),), 0)
    if found is not None:
        ((place, offset),) = found[1]
        assert (read_key(bytes(key)), read_offset(bytes(value))) == ((found[0], *place), offset.value)


def test_a_text_that_no_record_holds() -> None:
    with pytest.raises(MisuseError):
        offset_records("g" * 40_000, [("t", None, [(0, 0, 0, None)])], NOW)


# In the machine


def machine() -> GroupShard:
    return GroupShard(GroupSettings(), ConsumerGroupConfig(), SimRandom(1))


def whole(*topics: TopicOffsets, **changed: Any) -> WholeCommitRequest:
    values: dict[str, Any] = {
        "group_id": "g",
        "generation": -1,
        "member_id": "",
        "instance_id": None,
        "retention_ms": -1,
        "topics": topics,
        "metadata_bytes_max": max(len((row[3] or "").encode()) for topic in topics for row in topic.rows),
        "knows_group_not_found": True,
    }
    return WholeCommitRequest(**{**values, **changed})


@given(topics=TOPICS)
def test_a_live_write_and_a_loaded_log_give_equal_states(topics: Topics) -> None:
    live, loaded, plain = machine(), machine(), machine()
    request = whole(*(TopicOffsets(*topic) for topic in topics), metadata_bytes_max=0)
    (write,) = live.commit_whole(request, NOW, "token")
    assert isinstance(write, Write)
    live.replay_all(write.records)
    for record in write.records:
        loaded.replay(record)
    for effect in plain.commit_offsets(request.one_by_one(), NOW, "token"):
        if isinstance(effect, Write):
            for record in effect.records:
                plain.replay(record)
    assert vars(loaded.offsets) == vars(live.offsets)
    assert loaded.list_groups() == live.list_groups()
    live.check()
    if max(len(row[3] or "") for _, _, rows in topics for row in rows) <= 4096:
        assert vars(plain.offsets) == vars(live.offsets)


def test_what_has_to_be_looked_at_one_by_one() -> None:
    """Metadata that is too long, or a retention of its own."""
    topic = TopicOffsets("t", None, [(0, 1, -1, "x" * 4097), (1, 1, -1, "")])
    (write,) = machine().commit_whole(whole(topic), NOW, "token")
    assert isinstance(write, Write)
    outcomes = (PartitionOutcome("t", 0, ErrorCode.OFFSET_METADATA_TOO_LARGE), PartitionOutcome("t", 1))
    assert (Respond("token", OffsetCommitResponse(partitions=outcomes)),) == write.responses
    topic = TopicOffsets("t", None, [(0, 1, -1, None)])
    (write,) = machine().commit_whole(whole(topic, retention_ms=7), NOW, "token")
    assert isinstance(write, Write)
    assert NOW + 7 == read_offset(next(iter(write.records)).value or b"").expire_ms


def test_refusals_are_those_of_the_whole() -> None:
    topic = TopicOffsets("t", None, [(0, 1, -1, None)])
    for changed, error in (
        ({"generation": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"generation": 1, "knows_group_not_found": False}, ErrorCode.ILLEGAL_GENERATION),
        ({"group_id": "g" * 9000}, ErrorCode.INVALID_GROUP_ID),
    ):
        expected = [Respond("token", WholeCommitResponse(error))]
        assert expected == machine().commit_whole(whole(topic, **changed), NOW, "token")
