"""What a process and its children cost: CPU seconds and resident memory, read from `/proc`.

Covers Linux only, since it reads `/proc`. Children count from their birth: the living ones by themselves, the ended
ones through their parent, which the kernel credits when it waits for them.
"""

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

PROC: Final = Path("/proc")
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
SAMPLE_INTERVAL_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """One line of `/proc/<pid>/stat`: its parent and the CPU seconds it used."""

    parent: int
    own_cpu_s: float
    ended_children_cpu_s: float


def parse_stat(line: str, ticks_per_second: int = TICKS_PER_SECOND) -> ProcessStat:
    """The name of a process stands in brackets and may contain any character, so counting starts after the last one."""
    fields = line[line.rindex(")") + 2 :].split()
    user, system, children_user, children_system = map(int, fields[11:15])
    return ProcessStat(
        parent=int(fields[1]),
        own_cpu_s=(user + system) / ticks_per_second,
        ended_children_cpu_s=(children_user + children_system) / ticks_per_second,
    )


def parse_rss(rollup: str) -> int:
    """The resident bytes in the text of `/proc/<pid>/smaps_rollup`."""
    for line in rollup.splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"no line Rss: in {rollup[:200]!r}")


def process_tree(root: int) -> list[int]:
    """The process and every living descendant of it; empty if it has ended."""
    parents: dict[int, int] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (line := _read(entry / "stat")):
            parents[int(entry.name)] = parse_stat(line).parent
    found = [root] if root in parents else []
    for pid in found:
        found.extend(child for child, parent in parents.items() if parent == pid)
    return found


def cpu_seconds(root: int) -> float:
    """User and system time of the process tree since it began."""
    stats = [parse_stat(line) for pid in process_tree(root) if (line := _read(PROC / str(pid) / "stat"))]
    return sum(stat.own_cpu_s + stat.ended_children_cpu_s for stat in stats)


def resident_bytes(root: int) -> int:
    """Resident memory of the process tree. Pages that two of its processes share count twice."""
    return sum(parse_rss(text) for text in rollups(process_tree(root)) if text)


class MemoryPeak:
    """Looks at memory again and again while work goes on; afterwards `peak_bytes` is the most that was seen."""

    def __init__(self, look: Callable[[], int]) -> None:
        self.peak_bytes = 0
        self._look = look
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
            self.peak_bytes = max(self.peak_bytes, self._look())
            if self._done.wait(SAMPLE_INTERVAL_S):
                return


def resident_peak(root: int) -> MemoryPeak:
    """Watches the resident memory of a process tree."""
    # The list of processes is taken once: walking all of /proc each time would disturb what is measured.
    tree = process_tree(root)
    return MemoryPeak(lambda: sum(parse_rss(text) for text in rollups(tree) if text))


def rollups(pids: Iterable[int]) -> list[str]:
    """The texts of `/proc/<pid>/smaps_rollup`, empty for a process that has ended."""
    return [_read(PROC / str(pid) / "smaps_rollup") for pid in pids]


def _read(path: Path) -> str:
    """Nothing if the process ended in the meantime."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
