"""What every test shares: how Hypothesis runs.

A shared machine may stall for a second in the middle of an example, so no example has a time limit: a limit would fail
without anything being wrong. Under `CI` Hypothesis's own profile takes over, which also repeats the same examples.
"""

import os

from hypothesis import settings

settings.register_profile("house", deadline=None, print_blob=True)
if not os.environ.get("CI"):
    settings.load_profile("house")
