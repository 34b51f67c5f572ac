"""The memory of several processes, as the kernel shares it out: a page that three of them have counts a third for each.

Resident memory would count what the brokers of one machine share, such as the interpreter's code, once for each.
"""

from collections.abc import Sequence

from benchmarks.kafka_race.process_usage import MemoryPeak, process_tree, rollups


def parse_pss(rollup: str) -> int:
    """The proportional bytes in the text of `/proc/<pid>/smaps_rollup`."""
    for line in rollup.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"no line Pss: in {rollup[:200]!r}")


def proportional_bytes(roots: Sequence[int]) -> int:
    """Of all the processes and their descendants together."""
    return sum(parse_pss(text) for root in roots for text in rollups(process_tree(root)) if text)


def proportional_peak(roots: Sequence[int]) -> MemoryPeak:
    """Watches the same while work goes on."""
    return MemoryPeak(lambda: proportional_bytes(roots))
