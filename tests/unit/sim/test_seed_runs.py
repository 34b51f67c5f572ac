"""Which seeds are run: those of a commit, until the time is up."""

from itertools import count

import pytest

from ottla.sim.__main__ import main
from ottla.sim.seed_runs import take_within
from tests.simulation.first_seed import SEEDS, first_seed


@pytest.mark.parametrize(
    ("seconds", "begun"),
    [(10, [7, 8, 9]), (12, [7, 8, 9]), (12.1, [7, 8, 9, 10]), (0.1, [7]), (None, [7, 8, 9, 10, 11])],
)
def test_seeds_are_begun_until_the_time_is_up(seconds: float | None, begun: list[int]) -> None:
    clock = count(100, 4)  # four seconds for each seed
    assert begun == list(take_within(seconds, range(7, 12), lambda: next(clock)))


def test_seeds_without_an_end_are_taken_one_by_one() -> None:
    seeds = count(7)
    assert 7 == next(take_within(60, seeds, lambda: 0.0))
    assert 8 == next(seeds)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--seeds 7..", "--seeds A.. needs --seconds, or an end: A..B"),
        ("--seed 7 --seconds 60", "--seconds needs --seeds"),
        ("--seeds 7.. --seconds 0", "argument --seconds: '0' is not more than 0"),
        ("--seeds 7", "argument --seeds: '7' is not A..B with A below B, as in 0..100, nor A.."),
        ("--seeds 7..7", "argument --seeds: '7..7' is not A..B with A below B, as in 0..100, nor A.."),
        ("--seeds ..7", "argument --seeds: '..7' is not A..B with A below B, as in 0..100, nor A.."),
    ],
)
def test_arguments_that_do_not_say_how_long(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments.split())
    assert (2, f"python -m ottla.sim: error: {message}") == (
        exit_.value.code,
        capsys.readouterr().err.splitlines()[-1],
    )


def test_commits_have_seeds_of_their_own() -> None:
    commits = ["0" * 40, "1".zfill(40), "f4240".zfill(40), "1556a06d98e7a6fb9ebd4d6b0a3ed6c5a1a3c8c7", "f" * 40]
    seeds = [first_seed(each) for each in commits]
    assert [0, 1_000, 0, 7_943_000, 542_975_000] == seeds
    assert all(seed % SEEDS == 0 for seed in seeds)
