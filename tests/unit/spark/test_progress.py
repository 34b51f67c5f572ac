"""Progress events of streaming queries, read for people and for consumer groups."""

import json
from typing import Any

import pytest

from ottla.model.ids import TopicPartition
from ottla.spark.progress import GroupEnd, TopicProgress, stream_progress


def event(*sources: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """As Spark writes it."""
    return {
        "id": "q",
        "runId": "r",
        "name": "orders",
        "timestamp": "2024-05-01T12:00:00.000Z",
        "batchId": 4,
        "batchDuration": 500,
        "numInputRows": 30,
        "inputRowsPerSecond": 15.0,
        "processedRowsPerSecond": 60.0,
        "durationMs": {"addBatch": 300, "triggerExecution": 500},
        "stateOperators": [{"numRowsTotal": 7}, {"numRowsTotal": 5}],
        "sources": list(sources),
        **changes,
    }


def source(start: Any, end: Any, newest: Any) -> dict[str, Any]:
    return {
        "description": "PythonDataSource",
        "startOffset": json.dumps(start),
        "endOffset": end,
        "latestOffset": newest,
        "numInputRows": 30,
    }


ORDERS = source(
    {"orders": {"0": 10, "1": 20}, "other": {"0": 5}},
    {"orders": {"0": 30, "1": 30}, "other": {"0": 5}, "@ottla": {"group": "g", "bootstrap": "h:1"}},
    {"orders": {"0": 30, "1": 130}, "other": {"0": 8}, "@ottla": {"record_bytes": {"orders": 100.0, "other": 1.0}}},
)


@pytest.mark.parametrize("as_given", [lambda each: each, json.dumps])
def test_rates_durations_and_distances(as_given: Any) -> None:
    found = stream_progress(as_given(event(ORDERS)))
    assert ("q", "r", "orders", 4) == (found.query_id, found.run_id, found.name, found.batch_id)
    assert (30, 15.0, 60.0) == (found.rows, found.rows_arriving_per_second, found.rows_processed_per_second)
    assert (500, {"addBatch": 300, "triggerExecution": 500}) == (found.batch_ms, found.phases_ms)
    assert 12 == found.state_rows
    assert {
        "orders": TopicProgress(offsets_read=30, offsets_behind=100, bytes_read=3000.0),
        "other": TopicProgress(offsets_read=0, offsets_behind=3, bytes_read=0.0),
    } == found.topics
    assert 103 == found.offsets_behind
    assert 6000.0 == found.bytes_per_second
    ends = {TopicPartition("orders", 0): 30, TopicPartition("orders", 1): 30, TopicPartition("other", 0): 5}
    assert (GroupEnd(group="g", bootstrap="h:1", offsets=ends),) == found.groups


def test_the_first_batch_says_itself_where_it_began() -> None:
    first = source(None, {"orders": {"0": 30}, "@ottla": {"from": {"orders": {"0": 25}}}}, {"orders": {"0": 30}})
    found = stream_progress(event(first))
    assert {"orders": TopicProgress(offsets_read=5, offsets_behind=0, bytes_read=None)} == found.topics
    assert found.bytes_per_second is None
    assert () == found.groups


def test_a_replayed_batch_does_not_know_how_far_behind_it_is() -> None:
    found = stream_progress(event(source({"orders": {"0": 1}}, {"orders": {"0": 2}}, None)))
    assert found.offsets_behind is None
    assert 1 == found.topics["orders"].offsets_read


@pytest.mark.parametrize("text", ["5", None, "null", {"logOffset": 3}, "not JSON", {"a": {"0": "x"}}, [1]])
def test_other_sources_have_no_topics(text: Any) -> None:
    found = stream_progress(event(source(text, text, text), ORDERS))
    assert {"orders", "other"} == set(found.topics)


def test_a_topic_that_is_read_twice_counts_twice() -> None:
    found = stream_progress(event(ORDERS, ORDERS))
    assert TopicProgress(offsets_read=60, offsets_behind=100, bytes_read=6000.0) == found.topics["orders"]


def test_a_query_without_topics_is_not_known_to_be_anywhere() -> None:
    found = stream_progress(event(inputRowsPerSecond="NaN", processedRowsPerSecond="Infinity", sources=None))
    assert (None, None) == (found.offsets_behind, found.bytes_per_second)
    assert (0.0, 0.0) == (found.rows_arriving_per_second, found.rows_processed_per_second)


@pytest.mark.parametrize("given", ["{}", "[]", "5", 5, None, {"id": "q"}])
def test_what_is_no_progress_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="not the progress of a streaming query"):
        stream_progress(given)
