"""The token bucket of controller mutations."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.security.token_bucket import TokenBucket
from tests.effort import effort


def test_is_full_at_first_and_may_be_overdrawn() -> None:
    bucket = TokenBucket()
    assert 22 == bucket.tokens(2, 1_000_000)
    bucket.take(30, 2, 1_000_000)
    assert 4000 == bucket.throttle_ms(2, 1_000_000)
    assert 0 == bucket.throttle_ms(2, 1_004_000)


def test_tokens_that_are_given_back_do_not_overfill() -> None:
    bucket = TokenBucket()
    bucket.take(1, 1, 0)
    bucket.take(-5, 1, 0)
    assert 11 == bucket.tokens(1, 0)


def test_a_debt_is_not_idle() -> None:
    bucket = TokenBucket()
    bucket.take(100, 1, 0)
    assert not bucket.is_idle(50_000)
    assert 0 == bucket.throttle_ms(1, 89_000)
    assert bucket.is_idle(100_000)


@effort(100, 1)
@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 50)), max_size=40), st.integers(1, 10))
def test_counts_as_a_naive_bucket(uses: list[tuple[int, int]], rate: int) -> None:
    bucket, now, tokens = TokenBucket(), 0, rate * 11.0
    for later, count in uses:
        now += later
        tokens = min(rate * 11, tokens + rate * later / 1000) - count
        bucket.take(count, rate, now)
        assert abs(tokens - bucket.tokens(rate, now)) < 1e-6
