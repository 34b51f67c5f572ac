"""The headers of dead letters: both styles, what is kept and replaced, and reading what others wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model import queue_names
from ottla.model.dead_letters import (
    DeadLetter,
    DeadLetterHeaders,
    Origin,
    dead_letter_headers,
    error_reason,
    error_type,
    first_delivery,
    parse_origin,
    read_dead_letter,
    redelivered_topic,
    story_headers,
)
from ottla.model.ids import TopicPartition

WHOLE = DeadLetter(
    origin=Origin(topic="orders", partition=3, offset=17),
    reason="no stock",
    exception="shop.NoStock",
    group="billing",
    attempts=6,
    timestamp_ms=1_700_000_000_000,
    stack="line 1",
)


def test_the_names_are_those_of_kip_1191_and_values_are_text() -> None:
    assert [
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"17"),
        ("__dlq.errors.group", b"billing"),
        ("__dlq.errors.delivery.count", b"6"),
        ("__dlq.errors.message", b"no stock"),
        ("__dlq.errors.exception", b"shop.NoStock"),
        ("__dlq.errors.timestamp", b"1700000000000"),
        ("__dlq.errors.stacktrace", b"line 1"),
    ] == story_headers(WHOLE)


def test_springs_names_have_big_endian_numbers() -> None:
    assert [
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-partition", b"\0\0\0\3"),
        ("kafka_dlt-original-offset", b"\0\0\0\0\0\0\0\x11"),
        ("kafka_dlt-original-consumer-group", b"billing"),
        ("retry_topic-attempts", b"\0\0\0\6"),
        ("kafka_dlt-exception-message", b"no stock"),
        ("kafka_dlt-exception-fqcn", b"shop.NoStock"),
        ("kafka_dlt-original-timestamp", (1_700_000_000_000).to_bytes(8, "big")),
        ("kafka_dlt-exception-stacktrace", b"line 1"),
    ] == story_headers(WHOLE, DeadLetterHeaders.SPRING)


def test_what_is_not_known_is_left_out() -> None:
    letter = DeadLetter(origin=Origin(topic="t", partition=0), reason="")
    names = [name for name, _ in story_headers(letter)]
    assert ["__dlq.errors.topic", "__dlq.errors.partition", "__dlq.errors.message"] == names


def test_own_headers_stay_and_those_of_earlier_deliveries_and_deaths_go() -> None:
    before = [
        ("trace", b"1"),
        ("trace", None),
        (queue_names.RETRY_ATTEMPT, b"3"),
        (queue_names.RETRY_TOKEN, b"x"),
        (queue_names.RETRY_ORIGIN, b"orders/3/17"),
        (queue_names.DUE_MS, b"1"),
        ("__dlq.errors.message", b"an older story"),
        ("kafka_dlt-original-topic", b"an older story"),
        (queue_names.REDRIVE_COUNT, b"1"),
    ]
    kept = [("trace", b"1"), ("trace", None), (queue_names.REDRIVE_COUNT, b"1")]
    assert [*kept, *story_headers(WHOLE)] == dead_letter_headers(before, WHOLE)


@given(
    st.builds(
        DeadLetter,
        origin=st.builds(
            Origin,
            topic=st.text("abc.-_", min_size=1),
            partition=st.integers(0, 2**31 - 1),
            offset=st.none() | st.integers(0, 2**63 - 1),
        ),
        reason=st.text(max_size=100),
        exception=st.none() | st.text(max_size=20),
        group=st.none() | st.text(max_size=20),
        attempts=st.none() | st.integers(0, 2**31 - 1),
        timestamp_ms=st.none() | st.integers(0, 2**62),
        stack=st.none() | st.text(max_size=100),
    ),
    st.sampled_from(DeadLetterHeaders),
)
def test_a_story_is_read_as_it_was_written(letter: DeadLetter, style: DeadLetterHeaders) -> None:
    assert letter == read_dead_letter([("other", b"\xff"), *story_headers(letter, style)])


@given(st.lists(st.tuples(st.sampled_from([name for name, _ in story_headers(WHOLE)]), st.none() | st.binary())))
def test_any_bytes_are_read_without_an_error(headers: list[tuple[str, bytes | None]]) -> None:
    letter = read_dead_letter(headers)
    assert letter is None or (letter.origin.topic != "" and letter.origin.partition >= 0)


def test_a_long_reason_is_cut_and_an_error_without_words_has_its_type() -> None:
    letter = DeadLetter(origin=WHOLE.origin, reason="x" * 5000)
    assert b"x" * 2000 == dict(story_headers(letter))["__dlq.errors.message"]
    assert ("KeyError", "builtins.KeyError") == (error_reason(KeyError()), error_type(KeyError()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"orders/3/17", Origin(topic="orders", partition=3, offset=17)),
        (b"orders/3/", Origin(topic="orders", partition=3)),
        (b"orders/3", None),
        (b"orders/-1/3", None),
        (b"orders/3/-1", None),
        (b"/3/4", None),
        (b"a/b/3/4", None),
        (b"orders/3/" + b"9" * 5000, None),
        (b"\xff/3/4", None),
        (None, None),
    ],
)
def test_origins(text: bytes | None, expected: Origin | None) -> None:
    assert expected == parse_origin(text)
    assert expected is None or text == str(expected).encode()


def test_the_first_delivery_of_a_redelivered_record() -> None:
    redelivered = TopicPartition("orders.billing.redelivery", 3)
    told = [(queue_names.RETRY_ORIGIN, b"orders/3/17")]
    assert WHOLE.origin == first_delivery(TopicPartition("orders", 3), 17, told[:0], "billing")
    assert WHOLE.origin == first_delivery(redelivered, 0, told, "billing")
    assert Origin(topic="orders", partition=3) == first_delivery(redelivered, 0, [], "billing")
    assert Origin(topic=redelivered.topic, partition=3, offset=0) == first_delivery(redelivered, 0, told, "other")
    assert Origin(topic=redelivered.topic, partition=3, offset=0) == first_delivery(redelivered, 0, told, None)
    assert None is redelivered_topic(".billing.redelivery", "billing")
