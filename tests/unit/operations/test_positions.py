"""Places in a topic as people write them."""

import pytest

from ottla.operations.positions import (
    AtOffset,
    AtTime,
    BadPositionError,
    BadTimeError,
    Beginning,
    End,
    FromEnd,
    Position,
    parse_future,
    parse_past,
    parse_position,
)

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Beginning()),
        ("end", End()),
        ("0", AtOffset(0)),
        ("123456789012", AtOffset(123456789012)),
        ("-10", FromEnd(10)),
        ("1h", AtTime(NOW - 3_600_000)),
        ("90s", AtTime(NOW - 90_000)),
        ("250ms", AtTime(NOW - 250)),
        ("2d", AtTime(NOW - 172_800_000)),
        ("2023-11-14T22:13:20Z", AtTime(NOW)),
        ("2023-11-15T00:13:20+02:00", AtTime(NOW)),
        ("2023-11-14T22:13:20.250Z", AtTime(NOW + 250)),
    ],
)
def test_positions_are_read(text: str, expected: Position) -> None:
    assert expected == parse_position(text, NOW)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "1y", "1.5", "--1", "2023-13-01", "9" * 30, "0001-01-01T00:00+14:00"]
)
def test_what_is_no_position_is_refused_with_examples(text: str) -> None:
    with pytest.raises(BadPositionError, match="is not a valid position; write beginning, end, an offset, -10"):
        parse_position(text, NOW)


def test_times_before_and_after_now() -> None:
    assert (NOW - 7_200_000, NOW + 7_200_000) == (parse_past("2h", NOW), parse_future("2h", NOW))
    assert 1_714_564_800_000 == parse_past("2024-05-01T12:00Z", NOW) == parse_future("2024-05-01T12:00Z", NOW)


@pytest.mark.parametrize("text", ["soon", "", "5", "earliest", "-3"])
def test_what_is_not_a_time(text: str) -> None:
    with pytest.raises(BadTimeError, match="is not a valid time"):
        parse_past(text, NOW)
