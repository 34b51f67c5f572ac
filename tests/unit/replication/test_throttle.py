"""The throttle of replication: no faster than its rate over any while, and open again in time."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.throttle import Throttle, is_named


@given(st.integers(1, 10_000), st.lists(st.tuples(st.floats(0, 3), st.integers(0, 20_000)), max_size=40))
def test_what_passes_keeps_to_the_rate(rate: int, asked: list[tuple[float, int]]) -> None:
    throttle = Throttle(rate, 0.0)
    now = 0.0
    passed = largest = 0
    for pause, size in asked:
        now += pause
        if throttle.seconds_until_open(now) == 0:
            throttle.record(size, now)
            passed += size
            largest = max(largest, size)
    # One second's worth may be saved up, and one answer may go beyond.
    assert passed <= rate * (now + 1) + largest + 1


def test_it_opens_when_it_says() -> None:
    throttle = Throttle(100, 0.0)
    throttle.record(300, 0.0)
    seconds = throttle.seconds_until_open(0.0)
    assert 2 < seconds < 2.1
    assert 0 < throttle.seconds_until_open(seconds - 0.1)
    assert 0 == throttle.seconds_until_open(seconds)


def test_a_rate_of_nothing_lets_nothing_pass() -> None:
    assert float("inf") == Throttle(0, 0.0).seconds_until_open(1000.0)


def test_names() -> None:
    assert is_named(["*"], 3, 1)
    assert is_named(["0:1", "3:1"], 3, 1)
    assert not is_named(["3:2", "1:3"], 3, 1)
    assert not is_named([], 3, 1)
