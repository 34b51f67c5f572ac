"""Which letters a filter chooses."""

from typing import Any

import pytest

from ottla.model.dead_letters import DeadLetter, Origin
from ottla.model.ids import TopicPartition
from ottla.operations.dead_letters.letters import Letter, LetterFilter
from ottla.records.record import Record

STORY = DeadLetter(
    origin=Origin(topic="orders", partition=1, offset=2),
    reason="Too Many attempts",
    exception="shop.PaymentError",
    group="billing",
)
RECORD = Record(7, 1000, b"k\xff", b"v", (("trace", b"t"), ("shop", b"\xfe")))
LETTER = Letter(partition=TopicPartition("dlq.orders", 3), record=RECORD, story=STORY)
STRANGER = Letter(partition=TopicPartition("dlq.orders", 3), record=RECORD, story=None)


def test_a_letter_is_named_by_its_place() -> None:
    assert "3:7" == str(LETTER)


@pytest.mark.parametrize(
    "chosen",
    [
        {"since_ms": 1000},
        {"until_ms": 1001},
        {"reason": "too many"},
        {"reason": "paymenterror"},
        {"key": "k\udcff"},
        {"headers": [("trace", "t")]},
        {"headers": [("shop", "\udcfe"), ("trace", "t")]},
        {"topic": "orders"},
        {"group": "billing"},
        {"since_ms": 999, "until_ms": 1001, "key": "k\udcff", "topic": "orders", "group": "billing", "reason": "many"},
    ],
)
def test_letters_that_are_chosen(chosen: dict[str, Any]) -> None:
    assert LetterFilter(**chosen).matches(LETTER)
    assert not LetterFilter(**chosen).is_open


@pytest.mark.parametrize(
    "chosen",
    [
        {"since_ms": 1001},
        {"until_ms": 1000},
        {"reason": "too few"},
        {"key": "k"},
        {"headers": [("trace", "t"), ("trace", "u")]},
        {"headers": [("shop", "t")]},
        {"topic": "order"},
        {"group": "bill"},
        {"topic": "orders", "group": "shipping"},
    ],
)
def test_letters_that_are_not_chosen(chosen: dict[str, Any]) -> None:
    assert not LetterFilter(**chosen).matches(LETTER)


@pytest.mark.parametrize("chosen", [{"reason": ""}, {"topic": "orders"}, {"group": "billing"}])
def test_a_letter_without_a_story_has_no_reason_topic_or_group(chosen: dict[str, Any]) -> None:
    assert not LetterFilter(**chosen).matches(STRANGER)
    assert LetterFilter(key="k\udcff").matches(STRANGER)


def test_a_filter_that_says_nothing_chooses_all() -> None:
    assert [True, True, True] == [
        LetterFilter().is_open,
        LetterFilter().matches(LETTER),
        LetterFilter().matches(STRANGER),
    ]
