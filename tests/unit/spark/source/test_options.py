"""The options of the source: what they mean, what goes first, and what cannot be."""

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.client.options import OptionError
from ottla.model.ids import TopicPartition
from ottla.spark.source.options import Position, Selection, SourceOptions, parse_delay_ms, parse_source_options

BROKERS = {"kafka.bootstrap.servers": "a:1"}
GIVEN = {**BROKERS, "subscribe": "orders"}


def parsed(options: Mapping[str, str] | None = None, *, is_stream: bool = True) -> SourceOptions:
    return parse_source_options({**GIVEN, **(options or {})}, is_stream=is_stream)


def test_without_further_options_the_connectors_defaults_hold() -> None:
    stream, batch = parsed(), parsed(is_stream=False)
    assert ("latest", "earliest", "latest") == (stream.starting.kind, batch.starting.kind, batch.ending.kind)
    assert Selection(topics=("orders",)) == stream.selection
    assert (True, 120_000, 3, 10) == (
        stream.fail_on_data_loss,
        stream.poll_timeout_ms,
        stream.offset_tries,
        stream.offset_retry_ms,
    )
    assert (None, None, None, 900_000) == (
        stream.offsets_max,
        stream.offsets_min,
        stream.partitions_min,
        stream.trigger_delay_ms,
    )
    assert (False, "error", "read_uncommitted") == (stream.headers, stream.no_match, stream.isolation_level)


@pytest.mark.parametrize(
    ("option", "text", "field", "expected"),
    [
        ("failOnDataLoss", "False", "fail_on_data_loss", False),
        ("kafkaConsumer.pollTimeoutMs", "500", "poll_timeout_ms", 500),
        ("fetchOffset.numRetries", "7", "offset_tries", 7),
        ("fetchOffset.retryIntervalMs", "0", "offset_retry_ms", 0),
        ("partition.metadata.cache.ttl.ms", "400", "partitions_max_age_ms", 400),
        ("partition.metadata.cache.ttl.ms", "-1", "partitions_max_age_ms", None),
        ("maxOffsetsPerTrigger", "50", "offsets_max", 50),
        ("minOffsetsPerTrigger", "20", "offsets_min", 20),
        ("maxTriggerDelay", "30s", "trigger_delay_ms", 30_000),
        ("bytesPerTrigger", "1000", "bytes_max", 1000),
        ("minPartitions", "9", "partitions_min", 9),
        ("maxRecordsPerPartition", "9", "records_per_task_max", 9),
        ("maxBytesPerPartition", "9", "bytes_per_task_max", 9),
        ("includeHeaders", "true", "headers", True),
        ("groupId", " billing ", "group_id", "billing"),
        ("segments", "never", "segments", "never"),
        ("startingOffsetsByTimestampStrategy", "LATEST", "no_match", "latest"),
        ("kafka.isolation.level", "read_committed", "isolation_level", "read_committed"),
    ],
)
def test_an_option_means(option: str, text: str, field: str, expected: Any) -> None:
    assert expected == getattr(parsed({option.lower(): text}), field)


def test_a_time_goes_before_times_and_these_before_offsets() -> None:
    offsets = {"startingoffsets": '{"orders":{"0":5}}'}
    times = {"startingoffsetsbytimestamp": '{"orders":{"0":1000}}'}
    partition = TopicPartition("orders", 0)
    assert Position(kind="offsets", numbers={partition: 5}, option="startingOffsets") == parsed(offsets).starting
    assert (
        Position(kind="timestamps", numbers={partition: 1000}, option="startingOffsetsByTimestamp")
        == parsed({**offsets, **times}).starting
    )
    assert (
        Position(kind="timestamp", timestamp=7, option="startingTimestamp")
        == parsed({**offsets, **times, "startingTimestamp": "7"}).starting
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": " b , a,,"}, Selection(topics=("a", "b"))),
        ({"subscribePattern": "order.*"}, Selection(pattern="order.*")),
        (
            {"assign": '{"b":[1,0],"a":[2]}'},
            Selection(partitions=(TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1))),
        ),
    ],
)
def test_what_is_read(options: dict[str, str], expected: Selection) -> None:
    assert expected == parse_source_options({**BROKERS, **options}, is_stream=True).selection


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "assign and subscribe are set"),
        ({}, "none is set"),
        ({"subscribe": ","}, "does not name a topic"),
        ({"subscribePattern": "("}, "pattern '(' is not a valid RE2 regular expression"),
        ({"assign": "orders"}, "is not valid JSON"),
        ({"assign": '{"a":{"0":1}}'}, "is not a list of partitions"),
        ({"assign": '{"a":[]}'}, "does not name a partition"),
        ({"subscribe": "a", "startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"subscribe": "a", "maxOffsetPerTrigger": "1"}, "did you mean maxOffsetsPerTrigger?"),
        ({"subscribe": "a", "startingOffsets": "newest"}, "earliest, latest or"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":-3}}'}, "below -2"),
        ({"subscribe": "a", "startingOffsets": '{"a":[0]}'}, "has no partitions"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"x":0}}'}, "partition 'x'"),
        ({"subscribe": "a", "startingTimestamp": "now"}, "a whole number"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "negative timestamp"),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "first"}, "error or latest"),
        ({"subscribe": "a", "failOnDataLoss": "maybe"}, "true or false"),
        ({"subscribe": "a", "minPartitions": "0"}, "must be at least 1"),
        ({"subscribe": "a", "partition.metadata.cache.ttl.ms": "0"}, "not allowed"),
        ({"subscribe": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is more than"),
        ({"subscribe": "a", "maxTriggerDelay": "a while"}, "is not a valid duration"),
        ({"subscribe": "a", "segments": "sometimes"}, "auto or never or always"),
        ({"subscribe": "a", "kafka.auto.offset.reset": "earliest"}, "set startingOffsets"),
        ({"subscribe": "a", "kafka.enable.auto.commit": "true"}, "groupId=NAME"),
        ({"subscribe": "a", "kafka.key.deserializer": "x"}, "CAST(key AS STRING)"),
        ({"subscribe": "a", "kafka.value.deserializer": "x"}, "valueFormat"),
        ({"subscribe": "a", "kafka.interceptor.classes": "x"}, "interceptors"),
        ({"subscribe": "a", "kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as refusal:
        parse_source_options({**BROKERS, **options}, is_stream=True)
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("is_stream", "options", "words"),
    [
        (True, {"endingOffsets": "latest"}, "for batches"),
        (True, {"endingOffsetsByTimestamp": '{"orders":{"0":1}}'}, "for batches"),
        (True, {"endingTimestamp": "1"}, "for batches"),
        (False, {"startingOffsets": "latest"}, "cannot be latest"),
        (False, {"startingOffsets": '{"orders":{"0":-1}}'}, "cannot be latest"),
        (False, {"endingOffsets": "earliest"}, "cannot be earliest"),
        (False, {"endingOffsets": '{"orders":{"0":-2}}'}, "cannot be earliest"),
        (False, {"startingTimestamp": "5", "endingTimestamp": "4"}, "the range is empty"),
        (
            False,
            {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":4}}'},
            "the range is empty",
        ),
    ],
)
def test_batches_and_streams_differ(is_stream: bool, options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as refusal:
        parse_source_options({**GIVEN, **options}, is_stream=is_stream)
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("15m", 900_000), ("2 h", 7_200_000), ("500", 500), ("500ms", 500), ("1min", 60_000), ("1d", 86_400_000)],
)
def test_spans_of_time(text: str, expected: int) -> None:
    assert expected == parse_delay_ms(text, "maxTriggerDelay")
