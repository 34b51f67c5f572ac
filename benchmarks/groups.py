"""Groups of Ottla beside groups of Apache Kafka 4.3: share groups, offset commits, rebalances, and a thousand groups.

    python -m benchmarks.groups [--quick] [--only WORDS]... [--rounds N] [--json | --markdown]

Needs what `benchmarks/vs_kafka.py` needs, whose docstring describes how the comparison is kept fair: both brokers are
alive and take turns under the same program, the load generator in C, and a ratio is taken within a round. The full run
takes half an hour; `--quick` is one round with small volumes. Three short rounds take about seven minutes:

    python -m benchmarks.groups --quick --rounds 3

The cases of commits, rebalances and idle groups are those of `vs_kafka --only coordination`.
"""

import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.kafka_race.arena import Case
from benchmarks.kafka_race.group_cases import group_cases
from benchmarks.kafka_race.share_cases import share_cases
from benchmarks.vs_kafka import chosen, options_of, run_race

SHARED_CASES: Final = ("coordination commit C 16 x 1", "coordination rebalance", "coordination idle")
"""How the names of the cases begin that are taken from `group_cases.py`."""


def cases_of_groups() -> list[Case]:
    """In the order in which a round runs them."""
    return [*share_cases(), *(case for case in group_cases() if case.name.startswith(SHARED_CASES))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = options_of(arguments, program="groups", description="Groups of Ottla beside those of Apache Kafka.")
    # The short run has every case, with small volumes.
    return run_race(options, chosen(cases_of_groups(), only=options.only, quick=False), starts=False)


if __name__ == "__main__":
    sys.exit(main())
