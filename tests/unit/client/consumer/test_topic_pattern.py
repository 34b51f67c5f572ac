"""Patterns over topic names: RE2's syntax, linear time, and errors that say what to do instead."""

import pytest

from ottla.client.consumer.topic_pattern import TopicPattern
from ottla.model.errors import MisuseError


@pytest.mark.parametrize(
    ("pattern", "name", "at_start", "whole"),
    [
        ("orders", "orders-eu", True, False),
        ("orders.*", "orders-eu", True, True),
        ("orders$", "orders-eu", False, False),
        (r"orders-\d+|bills", "orders-17", True, True),
        ("(?i)ORDERS", "orders", True, True),
        ("ders", "orders", False, False),
        ("über.*", "über-uns", True, True),
    ],
)
def test_a_pattern_is_for_the_beginning_of_a_name_or_for_all_of_it(
    pattern: str, name: str, at_start: bool, whole: bool
) -> None:
    found = TopicPattern(pattern)
    assert (at_start, whole) == (found.matches_start(name), found.matches_whole(name))


def test_a_pattern_that_backtracks_for_minutes_elsewhere_is_matched_at_once() -> None:
    names = ["a" * length + "_" for length in range(200, 249)]
    assert not any(TopicPattern("(a+)+$").matches_start(name) for name in names)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [("(", "missing"), ("(?!internal).*", r"invalid perl operator: \(\?!"), (r"(a)\1", "invalid escape sequence")],
)
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(MisuseError, match=f"is not a valid RE2 regular expression: {reason}.*; RE2 has no look-around"):
        TopicPattern(pattern)


def test_a_pattern_that_needs_too_much_memory_is_refused() -> None:
    with pytest.raises(MisuseError, match="is not a valid RE2 regular expression: pattern too large"):
        TopicPattern(r"\pL{900}")
