"""Interpreter, kernel, cores, memory and CPU features, and the limits of this process."""

import os
import platform
import re
import resource
from pathlib import Path
from typing import Final

from ottla.cli.doctor.facts import Limits, Machine

_CGROUP: Final = Path("/sys/fs/cgroup")


def probe_machine() -> Machine:
    """The machine as this process may use it."""
    major, minor, micro = map(int, re.findall(r"\d+", platform.python_version())[:3])
    memory = _memory("MemTotal")
    limit = _first_number(_CGROUP / "memory.max")
    return Machine(
        python=(major, minor, micro),
        implementation=platform.python_implementation(),
        system=platform.system(),
        kernel=platform.release(),
        architecture=platform.machine(),
        cores=_cores(),
        memory_bytes=min(filter(None, (memory, limit)), default=None),
        memory_available_bytes=_memory("MemAvailable"),
        cpu_features=_cpu_features(),
    )


def probe_limits() -> Limits:
    """Limits that a broker meets."""
    return Limits(
        open_files=_hard_limit(resource.RLIMIT_NOFILE),
        file_bytes=_hard_limit(resource.RLIMIT_FSIZE),
        address_space_bytes=_hard_limit(resource.RLIMIT_AS),
        mappings=_first_number(Path("/proc/sys/vm/max_map_count")),
    )


def _hard_limit(kind: int) -> int | None:
    hard = resource.getrlimit(kind)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def _cores() -> float:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = re.match(r"(\d+) (\d+)", text_of(_CGROUP / "cpu.max") or "")
    return min(cores, int(quota[1]) / int(quota[2])) if quota else cores


def _memory(name: str) -> int | None:
    found = re.search(rf"^{name}:\s+(\d+) kB", text_of(Path("/proc/meminfo")) or "", re.MULTILINE)
    if found:
        return int(found[1]) * 1024
    if name == "MemTotal" and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _cpu_features() -> frozenset[str] | None:
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text_of(Path("/proc/cpuinfo")) or "", re.MULTILINE)
    return frozenset(found[1].split()) if found else None


def _first_number(path: Path) -> int | None:
    found = re.match(r"\d+", text_of(path) or "")
    return int(found[0]) if found else None


def text_of(path: Path) -> str | None:
    """A file of the kernel; None if there is none, or it may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
