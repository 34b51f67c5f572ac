"""The measuring itself, on a clock that the test moves: turns, medians, paired ratios, goals."""

import json
import sys
import types
from collections.abc import Callable

import pytest

import benchmarks.__main__ as command
from benchmarks.measure import Goal, Result, Rival, interleaved


class Stopwatch:
    """A clock that moves only when a rival works."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns: list[str] = []

    def rival(self, name: str, *seconds: float, units: float | None = None) -> Rival:
        """Takes those times in turn, the first in the warm-up, the last from then on."""
        left = list(seconds)

        def work() -> float | None:
            self.turns.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]
            return units

        return work

    def __call__(self) -> float:
        return self.now


def compare(watch: Stopwatch, rivals: dict[str, Rival], *, rounds: int = 3, goals: tuple[Goal, ...] = ()) -> Result:
    return interleaved(rivals, title="work", baseline="slow", rounds=rounds, goals=goals, clock=watch)


def test_rivals_take_turns_and_the_order_rotates() -> None:
    watch = Stopwatch()
    compare(watch, {"fast": watch.rival("fast", 1.0), "slow": watch.rival("slow", 2.0)})
    assert ["slow", "fast", "fast", "slow", "slow", "fast", "fast", "slow"] == watch.turns


def test_rate_is_units_per_second_and_the_warm_up_does_not_count() -> None:
    watch = Stopwatch()
    result = compare(watch, {"slow": watch.rival("slow", 100.0, 2.0, 4.0, 8.0, units=16)})
    row = result.rows[0]
    assert (4.0, 2.0, 8.0) == (row.rate, row.rate_min, row.rate_max)
    assert 3 == result.rounds


def test_no_units_count_as_one_call() -> None:
    watch = Stopwatch()
    assert 0.5 == compare(watch, {"slow": watch.rival("slow", 2.0)}).rows[0].rate


def test_ratios_are_taken_within_a_round() -> None:
    # The machine slows down fourfold in the middle for both: the ratio does not notice, the rates do.
    watch = Stopwatch()
    rivals = {"fast": watch.rival("fast", 1.0, 1.0, 4.0, 4.0), "slow": watch.rival("slow", 3.0, 3.0, 12.0, 12.0)}
    row = compare(watch, rivals).rows[0]
    assert (3.0, 3.0, 3.0) == (row.ratio, row.ratio_min, row.ratio_max)
    assert (0.25, 1.0) == (row.rate_min, row.rate_max)


def test_a_goal_judges_the_same_ratio_as_its_row() -> None:
    # Round by round 4, 1 and 4; the ratio of the median rates would be 2.
    watch = Stopwatch()
    rivals = {"fast": watch.rival("fast", 1.0, 1.0, 4.0, 2.0), "slow": watch.rival("slow", 1.0, 4.0, 4.0, 8.0)}
    result = compare(watch, rivals, goals=(Goal(rival="fast", at_least=4),))
    assert (4.0, 1.0, 4.0) == (result.rows[0].ratio, result.rows[0].ratio_min, result.rows[0].ratio_max)
    assert (4.0, True) == (result.verdicts[0].ratio, result.verdicts[0].met)


@pytest.mark.parametrize(("at_least", "met"), [(3.0, True), (3.01, False)])
def test_goals_are_met_or_missed(at_least: float, met: bool) -> None:
    watch = Stopwatch()
    rivals = {"fast": watch.rival("fast", 1.0), "slow": watch.rival("slow", 3.0)}
    result = compare(watch, rivals, goals=(Goal(rival="fast", at_least=at_least),))
    verdict = result.verdicts[0]
    assert ("fast", "slow", 3.0, met) == (verdict.rival, verdict.against, verdict.ratio, verdict.met)
    assert ("goal met" if met else "goal missed") in result.table()


def test_a_goal_may_name_whom_it_is_against() -> None:
    watch = Stopwatch()
    rivals = {name: watch.rival(name, seconds) for name, seconds in (("a", 1.0), ("b", 2.0), ("slow", 8.0))}
    result = compare(watch, rivals, goals=(Goal(rival="a", at_least=2, against="b"),))
    assert (2.0, True) == (result.verdicts[0].ratio, result.verdicts[0].met)


def test_what_happens_before_is_not_timed() -> None:
    watch = Stopwatch()

    def prepare() -> None:
        watch.now += 50.0
        watch.turns.append("prepare")

    result = interleaved(
        {"slow": watch.rival("slow", 2.0)},
        title="work",
        baseline="slow",
        before={"slow": prepare},
        rounds=1,
        clock=watch,
    )
    assert 0.5 == result.rows[0].rate
    assert ["prepare", "slow", "prepare", "slow"] == watch.turns


@pytest.mark.parametrize(("rounds", "expected"), [(7, 3), (2, 2)])
def test_quick_means_few_rounds(rounds: int, expected: int) -> None:
    watch = Stopwatch()
    rivals = {"slow": watch.rival("slow", 1.0)}
    result = interleaved(rivals, title="work", baseline="slow", rounds=rounds, quick=True, clock=watch)
    assert expected == result.rounds


def test_the_table_reads_well() -> None:
    watch = Stopwatch()
    rivals = {"fast": watch.rival("fast", 1.0, units=17_600_000), "slow": watch.rival("slow", 1.0, units=934_000)}
    assert [
        "work  (calls/s, median of 3 rounds, least..most)",
        "  fast    17.6 M    17.6 M .. 17.6 M    18.84 x  (18.84 .. 18.84)",
        "  slow     934 k     934 k .. 934 k     baseline",
    ] == compare(watch, rivals).table().splitlines()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rival: interleaved({"a": rival}, title="t", baseline="b"), "no such rival: b; there are a"),
        (
            lambda rival: interleaved({"a": rival}, title="t", baseline="a", goals=[Goal(rival="c", at_least=1)]),
            "no such rival: c; there are a",
        ),
        (lambda rival: interleaved({"a": rival}, title="t", baseline="a", rounds=0), "0 rounds measure nothing"),
    ],
)
def test_mistakes_are_told_before_anything_runs(call: Callable[[Rival], Result], message: str) -> None:
    ran = []

    def rival() -> None:
        ran.append(True)

    with pytest.raises(ValueError, match=message):
        call(rival)
    assert [] == ran


def test_a_rival_without_work_cannot_be_a_baseline() -> None:
    watch = Stopwatch()
    with pytest.raises(ValueError, match="did no work"):
        compare(watch, {"slow": watch.rival("slow", 1.0, units=0)})


# The command


@pytest.fixture
def two_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    def good(quick: bool) -> list[Result]:
        watch = Stopwatch()
        rivals = {"slow": watch.rival("slow", 1.0)}
        return [interleaved(rivals, title="good work", baseline="slow", quick=quick, clock=watch)]

    def bad(quick: bool) -> list[Result]:
        raise OSError("no disk")

    for name, run in (("good", good), ("bad", bad)):
        module = types.ModuleType(f"benchmarks.{name}")
        module.run = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(command, "available", lambda: ["bad", "good"])


@pytest.mark.usefixtures("two_benchmarks")
def test_one_failing_benchmark_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == command.main(["--quick"])
    printed = capsys.readouterr()
    assert printed.out.startswith("good work  (calls/s, median of 3 rounds")
    assert "no disk" in printed.err
    assert "could not run: bad" in printed.err


@pytest.mark.usefixtures("two_benchmarks")
def test_json_is_one_object_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == command.main(["good", "--json"])
    written = json.loads(capsys.readouterr().out)
    assert ["good"] == list(written)
    assert ("good work", 7) == (written["good"][0]["title"], written["good"][0]["rounds"])


@pytest.mark.usefixtures("two_benchmarks")
def test_an_unknown_name_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == command.main(["gone"])
    assert "no benchmark named gone; there are: bad, good\n" == capsys.readouterr().err


def test_the_folder_is_read() -> None:
    assert not {"measure", "__main__", "__init__"} & set(command.available())
