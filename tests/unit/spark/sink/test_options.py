"""The sink's options and columns: what is taken, and what is refused in which words."""

from typing import Any

import pytest

from ottla.client.options import OptionError
from ottla.spark.sink.columns import SinkColumns, sink_columns
from ottla.spark.sink.names import group_id, task_id, task_ids_pattern, token_of
from ottla.spark.sink.options import Delivery, sink_options

ADDRESS = {"kafka.bootstrap.servers": "somewhere:9092"}
HEADERS = "array<struct<key:string,value:binary>>"


def test_what_is_not_said_is_exactly_once_by_the_querys_name() -> None:
    options = sink_options(ADDRESS, is_stream=True)
    assert (None, Delivery.EXACTLY_ONCE, None, None, None) == (
        options.topic,
        options.delivery,
        options.transaction_timeout_ms,
        options.sink_id,
        options.batch_id,
    )
    assert {"bootstrap_servers": "somewhere:9092"} == options.client


def test_settings_of_kafkas_producer_reach_ours() -> None:
    given = {**ADDRESS, "kafka.compression.type": "zstd", "kafka.max.request.size": "5000000", "kafka.linger.ms": "1"}
    options = sink_options({**given, "kafka.delivery.timeout.ms": "70000"}, is_stream=True)
    config = options.producer
    assert ("zstd", 5_000_000, 1, 70_000) == (
        config.compression_type,
        config.max_request_size,
        config.linger_ms,
        config.delivery_timeout_ms,
    )


def test_everything_that_can_be_said() -> None:
    given = {"topic": " out ", "delivery": "At-Least-Once", "transactiontimeoutms": "5000", "sinkid": "billing.v2"}
    options = sink_options(ADDRESS | given, is_stream=True)
    assert ("out", Delivery.AT_LEAST_ONCE, 5000, "billing.v2") == (
        options.topic,
        options.delivery,
        options.transaction_timeout_ms,
        options.sink_id,
    )


@pytest.mark.parametrize(
    ("given", "is_stream", "words"),
    [
        ({"topik": "out"}, True, "has no option topik; did you mean topic?"),
        ({"delivery": "twice"}, True, "delivery=twice is not one of exactly-once, at-least-once"),
        ({"transactiontimeoutms": "soon"}, True, "transactionTimeoutMs=soon is not an integer"),
        ({"transactiontimeoutms": "0"}, True, "is not an integer of at least 1"),
        ({"topic": "  "}, True, "the option topic is empty"),
        ({"sinkid": "a:b"}, True, "sinkId='a:b' is not valid"),
        ({"sinkid": "a.task-b"}, True, "but not .task- or .part-"),
        ({"kafka.transactional.id": "mine"}, True, "kafka.transactional.id cannot be set"),
        ({"kafka.transaction.timeout.ms": "5"}, True, "set transactionTimeoutMs instead"),
        ({"kafka.acks": "1"}, True, "cannot have transactional_id together with acks=1"),
        ({"kafka.enable.idempotence": "false"}, True, "together with enable_idempotence=False"),
        ({"batchid": "1"}, True, "batchId is for batch writes"),
        ({"batchid": "1"}, False, "batchId needs sinkId"),
        ({"sinkid": "s"}, False, "sinkId of a batch write needs batchId"),
        ({"sinkid": "s", "batchid": "-1"}, False, "batchId=-1 is not an integer of at least 0"),
        ({"sinkid": "s", "batchid": "1", "delivery": "at-least-once"}, False, "batchId needs delivery=exactly-once"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, str], is_stream: bool, words: str) -> None:
    with pytest.raises(OptionError) as refused:
        sink_options(ADDRESS | given, is_stream=is_stream)
    assert words in str(refused.value)


def test_without_an_address_nothing_goes() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        sink_options({"topic": "out"}, is_stream=False)


def test_at_least_once_may_be_weaker_than_transactions() -> None:
    options = sink_options(ADDRESS | {"delivery": "at-least-once", "kafka.acks": "1"}, is_stream=True)
    assert 1 == options.producer.acks


def test_columns_are_found_by_name_in_any_case() -> None:
    given = [("Key", "string"), ("VALUE", "binary"), ("headers", HEADERS), ("partition", "int"), ("more", "double")]
    found = sink_columns(given, "out")
    assert SinkColumns(value="VALUE", key="Key", headers="headers", partition="partition", topic=None) == found
    assert {"key": "Key", "value": "VALUE", "headers": "headers", "partition": "partition"} == found.record


def test_the_topic_option_beats_the_column() -> None:
    columns = [("value", "string"), ("topic", "string")]
    assert None is sink_columns(columns, "out").topic
    assert "topic" == sink_columns(columns, None).topic
    assert None is sink_columns([("value", "string"), ("topic", "int")], "out").topic


@pytest.mark.parametrize(
    ("columns", "topic", "words"),
    [
        ([("key", "string")], "t", "no column value of type string or binary; the columns are key"),
        ([], "t", "the columns are none"),
        ([("value", "int")], "t", "column value must be of type string or binary, not int"),
        ([("value", "string"), ("key", "bigint")], "t", "column key must be of type string or binary"),
        ([("value", "string"), ("partition", "bigint")], "t", "column partition must be of type int"),
        ([("value", "string"), ("partition", "string")], "t", "column partition must be of type int"),
        ([("value", "string"), ("headers", "map<string,string>")], "t", f"must be of type {HEADERS}"),
        ([("value", "string"), ("topic", "binary")], None, "column topic must be of type string"),
        ([("value", "string")], None, "set the option topic, or add a column topic"),
        ([("value", "string"), ("Value", "string")], "t", "columns value and Value have the same role"),
    ],
)
def test_columns_that_cannot_be_written_are_refused(columns: Any, topic: str | None, words: str) -> None:
    with pytest.raises(OptionError) as refused:
        sink_columns(columns, topic)
    assert words in str(refused.value)


def test_one_sinks_tasks_are_not_anothers() -> None:
    import re

    mine = task_id("a.b", "0123456789abcdef")
    assert "0123456789abcdef" == token_of(mine)
    assert re.fullmatch(task_ids_pattern("a.b"), mine)
    for other in ("a", "a.b-c", "axb", "a.b.part"):
        assert not re.fullmatch(task_ids_pattern("a.b"), task_id(other, "0123456789abcdef"))
    assert not re.fullmatch(task_ids_pattern("a.b"), group_id("a.b", 0))
    assert ["ottla-spark-a.b", "ottla-spark-a.b.part-1"] == [group_id("a.b", number) for number in range(2)]
