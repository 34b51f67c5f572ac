"""Where offsets are reset to: what is written, and what it means for a partition."""

import pytest

from ottla.model.ids import TopicPartition
from ottla.operations.groups.offset_resets import (
    BadResetError,
    NothingToShiftError,
    PartitionFacts,
    ShiftBy,
    Target,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToListed,
    ToOffset,
    ToTime,
    parse_datetime,
    parse_listed,
    plan_reset,
)

PARTITION = TopicPartition("events", 3)


@pytest.mark.parametrize(
    ("target", "committed", "at_time", "new", "note"),
    [
        (ToEarliest(), 50, None, 10, ""),
        (ToLatest(), 50, None, 90, ""),
        (ToCurrent(), 50, None, 50, ""),
        (ToCurrent(), 5, None, 10, "5 is before the start offset 10"),
        (ToCurrent(), None, None, 90, "no committed offset"),
        (ToOffset(90), None, None, 90, ""),
        (ToOffset(91), None, None, 90, "91 is after the end offset 90"),
        (ToOffset(9), None, None, 10, "9 is before the start offset 10"),
        (ShiftBy(5), 50, None, 55, ""),
        (ShiftBy(-50), 50, None, 10, "0 is before the start offset 10"),
        (ShiftBy(50), 50, None, 90, "100 is after the end offset 90"),
        (ToTime(0), 50, 33, 33, ""),
        (ToTime(0), 50, None, 90, "no record at or after that time"),
        (ToListed({PARTITION: 44}), 50, None, 44, ""),
    ],
)
def test_what_becomes_of_a_partition(
    target: Target, committed: int | None, at_time: int | None, new: int, note: str
) -> None:
    planned = plan_reset(target, PARTITION, PartitionFacts(committed=committed, start=10, end=90, at_time=at_time))
    assert (PARTITION, committed, new, note) == (planned.partition, planned.current, planned.new, planned.note)


def test_nothing_cannot_be_shifted() -> None:
    with pytest.raises(NothingToShiftError, match="events-3: no committed offset"):
        plan_reset(ShiftBy(1), PARTITION, PartitionFacts(committed=None, start=0, end=9))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2001-09-09T01:46:40", 1_000_000_000_000),
        ("2001-09-09T01:46:40.123", 1_000_000_000_123),
        ("2001-09-09T01:46:40Z", 1_000_000_000_000),
        ("2001-09-09T03:46:40+02:00", 1_000_000_000_000),
        ("2001-09-09", 999_993_600_000),
    ],
)
def test_a_time_is_utc_unless_it_says_otherwise(text: str, expected: int) -> None:
    assert ToTime(expected) == parse_datetime(text)


@pytest.mark.parametrize("text", ["", "yesterday", "2001-13-01T00:00:00", "1000000000000 ms"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadResetError, match="is not a valid time; write one such as"):
        parse_datetime(text)


def test_a_file_lists_partitions_of_this_group_and_perhaps_of_others() -> None:
    lines = ["events,0,5", "", "billing, events ,1, 6", "other,events,1,7", '"events",2,8']
    expected = {TopicPartition("events", 0): 5, TopicPartition("events", 1): 6, TopicPartition("events", 2): 8}
    assert ToListed(expected) == parse_listed(lines, "file", "billing")


@pytest.mark.parametrize("line", ["events,0", "events,zero,5", "events,0,-1", ",0,5", "a,b,c,d,e", "billing,events,0"])
def test_a_line_that_lists_nothing_is_named(line: str) -> None:
    with pytest.raises(BadResetError, match=r"file, line 2: .* is not topic,partition,offset"):
        parse_listed(["events,0,5", line], "file", "billing")


def test_a_file_without_this_group_is_refused() -> None:
    with pytest.raises(BadResetError, match="file has no partitions of group billing"):
        parse_listed(["other,events,1,7"], "file", "billing")
