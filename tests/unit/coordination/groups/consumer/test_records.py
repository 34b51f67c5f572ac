"""Records of server-side groups, byte for byte as Kafka 4.3 writes them (see `tests/golden/coordination`)."""

from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.groups.consumer.records import (
    ClassicMetadata,
    CurrentRecord,
    CurrentValue,
    EpochRecord,
    EpochValue,
    GroupRecord,
    MemberRecord,
    MemberState,
    MemberValue,
    PartitionMetadataRecord,
    RegexRecord,
    RegexValue,
    TargetEpochRecord,
    TargetEpochValue,
    TargetRecord,
    decode,
    encode,
)
from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.model.errors import CorruptError

GOLDEN: Final = Path(__file__).parents[4] / "golden" / "coordination" / "consumer_group_records.txt"
FOO: Final = UUID(int=1)
BAR: Final = UUID(bytes=(-2).to_bytes(8, signed=True) + 0x0123456789ABCDEF.to_bytes(8))

PLAIN_MEMBER: Final = MemberValue(topic_regex=None)
RECORDS: Final[dict[str, GroupRecord]] = {
    "epoch": EpochRecord("группа", EpochValue(epoch=7, metadata_hash=-42)),
    "epoch-no-hash": EpochRecord("группа", EpochValue(epoch=1)),
    "epoch-tombstone": EpochRecord("группа", None),
    "partition-metadata": PartitionMetadataRecord("g", True),
    "partition-metadata-tombstone": PartitionMetadataRecord("g", False),
    "member": MemberRecord(
        "g",
        "m1",
        MemberValue(
            instance_id="i1",
            rack_id="r1",
            client_id="client",
            client_host="/127.0.0.1",
            topic_names=("bar", "foo"),
            topic_regex="b.*",
            rebalance_timeout_ms=300000,
            server_assignor="uniform",
        ),
    ),
    "member-plain": MemberRecord("g", "m1", PLAIN_MEMBER),
    "member-classic": MemberRecord(
        "g",
        "m1",
        MemberValue(
            client_id="c",
            client_host="/h",
            topic_names=("foo",),
            rebalance_timeout_ms=60000,
            classic=ClassicMetadata(session_timeout_ms=45000, protocols=(("range", b"\0\1\2"), ("sticky", b""))),
        ),
    ),
    "member-tombstone": MemberRecord("g", "m1", None),
    "target-epoch": TargetEpochRecord("g", TargetEpochValue(epoch=9, timestamp_ms=1700000000123)),
    "target-epoch-no-time": TargetEpochRecord("g", TargetEpochValue(epoch=9)),
    "target-epoch-tombstone": TargetEpochRecord("g", None),
    "target": TargetRecord("g", "m1", {FOO: (0, 2, 300), BAR: (1,)}),
    "target-empty": TargetRecord("g", "m1", {}),
    "target-tombstone": TargetRecord("g", "m1", None),
    "current": CurrentRecord(
        "g",
        "m1",
        CurrentValue(
            member_epoch=9,
            previous_member_epoch=8,
            state=MemberState.UNREVOKED,
            assigned={FOO: {0: 9, 2: 4}},
            revoking={BAR: {5: 3}},
        ),
    ),
    "current-old": CurrentRecord(
        "g",
        "m1",
        CurrentValue(
            member_epoch=9, previous_member_epoch=8, state=MemberState.STABLE, assigned={FOO: {0: 9, 2: 9}}, revoking={}
        ),
    ),
    "current-future": CurrentRecord(
        "g",
        "m1",
        CurrentValue(member_epoch=-2, previous_member_epoch=8, state=MemberState.UNKNOWN, assigned={}, revoking={}),
    ),
    "current-tombstone": CurrentRecord("g", "m1", None),
    "regex": RegexRecord("g", "ba[rz].*", RegexValue(topics=("bar", "baz"), version=77, timestamp_ms=1700000000123)),
    "regex-tombstone": RegexRecord("g", "ba[rz].*", None),
}
ONLY_READ: Final = {"partition-metadata", "current-old", "current-future"}
"""What Kafka can write and we cannot: older and newer than what is written today."""


def golden() -> dict[str, CoordinatorRecord]:
    records = {}
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        name, key, value = line.split(" ")
        records[name] = CoordinatorRecord(bytes.fromhex(key), None if value == "null" else bytes.fromhex(value))
    return records


def test_every_golden_record_is_known() -> None:
    assert list(RECORDS) == list(golden())


@pytest.mark.parametrize("name", RECORDS)
def test_reads_what_kafka_writes(name: str) -> None:
    assert RECORDS[name] == decode(golden()[name])


@pytest.mark.parametrize("name", [name for name in RECORDS if name not in ONLY_READ])
def test_writes_what_kafka_writes(name: str) -> None:
    assert golden()[name] == encode(RECORDS[name])


def test_kinds_of_others_are_left_to_them() -> None:
    assert decode(CoordinatorRecord(b"\0\2\0\1g", None)) is None
    assert decode(CoordinatorRecord(b"\0\x0a\0\1g", b"")) is None


@given(name=st.sampled_from(list(RECORDS)), cut=st.integers(0, 200), junk=st.binary(max_size=8))
def test_damaged_values_are_refused_not_misread(name: str, cut: int, junk: bytes) -> None:
    record = golden()[name]
    value = (record.value or b"")[:cut] + junk
    try:
        decoded = decode(CoordinatorRecord(record.key, value))
    except CorruptError:
        return
    assert decoded is not None


def test_a_version_of_the_future_is_refused() -> None:
    with pytest.raises(CorruptError, match="version 1"):
        decode(CoordinatorRecord(golden()["epoch"].key, b"\0\1" + b"\0" * 20))
