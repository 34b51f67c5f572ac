"""Offsets in checkpoints: readable, stable, and read back as they were."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import TopicPartition
from ottla.spark.source.offset_text import BadCheckpointError, StreamOffset, listed, parse_numbers, read_offset

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d-e"]), st.integers(0, 20))
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, 2**62), max_size=8)
STREAM_OFFSETS = st.builds(
    StreamOffset,
    offsets=OFFSETS,
    first=OFFSETS,
    topic_ids=st.dictionaries(st.sampled_from(["a", "b.c"]), st.uuids().map(str)),
    group=st.just("billing"),
    bootstrap=st.just("a:1"),
    is_initial=st.booleans(),
)


@given(STREAM_OFFSETS)
def test_what_is_written_is_read(offset: StreamOffset) -> None:
    assert offset == read_offset(offset.as_json())
    assert offset == read_offset(json.dumps(offset.as_json()))


@given(OFFSETS, st.randoms())
def test_equal_offsets_have_equal_texts(offsets: dict[TopicPartition, int], random: Random) -> None:
    shuffled = list(offsets.items())
    random.shuffle(shuffled)
    texts = {json.dumps(StreamOffset(offsets=each).as_json()) for each in (offsets, dict(shuffled))}
    assert 1 == len(texts)


def test_the_shape_is_the_connectors() -> None:
    offsets = {TopicPartition("b", 10): 3, TopicPartition("b", 9): 2, TopicPartition("a", 0): 1}
    assert '{"a": {"0": 1}, "b": {"9": 2, "10": 3}}' == json.dumps(StreamOffset(offsets=offsets).as_json())


@pytest.mark.parametrize("text", ['{"a":5}', "[]", '{"a":{"x":1}}', "17", '{"a":{"0":null}}', "no json"])
def test_what_is_no_offset_is_told(text: str) -> None:
    with pytest.raises(BadCheckpointError, match="checkpointLocation"):
        read_offset(text)


def test_numbers_by_partition() -> None:
    expected = {TopicPartition("a", 0): -2, TopicPartition("a", 10): 7}
    assert expected == parse_numbers('{"a":{"10":7,"0":-2}}', "startingOffsets")


def test_a_long_list_is_cut() -> None:
    assert "a-0, a-1" == listed({TopicPartition("a", 1), TopicPartition("a", 0)})
    assert listed({TopicPartition("a", each) for each in range(30)}).endswith("a-8, … and 21 more")
