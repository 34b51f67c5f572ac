"""The memory of several processes, as the kernel shares it out: a page that three of them have counts a third for each.

Resident memory would count what the brokers of one machine share, such as the interpreter's code, once for each.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.kafka_race.process_usage import PROC, SAMPLE_INTERVAL_S, process_tree


def parse_pss(rollup: str) -> int:
    """The proportional bytes in the text of `/proc/<pid>/smaps_rollup`."""
    for line in rollup.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"no line Pss: in {rollup[:200]!r}")


def proportional_bytes(roots: Sequence[int]) -> int:
    """Of all the processes and their descendants together."""
    texts = [_rollup(PROC / str(pid)) for root in roots for pid in process_tree(root)]
    return sum(parse_pss(text) for text in texts if text)


class ProportionalPeak:
    """Watches processes while work goes on; afterwards `peak_bytes` is the most that was seen."""

    def __init__(self, roots: Sequence[int]) -> None:
        self.peak_bytes = 0
        self._roots = tuple(roots)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, proportional_bytes(self._roots))
            if self._done.wait(SAMPLE_INTERVAL_S):
                return


def _rollup(process: Path) -> str:
    """Nothing if the process ended in the meantime."""
    try:
        return (process / "smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
