"""How long a test waits for a fresh broker: in its own process, as a process, against starting Python and nothing else.

The goal is a median below `GOAL_MS` in process; the medians in milliseconds are printed beside the table.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import Result, interleaved, report
from ottla.testing import BrokerHandle, InProcessBroker, ProcessBroker

GOAL_MS = 150
ROUNDS = 21


class _Starts:
    """Starts brokers of one kind; the one before is ended, and its folder removed, outside the timing."""

    def __init__(self, kind: type[BrokerHandle]) -> None:
        self._kind = kind
        self._broker: BrokerHandle | None = None
        self.times_ms: list[float] = []

    def end(self) -> None:
        if self._broker is not None:
            self._broker.close()
            shutil.rmtree(self._broker.folder)
            self._broker = None

    def start(self) -> float:
        began = time.perf_counter()
        self._broker = self._kind(Path(tempfile.mkdtemp(prefix="ottla-bench-")))
        self._broker.start()
        self.times_ms.append((time.perf_counter() - began) * 1000)
        return 1


def run(quick: bool = False) -> list[Result]:
    """One comparison."""
    within, apart = _Starts(InProcessBroker), _Starts(ProcessBroker)
    try:
        result = interleaved(
            {
                "in process": within.start,
                "as a process": apart.start,
                "bare Python": lambda: float(subprocess.run([sys.executable, "-c", ""], check=True).returncode == 0),
            },
            title="start of a test's broker",
            unit="starts",
            baseline="bare Python",
            before={"in process": within.end, "as a process": apart.end},
            rounds=ROUNDS,
            quick=quick,
        )
    finally:
        within.end()
        apart.end()
    for name, starts in (("in process", within), ("as a process", apart)):
        # The first loads the broker's code, once for all tests of a run.
        median = statistics.median(starts.times_ms[1:])
        print(f"{name}: median {median:.0f} ms, first {starts.times_ms[0]:.0f} ms", file=sys.stderr, flush=True)
    is_met = statistics.median(within.times_ms[1:]) < GOAL_MS
    print(f"goal: below {GOAL_MS} ms in process, {'met' if is_met else 'missed'}", file=sys.stderr, flush=True)
    return [result]


if __name__ == "__main__":
    report(run())
