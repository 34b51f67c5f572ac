"""Names of files and folders, ours and those that only look like it."""

import pytest

from ottla.model.ids import Offset, TopicPartition
from ottla.storage.data_dirs import names


def test_segment_paths_have_twenty_digits() -> None:
    assert "/d/00000000000000000042.log" == names.segment_path("/d", 42, names.LOG)
    assert "/d/09223372036854775807.index" == names.segment_path("/d", 2**63 - 1, names.OFFSET_INDEX)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000042.log", 42),
        ("00000000000000000042.log.deleted", 42),
        ("09223372036854775807.snapshot", 2**63 - 1),
        ("09223372036854775808.log", None),
        ("99999999999999999999.log", None),
        ("0000000000000000042.log", None),
        ("٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠.log", None),
        ("-0000000000000000001.log", None),
        ("leader-epoch-checkpoint", None),
        ("", None),
    ],
)
def test_base_offsets(name: str, expected: Offset | None) -> None:
    assert expected == names.base_offset_of(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", ("orders", 0)),
        ("a.b_c-d-12", ("a.b_c-d", 12)),
        ("__consumer_offsets-49", ("__consumer_offsets", 49)),
        ("t-2147483647", ("t", 2147483647)),
        ("t-2147483648", None),
        ("t-007", None),
        ("t-", None),
        ("-1", None),
        ("t", None),
        ("t-1x", None),
        ("t\n-1", None),
        ("ü-1", None),
        ("t-0.0123456789abcdef0123456789abcdef-delete", None),
    ],
)
def test_partition_folders(name: str, expected: tuple[str, int] | None) -> None:
    assert expected == names.partition_of(name)


def test_doomed_folders() -> None:
    unique = "0123456789abcdef" * 2
    name = names.doomed_name(TopicPartition("orders", 3), unique)
    assert f"orders-3.{unique}-delete" == name
    assert names.is_doomed(name)
    assert not names.is_doomed(f"t-1.{unique}-stray")
    assert names.partition_of(f"t-1.{unique}-stray") is None
    assert not names.is_doomed("t-1")
    assert not names.is_doomed("t.0123-delete")
    longest = names.doomed_name(TopicPartition("x" * 249, 3), unique)
    assert 255 == len(longest)
    assert names.is_doomed(longest)
