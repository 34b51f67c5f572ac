"""The timing wheel against a sorted list: adds, cancels and jumps of any length, and never a deadline missed."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.replication.timing_wheel import SLOTS, Deadline, TimingWheel
from tests.effort import effort

SPANS = st.one_of(
    st.integers(-10, 3),
    st.integers(0, 2 * SLOTS),
    st.sampled_from([SLOTS - 1, SLOTS, SLOTS + 1, SLOTS**2 - 1, SLOTS**2, SLOTS**2 + 1, SLOTS**3]),
    st.integers(0, 10**7),
    st.integers(0, 2**31),
)


class WheelMachine(RuleBasedStateMachine):
    """Timers carry numbers; the model knows each number's deadline."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000
        self.wheel = TimingWheel(self.now)
        self.timers: dict[int, Deadline] = {}
        self.model: dict[int, int] = {}
        self.fired: list[int] = []
        self.count = 0

    @rule(span=SPANS)
    def add(self, span: int) -> None:
        number = self.count
        self.count += 1
        self.timers[number] = self.wheel.add(self.now + span, lambda: self.fired.append(number))
        self.model[number] = self.now + span

    @rule(pick=st.integers(0, 10**6))
    def cancel(self, pick: int) -> None:
        """Any that was ever made: also those that fired, and those cancelled before."""
        if self.timers:
            number = pick % self.count
            self.timers[number].cancel()
            self.model.pop(number, None)

    @rule(span=SPANS)
    def advance(self, span: int) -> None:
        """Also backwards, which must change nothing."""
        target = self.now + span
        moved = target > self.now
        self.now = max(self.now, target)
        due = sorted((deadline, number) for number, deadline in self.model.items() if moved and deadline <= self.now)
        self.run_due(target, due)

    @rule()
    def advance_to_next(self) -> None:
        """As the shell does: only when it is told to, and then everything that is due has come."""
        due_ms = self.wheel.next_due_ms()
        if due_ms is not None:
            self.now = max(self.now, due_ms)
            due = sorted((deadline, number) for number, deadline in self.model.items() if deadline <= self.now)
            self.run_due(self.now, due)

    def run_due(self, now: int, due: list[tuple[int, int]]) -> None:
        self.fired.clear()
        for timer in self.wheel.advance(now):
            timer.callback()
        assert [deadline for deadline, _ in due] == [self.model[number] for number in self.fired]
        assert {number for _, number in due} == set(self.fired)
        for number in self.fired:
            del self.model[number]
            assert not self.timers[number].is_armed

    @invariant()
    def nobody_is_called_too_late(self) -> None:
        due_ms = self.wheel.next_due_ms()
        if self.model:
            assert due_ms is not None
            assert self.now < due_ms <= max(min(self.model.values()), self.now + 1)
        else:
            assert due_ms is None

    @invariant()
    def the_armed_are_those_of_the_model(self) -> None:
        assert len(self.model) == len(self.wheel)
        assert set(self.model) == {number for number, timer in self.timers.items() if timer.is_armed}


WheelMachine.TestCase.settings = effort(examples=150, steps=40)
TestTimingWheel = WheelMachine.TestCase


def test_far_futures_need_few_buckets() -> None:
    wheel = TimingWheel(0)
    for deadline in range(1, 2_000_000, 7):
        wheel.add(deadline, lambda: None)
    assert len(wheel._buckets) < 4 * SLOTS
    seen = 0
    while (due_ms := wheel.next_due_ms()) is not None:
        seen += len(wheel.advance(due_ms))
        if seen > 20_000:
            break
    assert seen > 20_000


def test_one_that_is_cancelled_by_another_of_the_same_moment_does_not_fire() -> None:
    wheel = TimingWheel(0)
    fired: list[str] = []
    second: list[Deadline] = []

    def first() -> None:
        fired.append("first")
        second[0].cancel()

    wheel.add(5, first)
    second.append(wheel.add(5, lambda: fired.append("second")))
    for timer in wheel.advance(10):
        timer.callback()
    assert ["first"] == fired
