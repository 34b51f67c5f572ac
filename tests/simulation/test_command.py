"""The command that runs seeds until the time is up."""

import subprocess
import sys

from ottla.sim.mutants.catching import CAUGHT_BY
from ottla.sim.mutants.planted import MUTANTS

MUTANT = "acks before replication"


def test_a_seed_with_violations_is_printed_with_the_command_that_repeats_it() -> None:
    seed, scenario = CAUGHT_BY[MUTANT], MUTANTS[MUTANT].scenario
    options = ["--scenario", scenario, "--mutant", MUTANT]
    ended = subprocess.run(
        [sys.executable, "-m", "ottla.sim", "--seeds", f"{seed}..", "--seconds", "0.001", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    *violations, command, end = ended.stdout.splitlines()
    assert [] != violations
    assert all(each.startswith(f"seed {seed}: ") for each in violations)
    repeat = f"python -m ottla.sim --seed {seed} --scenario {scenario} --mutant '{MUTANT}' --trace"
    assert f"seed {seed}: repeat it with {repeat}" == command
    assert end.startswith(f"1 seeds ({seed}..{seed + 1}), ")
    assert end.endswith(f" VIOLATIONS with seeds {seed}")
    assert 1 == ended.returncode
