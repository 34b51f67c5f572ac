"""Records of classic groups and offsets, byte for byte as Kafka 4.3 writes them (see `tests/golden/coordination`)."""

import contextlib
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ottla.coordination.groups.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    group_of,
    group_record,
    group_tombstone,
    kind_of,
    offset_record,
    offset_tombstone,
    read_group,
    read_key,
    read_offset,
)
from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.model.errors import CorruptError

GOLDEN: Final = Path(__file__).parents[3] / "golden" / "coordination" / "classic_group_records.txt"

GROUP: Final = "группа"
TOPIC_ID: Final = UUID(bytes=0x0123456789ABCDEF.to_bytes(8) + (-2).to_bytes(8, signed=True))
OFFSET: Final = OffsetValue(offset=42, leader_epoch=7, metadata="mé", commit_ms=1_700_000_000_123, topic_id=TOPIC_ID)
FIRST: Final = MemberValue(
    member_id="m1",
    instance_id="i1",
    client_id="c1",
    client_host="/h1",
    rebalance_timeout_ms=60_000,
    session_timeout_ms=10_000,
    subscription=b"\1\2\3",
    assignment=b"\4\5",
)
SECOND: Final = MemberValue(
    member_id="m2",
    client_id="",
    client_host="",
    rebalance_timeout_ms=300_000,
    session_timeout_ms=45_000,
    subscription=b"",
    assignment=b"",
)
STABLE: Final = GroupValue(
    protocol_type="consumer",
    generation=9,
    protocol="range",
    leader="m1",
    state_ms=1_700_000_000_123,
    members=(FIRST, SECOND),
)
EMPTY: Final = GroupValue(
    protocol_type="consumer", generation=10, protocol=None, leader=None, state_ms=1_700_000_000_456, members=()
)
ALONE: Final = replace(
    STABLE,
    members=(replace(FIRST, client_id="client-m1", client_host="/127.0.0.1", rebalance_timeout_ms=300_000,
                     session_timeout_ms=45_000),),
)  # fmt: skip


def golden() -> dict[str, CoordinatorRecord]:
    """What Kafka wrote, by name."""
    records = {}
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        name, key, value = line.split(" ")
        records[name] = CoordinatorRecord(bytes.fromhex(key), None if value == "null" else bytes.fromhex(value))
    return records


KAFKA: Final = golden()

