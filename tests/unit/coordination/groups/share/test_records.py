"""The records of share groups and of the share coordinator, byte for byte as Kafka's own classes write them."""

from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from ottla.coordination.groups.share import records as groups
from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.coordination.share_state import records as states
from ottla.coordination.share_state.state_batches import StateBatch
from ottla.model.errors import CorruptError

GOLDEN: Final = Path(__file__).parents[4] / "golden" / "coordination" / "share_group_records.txt"
FOO: Final = UUID(int=1)
KEY: Final = states.ShareKey("g", FOO, 3)

OF_GROUPS: Final[dict[str, groups.GroupRecord]] = {
    "epoch": groups.EpochRecord("группа", groups.EpochValue(epoch=7, metadata_hash=-42)),
    "epoch-tombstone": groups.EpochRecord("g", None),
    "member": groups.MemberRecord(
        "g", "m", groups.MemberValue(rack_id="r", client_id="c", client_host="/h", topic_names=("a", "b"))
    ),
    "member-plain": groups.MemberRecord("g", "m", groups.MemberValue()),
    "target-epoch": groups.TargetEpochRecord("g", groups.TargetEpochValue(epoch=3, timestamp_ms=1_700_000_000_000)),
    "target-epoch-no-time": groups.TargetEpochRecord("g", groups.TargetEpochValue(epoch=3)),
    "target": groups.TargetRecord("g", "m", {FOO: (0, 2)}),
    "current": groups.CurrentRecord(
        "g", "m", groups.CurrentValue(member_epoch=5, previous_member_epoch=4, assigned={FOO: (1,)})
    ),
    "states": groups.StatePartitionsRecord(
        "g",
        groups.StatePartitionsValue(
            initializing={FOO: groups.TopicPartitions("foo", frozenset({1, 2}))},
            initialized={FOO: groups.TopicPartitions("foo", frozenset({0}))},
            deleting={FOO: "foo"},
        ),
    ),
}
OF_STATES: Final[dict[str, states.StateRecord]] = {
    "snapshot": states.StateRecord(
        KEY,
        states.Snapshot(
            snapshot_epoch=1,
            state_epoch=2,
            leader_epoch=3,
            start_offset=10,
            delivery_complete_count=4,
            create_ms=1_700_000_000_000,
            write_ms=1_700_000_000_001,
            batches=(StateBatch(11, 12, 2, 1), StateBatch(13, 13, 0, 2)),
        ),
    ),
    "snapshot-new": states.StateRecord(
        KEY,
        states.Snapshot(
            snapshot_epoch=0,
            state_epoch=2,
            leader_epoch=0,
            start_offset=-1,
            delivery_complete_count=-1,
            create_ms=1,
            write_ms=1,
            batches=(),
        ),
    ),
    "snapshot-tombstone": states.StateRecord(KEY, None),
    "update": states.StateRecord(
        KEY,
        states.Update(
            snapshot_epoch=1,
            leader_epoch=3,
            start_offset=-1,
            delivery_complete_count=5,
            batches=(StateBatch(14, 20, 4, 5),),
        ),
    ),
}


def golden() -> dict[str, CoordinatorRecord]:
    found = {}
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        name, key, value = line.split()
        found[name] = CoordinatorRecord(bytes.fromhex(key), None if value == "null" else bytes.fromhex(value))
    return found


def test_every_golden_record_is_here() -> None:
    assert set(golden()) == set(OF_GROUPS) | set(OF_STATES)


@pytest.mark.parametrize("name", OF_GROUPS)
def test_records_of_groups_are_kafkas(name: str) -> None:
    assert golden()[name] == groups.encode(OF_GROUPS[name])
    assert OF_GROUPS[name] == groups.decode(golden()[name])


@pytest.mark.parametrize("name", OF_STATES)
def test_records_of_states_are_kafkas(name: str) -> None:
    assert golden()[name] == states.encode(OF_STATES[name])
    assert OF_STATES[name] == states.decode(golden()[name])


def test_newer_and_damaged_records_say_so() -> None:
    for name, record in golden().items():
        if record.value is None:
            continue
        decode = groups.decode if name in OF_GROUPS else states.decode
        with pytest.raises(CorruptError, match="newer than"):
            decode(CoordinatorRecord(record.key, b"\0\1" + record.value[2:]))
        with pytest.raises(CorruptError, match="damaged"):
            decode(CoordinatorRecord(record.key, record.value[:4]))


def test_keys_of_share_partitions_are_read_as_they_are_written() -> None:
    key = states.ShareKey("a:b", FOO, 7)
    assert "a:b:AAAAAAAAAAAAAAAAAAAAAQ:7" == key.text
    assert key == states.read_share_key(key.text)
    for text in ("", "g", "g:AAAAAAAAAAAAAAAAAAAAAQ", "g:x:0", ":AAAAAAAAAAAAAAAAAAAAAQ:0", f"{key.text}x"):
        assert states.read_share_key(text) is None
