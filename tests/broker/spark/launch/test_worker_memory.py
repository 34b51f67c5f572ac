"""What a process of Spark keeps is taken out of the search for garbage, but not for ever more."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import gc
from ottla.spark.launch.worker_memory import begin_use

class Kept:
    pass

kept, counts = [], []
for use in range(1, 200):
    begin_use()
    counts.append(gc.get_freeze_count())
    # Whatever a task leaves behind, in a circle, and replaces in the next one.
    kept = [Kept(), Kept()]
    kept[0].other, kept[1].other = kept[1], kept[0]
print(counts[0], *sorted({use for use in range(2, 200) if counts[use - 1] > counts[use - 2]}))
"""


def test_objects_are_spared_from_the_second_use_on_and_then_ever_more_seldom() -> None:
    source = Path(__file__).parents[4] / "src"
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "0 2 4 8 16 32 64" == told.stdout.strip()


def test_a_fork_begins_anew() -> None:
    program = (
        "import gc, os\n"
        "from ottla.spark.launch.worker_memory import begin_use\n"
        "begin_use()\n"
        "if os.fork() == 0:\n"
        "    begin_use()\n"
        "    print(gc.get_freeze_count(), flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "begin_use()\n"
        "print(gc.get_freeze_count() > 0)\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ["0", "True"] == told.stdout.split()
