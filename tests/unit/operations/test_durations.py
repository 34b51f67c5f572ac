"""Spans of time as they are written and shown."""

import pytest

from ottla.operations.durations import BadDurationError, human_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0s", 0),
        ("250ms", 250),
        ("90s", 90_000),
        ("2w", 1_209_600_000),
        ("PT1H30M", 5_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("P2W", 1_209_600_000),
        ("pt0.001s", 1),
    ],
)
def test_spans_are_read(text: str, expected: int) -> None:
    assert expected == parse_duration(text)


@pytest.mark.parametrize("text", ["", "5", "-5s", "1.5h", "P", "PT", "P1DT", "1H30M", "soon", "9" * 40 + "s"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(BadDurationError, match="is not a valid duration"):
        parse_duration(text)


def test_a_number_alone_counts_where_a_unit_is_understood() -> None:
    assert (15 * 60_000, 15) == (parse_duration("15", bare_unit="m"), parse_duration("15", bare_unit="ms"))


@pytest.mark.parametrize(
    ("span_ms", "expected"), [(0, "0 s"), (2310, "2.31 s"), (60_000, "1 m"), (5_400_000, "1.5 h"), (10**9, "11.6 d")]
)
def test_spans_are_said_in_their_largest_unit(span_ms: int, expected: str) -> None:
    assert expected == human_duration(span_ms)
