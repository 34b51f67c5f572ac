"""How many random examples the tests try.

`make test` tries a fifth of them (`OTTLA_HYPOTHESIS=quick`), `make test-slow` and a test that is run by its name all of
them; both repeat the same examples in every run. `OTTLA_HYPOTHESIS=long` tries many times as many, new ones each time;
what it finds is printed with a blob to repeat it.
"""

import os
from typing import Final, Literal, cast, get_args

from hypothesis import HealthCheck, Phase, settings

Level = Literal["quick", "full", "long"]
LEVEL: Final = cast(Level, os.environ.get("OTTLA_HYPOTHESIS", "full"))
if LEVEL not in get_args(Level):
    raise ValueError(f"OTTLA_HYPOTHESIS={LEVEL}: it is one of {', '.join(get_args(Level))}")
IS_LONG: Final = LEVEL == "long"
_LONGER: Final = 40
_QUICKER: Final = 5
_STEPS: Final = 50
"""Hypothesis's own default."""


def effort(examples: int, steps: int = _STEPS) -> settings:
    """Settings of a test that tries so many examples; each run of a state machine has so many steps."""
    match LEVEL:
        case "quick":
            examples = max(examples // _QUICKER, min(examples, _QUICKER))
        case "long":
            examples, steps = examples * _LONGER, steps * 2
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=not IS_LONG,
        database=None,
        # A shared machine may stall for a second in the middle of an example.
        deadline=None,
        print_blob=True,
        # Which lines only failing examples run is found out by tracing hundreds of them: a failure would take minutes.
        phases=[phase for phase in Phase if phase is not Phase.explain],
        suppress_health_check=list(HealthCheck),
    )
