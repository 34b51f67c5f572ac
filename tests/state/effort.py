"""How hard the random tests of this folder try.

By default they repeat the same examples in every run and together take about a minute. `OTTLA_HYPOTHESIS=long` tries
many times as many, new ones each time; what it finds is printed with a blob to repeat it.
"""

import os
from typing import Final

from hypothesis import HealthCheck, settings

IS_LONG: Final = os.environ.get("OTTLA_HYPOTHESIS") == "long"
_LONGER: Final = 40


def effort(examples: int, steps: int) -> settings:
    """Settings for a machine that by default runs so many examples of so many steps."""
    return settings(
        max_examples=examples * (_LONGER if IS_LONG else 1),
        stateful_step_count=steps * (2 if IS_LONG else 1),
        derandomize=not IS_LONG,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
