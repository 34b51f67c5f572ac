"""Numbers and times for people."""

import pytest

from ottla.console.web import human


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (7, "7"), (0.5, "0.50"), (999, "999"), (1234, "1.23k"), (45_600_000, "45.6M"), (999_600, "1.00M")],
)
def test_short_numbers(value: float, words: str) -> None:
    assert words == human.short_number(value)


@pytest.mark.parametrize(
    ("value", "words"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (3 << 30, "3.00 GiB"), (1 << 60, "1024 PiB")]
)
def test_short_bytes(value: int, words: str) -> None:
    assert words == human.short_bytes(value)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 ms"),
        (0.12, "120 ms"),
        (1, "1 s"),
        (160, "2 min 40 s"),
        (3600, "1 h"),
        (90_061, "1 d 1 h"),
        (86_400 * 400, "400 d"),
        (-5, "-5 s"),
    ],
)
def test_spans(seconds: float, words: str) -> None:
    assert words == human.span(seconds)


def test_the_exact_value_is_on_hover_and_times_name_their_zone() -> None:
    assert '<span title="1,234,567">1.23M</span>' == str(human.count(1_234_567))
    assert "12,345" == str(human.count(12_345))
    assert '<span title="1,536 bytes">1.50 KiB</span>' == str(human.bytes_(1536))
    assert '<span title="12.50 records/s">12.5</span>' == str(human.rate(12.5, "records"))
    assert "2023-11-14 22:13:20 UTC</time>" in str(human.when(1_700_000_000_000))
    assert "5 s ago</time>" in str(human.ago(lambda: 1_700_000_005_000)(1_700_000_000_000))
    for unknown in (human.count(None), human.bytes_(None), human.bytes_(-1), human.rate(None), human.when(-1)):
        assert "not known" in str(unknown)
    assert "9223372036854775807 ms since 1970" == human.time_text(2**63 - 1)
