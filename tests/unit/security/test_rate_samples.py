"""Rates over sliding samples, against a transliteration of Kafka's `SampledStat` and `Rate`."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from ottla.security.rate_samples import RateSamples
from tests.effort import effort

SAMPLES, SAMPLE_MS = 11, 1000


@dataclass
class Slot:
    start: int
    last: int
    value: float = 0.0


@dataclass
class KafkaRate:
    """A ring of twelve samples, reset when they are obsolete."""

    slots: list[Slot] = field(default_factory=list)
    current: int = 0

    def record(self, value: float, now: int) -> None:
        if not self.slots:
            self.slots.append(Slot(now, now))
        if now - self.slots[self.current].start >= SAMPLE_MS:
            self.current = (self.current + 1) % (SAMPLES + 1)
            if self.current >= len(self.slots):
                self.slots.append(Slot(now, now))
            else:
                self.slots[self.current] = Slot(now, now)
        slot = self.slots[self.current]
        slot.value += value
        slot.last = now

    def measure(self, now: int) -> tuple[float, int]:
        for slot in self.slots:
            if now - slot.last >= SAMPLES * SAMPLE_MS:
                slot.start, slot.last, slot.value = now, now, 0.0
        total = sum(slot.value for slot in self.slots)
        elapsed = now - min((slot.start for slot in self.slots), default=now)
        if elapsed // SAMPLE_MS < SAMPLES - 1:
            elapsed += (SAMPLES - 1 - elapsed // SAMPLE_MS) * SAMPLE_MS
        return total, max(elapsed, 1)


@effort(100, 1)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 13_000) | st.sampled_from([0, 1, 999, 1000, 1001, 10_999, 11_000, 11_001]),
            st.integers(0, 10**6),
        ),
        max_size=60,
    ),
    st.integers(1, 10**6),
)
def test_measures_what_kafka_measures(uses: list[tuple[int, int]], bound: int) -> None:
    rate, kafka, now = RateSamples(), KafkaRate(), 5_000_000
    for later, amount in uses:
        now += later
        rate.add(amount, now)
        kafka.record(amount, now)
        total, window = kafka.measure(now)
        assert (total, window) == (rate.total(now), rate.window_ms(now))
        value = total / (window / 1000)
        throttle = rate.throttle_ms(bound, now)
        if value > bound:
            assert abs(throttle - (value - bound) / bound * window) <= 1
        else:
            assert throttle <= 1


def test_ten_seconds_worth_may_be_used_at_once() -> None:
    rate = RateSamples()
    rate.add(10_000, 0)
    assert 0 == rate.throttle_ms(1000, 0)
    rate.add(1000, 0)
    assert 1000 == rate.throttle_ms(1000, 0)


def test_waiting_for_the_throttle_time_is_enough() -> None:
    rate = RateSamples()
    rate.add(15_000, 0)
    throttle_ms = rate.throttle_ms(1000, 0)
    assert 5000 == throttle_ms
    assert 0 == rate.throttle_ms(1000, 15_000)


def test_is_idle_when_nothing_counts_any_more() -> None:
    rate = RateSamples()
    assert rate.is_idle(0)
    rate.add(1, 0)
    assert not rate.is_idle(10_999)
    assert rate.is_idle(11_000)
    assert 0 == rate.total(11_000)


def test_a_use_can_be_taken_back() -> None:
    rate = RateSamples()
    rate.add(5, 0)
    rate.add(-5, 0)
    assert 0 == rate.total(0)
