"""What a stream does about partitions that are new, gone or made anew, and where its first batch begins."""

import pytest

from ottla.model.ids import TopicPartition
from ottla.spark.source.admission import Limits
from ottla.spark.source.offset_text import BadCheckpointError, StreamOffset
from ottla.spark.source.stream_plan import begins_of, late_losses, look, next_offset

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
IDS = {"a": "id-a"}
TEMPLATE = StreamOffset(offsets={}, topic_ids=IDS)


def offset(offsets: dict[TopicPartition, int], is_initial: bool = False) -> StreamOffset:
    return StreamOffset(offsets=offsets, topic_ids=IDS, is_initial=is_initial)


def after(
    start: StreamOffset,
    ends: dict[TopicPartition, int],
    firsts: dict[TopicPartition, int] | None = None,
    pins: bool = False,
    limits: Limits | None = None,
) -> StreamOffset | None:
    return next_offset(start, ends, firsts or {}, limits or Limits(), None, pins=pins, template=TEMPLATE)


def test_nothing_new_is_no_batch() -> None:
    assert None is after(offset({A0: 5}), {A0: 5})
    assert None is after(offset({A0: 5}, is_initial=True), {A0: 5})


def test_the_next_batch_ends_where_the_partitions_end() -> None:
    assert StreamOffset(offsets={A0: 9}, topic_ids=IDS) == after(offset({A0: 5}), {A0: 9})


def test_the_first_batch_says_where_it_began() -> None:
    end = after(offset({A0: 5, A1: 3}, is_initial=True), {A0: 9, A1: 3})
    assert end is not None
    assert {A0: 5, A1: 3} == end.first
    # Where "latest" is by now does not matter any more.
    assert {A0: 5, A1: 3} == begins_of(offset({A0: 8, A1: 4}, is_initial=True), end)


def test_a_start_that_moves_is_pinned_by_an_empty_batch() -> None:
    end = after(offset({A0: 5}, is_initial=True), {A0: 5}, pins=True)
    assert end is not None
    assert ({A0: 5}, {A0: 5}, False) == (end.offsets, end.first, end.is_initial)
    assert None is after(end, {A0: 5}, pins=True)


def test_a_new_partition_begins_at_its_first_offset() -> None:
    changes = look(offset({A0: 5}), {A0: 5, A1: 4}, IDS, "subscribe=a")
    assert ({A1}, ()) == (set(changes.new), changes.losses)
    end = after(offset({A0: 5}), {A0: 5, A1: 4}, {A1: 0})
    assert end is not None
    assert ({A0: 5, A1: 4}, {A1: 0}) == (end.offsets, end.first)
    assert {A0: 5, A1: 0} == begins_of(offset({A0: 5}), end)


def test_a_new_partition_that_is_empty_is_no_batch() -> None:
    assert None is after(offset({A0: 5}), {A0: 5, A1: 0}, {A1: 0})


def test_a_new_partition_that_has_lost_records_is_told() -> None:
    changes = look(offset({A0: 5}), {A0: 5, A1: 4}, IDS, "subscribe=a")
    assert ["the new partition a-1 begins at offset 2, not at 0"] == late_losses(changes, {A1: 2})
    other = look(offset({A0: 5}), {A0: 5, B0: 4}, IDS, "subscribe=a,b")
    assert [] == late_losses(other, {B0: 2})


def test_a_partition_that_is_gone_is_told_and_left_out() -> None:
    start = offset({A0: 5, B0: 3})
    assert ("b-0 was deleted",) == look(start, {A0: 5}, IDS, "subscribe=a,b").losses
    end = after(start, {A0: 5})
    assert end is not None
    assert {A0: 5} == end.offsets


def test_a_log_that_is_shorter_than_before_is_told() -> None:
    changes = look(offset({A0: 5}), {A0: 3}, IDS, "subscribe=a")
    assert ("a-0 was read up to offset 5, but now ends at 3",) == changes.losses
    end = after(offset({A0: 5}), {A0: 3})
    assert end is not None
    assert {A0: 3} == end.offsets


def test_a_topic_made_anew_is_told_even_if_it_is_longer_and_read_from_its_start() -> None:
    changes = look(offset({A0: 5}), {A0: 9}, {"a": "another"}, "subscribe=a")
    assert ("topic a was deleted and recreated",) == changes.losses
    assert {A0} == set(changes.new)
    end = after(offset({A0: 5}), {A0: 9}, {A0: 0})
    assert end is not None
    assert {A0: 0} == begins_of(offset({A0: 5}), end)


def test_another_querys_checkpoint_is_refused() -> None:
    with pytest.raises(BadCheckpointError, match=r"reads a, but this query reads b \(subscribe=b\)"):
        look(offset({A0: 5}), {B0: 1}, IDS, "subscribe=b")


def test_limits_hold_for_the_first_batch_too() -> None:
    end = after(offset({A0: 5}, is_initial=True), {A0: 100}, limits=Limits(offsets_max=10))
    assert end is not None
    assert ({A0: 15}, {A0: 5}) == (end.offsets, end.first)