WRITTEN: Final = {
    "kafka-offset": offset_record(GROUP, "foo", 3, OFFSET),
    "kafka-offset-bare": offset_record("g", "t", 0, OffsetValue(offset=0, commit_ms=0)),
    "kafka-offset-with-expiry": offset_record(GROUP, "foo", 3, OFFSET._replace(expire_ms=1_700_000_099_999)),
    "kafka-offset-tombstone": offset_tombstone(GROUP, "foo", 3),
    "kafka-group": group_record(GROUP, ALONE),
    "kafka-group-empty": group_record(GROUP, EMPTY),
    "kafka-group-tombstone": group_tombstone(GROUP),
    "group-v3": group_record(GROUP, STABLE),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written_as_kafka_writes(name: str) -> None:
    assert KAFKA[name] == WRITTEN[name]


READ_OFFSETS: Final = {
    "legacy-offset": OFFSET._replace(leader_epoch=-1, topic_id=None),
    "offset-v0": OFFSET._replace(leader_epoch=-1, topic_id=None),
    "offset-v1": OFFSET._replace(leader_epoch=-1, topic_id=None, expire_ms=1_700_000_099_999),
    "offset-v2": OFFSET._replace(leader_epoch=-1, topic_id=None),
    "offset-v3": OFFSET._replace(topic_id=None),
    "offset-v4": OFFSET,
    "kafka-offset-bare": OffsetValue(offset=0, commit_ms=0),
}
FORMER_FIRST: Final = replace(FIRST, instance_id=None)
READ_GROUPS: Final = {
    "group-v0": replace(
        STABLE,
        state_ms=None,
        members=(
            replace(FORMER_FIRST, rebalance_timeout_ms=10_000),
            replace(SECOND, rebalance_timeout_ms=45_000),
        ),
    ),
    "group-v1": replace(STABLE, state_ms=None, members=(FORMER_FIRST, SECOND)),
    "group-v2": replace(STABLE, members=(FORMER_FIRST, SECOND)),
    "group-v3": STABLE,
    "group-v4": STABLE,
    "kafka-group": ALONE,
    "kafka-group-empty": EMPTY,
}


@pytest.mark.parametrize("name", READ_OFFSETS)
def test_every_version_of_an_offset_is_read(name: str) -> None:
    value = KAFKA[name].value
    assert value is not None
    assert READ_OFFSETS[name] == read_offset(value)


@pytest.mark.parametrize("name", READ_GROUPS)
def test_every_version_of_a_group_is_read(name: str) -> None:
    value = KAFKA[name].value
    assert value is not None
    assert READ_GROUPS[name] == read_group(value)


def test_all_that_kafka_wrote_is_tested() -> None:
    assert {*KAFKA} == {*WRITTEN, *READ_OFFSETS, *READ_GROUPS}


def test_keys_are_told_apart() -> None:
    assert OffsetKey(GROUP, "foo", 3) == read_key(KAFKA["legacy-offset"].key)
    assert OffsetKey(GROUP, "foo", 3) == read_key(KAFKA["kafka-offset"].key)
    assert GroupKey(GROUP) == read_key(KAFKA["kafka-group"].key)
    newer = b"\0\3\0\1g"
    assert (3, None) == (kind_of(newer), read_key(newer))


@pytest.mark.parametrize("name", ["offset-v3", "offset-v4", "group-v0", "group-v3", "group-v4"])
def test_a_value_that_ends_early_is_damage(name: str) -> None:
    value = KAFKA[name].value
    assert value is not None
    read = read_offset if name.startswith("offset") else read_group
    for size in range(len(value)):
        with pytest.raises(CorruptError):
            read(value[:size])


def test_a_key_that_ends_early_is_damage() -> None:
    key = KAFKA["kafka-offset"].key
    for size in range(len(key)):
        with pytest.raises(CorruptError):
            read_key(key[:size])


@pytest.mark.parametrize("version", [-1, 5, 32767])
def test_an_unknown_version_is_refused(version: int) -> None:
    value = KAFKA["offset-v3"].value
    assert value is not None
    with pytest.raises(CorruptError, match=f"version {version}"):
        read_offset(version.to_bytes(2, signed=True) + value[2:])


def test_a_lying_count_is_refused() -> None:
    value = KAFKA["kafka-group-empty"].value
    assert value is not None
    with pytest.raises(CorruptError, match="2147483647 elements"):
        read_group(value[:-4] + b"\x7f\xff\xff\xff")


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (read_key, read_offset, read_group):
        # Anything but this error is a bug.
        with contextlib.suppress(CorruptError):
            read(data)


TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    value=st.builds(
        OffsetValue,
        offset=st.integers(-1, 2**63 - 1),
        leader_epoch=st.just(-1),
        metadata=TEXT,
        commit_ms=st.integers(0, 2**62),
        expire_ms=st.none() | st.integers(0, 2**62),
        topic_id=st.none(),
    ),
    group=TEXT,
    topic=TEXT,
    partition=st.integers(0, 2**31 - 1),
)
def test_what_is_written_is_read(value: OffsetValue, group: str, topic: str, partition: int) -> None:
    record = offset_record(group, topic, partition, value)
    assert record.value is not None
    assert (OffsetKey(group, topic, partition), value) == (read_key(record.key), read_offset(record.value))


BYTES: Final = st.binary(max_size=20)
TIMEOUT: Final = st.integers(-1, 2**31 - 1)
MEMBERS: Final = st.builds(
    MemberValue,
    member_id=TEXT,
    instance_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout_ms=TIMEOUT,
    session_timeout_ms=TIMEOUT,
    subscription=BYTES,
    assignment=BYTES,
)


@given(
    value=st.builds(
        GroupValue,
        protocol_type=TEXT,
        generation=st.integers(-(2**31), 2**31 - 1),
        protocol=st.none() | TEXT,
        leader=st.none() | TEXT,
        state_ms=st.none() | st.integers(0, 2**62),
        members=st.lists(MEMBERS, max_size=3).map(tuple),
    ),
    group=TEXT,
)
def test_a_group_that_was_written_is_what_is_read(value: GroupValue, group: str) -> None:
    record = group_record(group, value)
    assert record.value is not None
    assert GroupKey(group) == read_key(record.key)
    # Without decoding, and from the bytes.
    assert read_group(record.value) == group_of(record) == group_of(CoordinatorRecord(*record))
    if all(member.rebalance_timeout_ms != -1 for member in value.members):
        assert value == group_of(record)


def test_a_tombstone_has_no_group() -> None:
    assert group_of(group_tombstone(GROUP)) is None
