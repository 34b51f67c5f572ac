"""What `ottla doctor` says about machines that the tests do not run on: judgements from tables."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.doctor import judgement
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
from ottla.cli.doctor.probes.installation import read_requirements
from ottla.cli.doctor.report import document, lines, summary

GIB = 1 << 30
MACHINE = Machine(
    python=(3, 12, 1),
    implementation="CPython",
    system="Linux",
    kernel="6.1.0-18-amd64",
    architecture="x86_64",
    cores=4,
    memory_bytes=8 * GIB,
    memory_available_bytes=6 * GIB,
    cpu_features=frozenset({"sse4_2", "avx2"}),
)
LIMITS = Limits(open_files=1_048_576, file_bytes=None, address_space_bytes=None, mappings=262_144)
CLOCK = Clock(is_synchronized=True, error_max_us=1500, source="tsc", step_ms=0.1, observed_seconds=1.5)
DISK = Disk(
    path="/data",
    exists=True,
    probed="/data",
    failure=None,
    mode=0o700,
    lock_owner=None,
    free_bytes=80 * GIB,
    total_bytes=100 * GIB,
    free_inodes=1_000_000,
    file_system="ext4",
    mount_point="/data",
    mount_options=frozenset({"rw", "relatime"}),
    write_bytes_per_second=900e6,
    sync_ms=(0.5, 0.6, 4.0),
)
ADDRESS = Address(option="PLAINTEXT", host="127.0.0.1", port=9092, failure=None, is_in_use=False)
EXTRAS = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
GOOD = Package(name="kio", wanted=">=0.6.5", installed="0.7.0")
KAZOO = Package(name="kazoo", wanted=">=2.10", installed="2.10.0")
INSTALLATION = Installation(
    version="0.1.0",
    kernels_missing=(),
    required=(GOOD,),
    extras={"arrow": (Package(name="pyarrow", wanted=">=19", installed="20.0.0"),)},
)


def worst(findings: Iterable[Finding]) -> dict[str, tuple[Level, str]]:
    """The subjects that are not fine, each with its level and what was found; each says what to change."""
    found = [each for each in findings if each.level is not Level.OK]
    assert [] == [each for each in found if not each.change]
    return {each.subject: (each.level, each.found) for each in found}


def test_a_good_machine_has_no_complaints() -> None:
    findings = [
        *judgement.judge_machine(MACHINE),
        *judgement.judge_limits(LIMITS),
        *judgement.judge_clock(CLOCK),
        *judgement.judge_disk(DISK),
        *judgement.judge_addresses([ADDRESS], broker_runs=False),
        *judgement.judge_installation(INSTALLATION),
        *judgement.judge_java(Java(home="/java", major=21), has_spark=True),
        *judgement.judge_configuration(Configuration(file="b.toml", failure=None, keys=("node.id",))),
        *judgement.judge_cluster(ClusterAnswer(bootstrap="b:9092", failure=None, brokers=3, milliseconds=1.5)),
    ]
    assert {} == worst(findings)
    assert "no problems found" == summary(findings)
    assert [] == [each for each in findings if each.change is not None]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"python": (3, 10, 9)}, {"Python": (Level.PROBLEM, "CPython 3.10.9")}),
        ({"python": (3, 11, 0)}, {}),
        ({"python": (3, 14, 9)}, {}),
        ({"python": (3, 15, 0)}, {"Python": (Level.WARNING, "CPython 3.15.0")}),
        ({"implementation": "PyPy"}, {"Python": (Level.PROBLEM, "PyPy 3.12.1")}),
        ({"kernel": "4.4.0"}, {"system": (Level.WARNING, "Linux 4.4.0 (x86_64)")}),
        ({"kernel": "4.14.1"}, {}),
        (
            {"system": "Darwin", "kernel": "23.1.0", "architecture": "arm64", "cpu_features": None},
            {"system": (Level.WARNING, "Darwin 23.1.0 (arm64)")},
        ),
        ({"cores": 0.5}, {"cores": (Level.WARNING, "0.5")}),
        (
            {"memory_bytes": 256 << 20, "memory_available_bytes": None},
            {"memory": (Level.WARNING, "256.0 MiB")},
        ),
        ({"memory_bytes": None}, {}),
        ({"cpu_features": frozenset()}, {"CPU": (Level.WARNING, "checksums use lookup tables")}),
        ({"architecture": "aarch64", "cpu_features": frozenset({"crc32"})}, {}),
        (
            {"architecture": "riscv64"},
            {"CPU": (Level.WARNING, "riscv64: checksums use lookup tables")},
        ),
    ],
)
def test_machines(changes: dict[str, Any], expected: dict[str, tuple[Level, str]]) -> None:
    assert expected == worst(judgement.judge_machine(replace(MACHINE, **changes)))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"open_files": 1023}, {"open files": (Level.PROBLEM, "1,023")}),
        ({"open_files": 1024}, {"open files": (Level.WARNING, "1,024")}),
        ({"open_files": 65_536}, {}),
        ({"open_files": None}, {}),
        ({"file_bytes": GIB - 1}, {"file size": (Level.PROBLEM, "1024.0 MiB")}),
        ({"file_bytes": GIB}, {}),
        ({"address_space_bytes": GIB}, {"address space": (Level.WARNING, "1.0 GiB")}),
        ({"mappings": 65_529}, {"vm.max_map_count": (Level.WARNING, "65,529")}),
        ({"mappings": None}, {}),
    ],
)
def test_limits(changes: dict[str, Any], expected: dict[str, tuple[Level, str]]) -> None:
    assert expected == worst(judgement.judge_limits(replace(LIMITS, **changes)))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"is_synchronized": False}, {"synchronization": (Level.WARNING, "not synchronized")}),
        ({"is_synchronized": None, "error_max_us": None}, {}),
        (
            {"error_max_us": 100_001},
            {"synchronization": (Level.WARNING, "synchronized, at most 100.0 ms off")},
        ),
        (
            {"step_ms": -20.5},
            {"steps": (Level.WARNING, "moved by -20.5 ms against the monotonic clock in 1.5 s")},
        ),
        ({"source": "hpet"}, {"source": (Level.WARNING, "hpet")}),
        ({"source": None}, {}),
    ],
)
def test_clocks(changes: dict[str, Any], expected: dict[str, tuple[Level, str]]) -> None:
    assert expected == worst(judgement.judge_clock(replace(CLOCK, **changes)))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"failure": "cannot write to /data: Permission denied", "write_bytes_per_second": None, "sync_ms": ()},
            {"data dir": (Level.PROBLEM, "cannot write to /data: Permission denied")},
        ),
        ({"exists": False, "probed": "/", "mode": None}, {}),
        ({"mode": 0o755}, {"data dir": (Level.WARNING, "writable, mode 755")}),
        ({"mode": 0o755, "lock_owner": "ottla, process 7"}, {}),
        ({"free_bytes": 200 << 20}, {"free space": (Level.PROBLEM, "200.0 MiB of 100.0 GiB")}),
        ({"free_bytes": 4 * GIB - 1}, {"free space": (Level.WARNING, "4.0 GiB of 100.0 GiB")}),
        (
            {"free_bytes": 40 * GIB, "total_bytes": 1000 * GIB},
            {"free space": (Level.WARNING, "40.0 GiB of 1000.0 GiB")},
        ),
        ({"free_inodes": None}, {}),
        ({"free_inodes": 9}, {"free space": (Level.WARNING, "80.0 GiB of 100.0 GiB, 9 inodes")}),
        ({"free_inodes": 0}, {"free space": (Level.PROBLEM, "80.0 GiB of 100.0 GiB, 0 inodes")}),
        ({"file_system": "nfs4"}, {"file system": (Level.PROBLEM, "nfs4 on /data (relatime, rw)")}),
        ({"file_system": "vfat"}, {"file system": (Level.PROBLEM, "vfat on /data (relatime, rw)")}),
        ({"file_system": "overlay"}, {"file system": (Level.WARNING, "overlay on /data (relatime, rw)")}),
        (
            {"file_system": "tmpfs", "sync_ms": (0.001,)},
            {"file system": (Level.WARNING, "tmpfs on /data (relatime, rw)")},
        ),
        ({"file_system": None}, {}),
        ({"mount_options": frozenset({"ro"})}, {"file system": (Level.PROBLEM, "ext4 on /data (ro)")}),
        (
            {"mount_options": frozenset({"nobarrier", "rw"})},
            {"file system": (Level.WARNING, "ext4 on /data (nobarrier, rw)")},
        ),
        (
            {"write_bytes_per_second": 49e6},
            {"write speed": (Level.WARNING, "49 MB/s, with one sync at the end")},
        ),
        (
            {"sync_ms": (30.0, 21.0, 1.0)},
            {"fsync": (Level.WARNING, "21.00 ms typical, 30.00 ms at most, 3 syncs")},
        ),
        ({"sync_ms": (0.01,)}, {"fsync": (Level.WARNING, "0.01 ms typical, 0.01 ms at most, 1 sync")}),
    ],
)
def test_disks(changes: dict[str, Any], expected: dict[str, tuple[Level, str]]) -> None:
    assert expected == worst(judgement.judge_disk(replace(DISK, **changes)))


@pytest.mark.parametrize(
    ("changes", "broker_runs", "expected"),
    [
        (
            {"failure": "Address already in use", "is_in_use": True},
            False,
            {"PLAINTEXT": (Level.PROBLEM, "127.0.0.1:9092 is in use")},
        ),
        ({"failure": "Address already in use", "is_in_use": True}, True, {}),
        (
            {"host": "::2", "failure": "Cannot assign requested address"},
            True,
            {"PLAINTEXT": (Level.PROBLEM, "[::2]:9092: Cannot assign requested address")},
        ),
        ({"host": ""}, False, {}),
    ],
)
def test_addresses(changes: dict[str, Any], broker_runs: bool, expected: dict[str, tuple[Level, str]]) -> None:
    found = judgement.judge_addresses([replace(ADDRESS, **changes)], broker_runs=broker_runs)
    assert expected == worst(found)


@pytest.mark.parametrize(
    ("java", "has_spark", "subjects"),
    [
        (None, False, []),
        (None, True, ["Java"]),
        (Java(home="/java", major=11), False, []),
        (Java(home="/java", major=16), True, ["Java"]),
        (Java(home="/java", major=17), True, []),
    ],
)
def test_java_matters_only_to_spark(java: Java | None, has_spark: bool, subjects: list[str]) -> None:
    assert subjects == list(worst(judgement.judge_java(java, has_spark=has_spark)))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"kernels_missing": ("ottla.records.batch (no such file)",)},
            {"ottla": (Level.PROBLEM, "0.1.0; cannot import ottla.records.batch (no such file)")},
        ),
        (
            {"required": (GOOD, replace(GOOD, installed=None), replace(GOOD, installed="0.6.4"))},
            {"dependencies": (Level.PROBLEM, "kio is not installed; kio 0.6.4 is installed, >=0.6.5 is needed")},
        ),
        ({"extras": {"cluster": (replace(KAZOO, installed=None), GOOD)}}, {}),
        (
            {"extras": {"cluster": (KAZOO, replace(GOOD, installed=None))}},
            {"ottla[cluster]": (Level.WARNING, "kio is not installed")},
        ),
        (
            {"extras": {"cluster": (replace(KAZOO, installed="2.9"), GOOD)}},
            {"ottla[cluster]": (Level.WARNING, "kazoo 2.9 is installed, >=2.10 is needed")},
        ),
    ],
)
def test_installations(changes: dict[str, Any], expected: dict[str, tuple[Level, str]]) -> None:
    assert expected == worst(judgement.judge_installation(replace(INSTALLATION, **changes)))


def test_extras_that_are_whole_or_absent_are_not_complained_about() -> None:
    """Every set of Ottla's own extras, installed by pip: packages that several extras name do not make one wanted."""
    named = {extra: set(_packages(extra)) for extra in judgement.EXTRA_USES}
    for wanted in chain.from_iterable(combinations(named, count) for count in range(len(named) + 1)):
        installed = set().union(*(named[extra] for extra in wanted))
        found = replace(INSTALLATION, extras={extra: _extra(extra, installed) for extra in named})
        assert {} == worst(judgement.judge_installation(found)), wanted
        reported = {each.subject: each.found for each in judgement.judge_installation(found)}
        whole = {extra for extra, packages in named.items() if packages <= installed}
        assert whole == {extra for extra in named if not reported[f"ottla[{extra}]"].startswith("not installed")}


@pytest.mark.parametrize("extra", judgement.EXTRA_USES)
def test_an_extra_that_lost_a_package_is_complained_about(extra: str) -> None:
    whole = _extra(extra, set(_packages(extra)))
    for lost in {each.name for each in whole} - judgement.EXTRA_MARKS[extra]:
        found = replace(INSTALLATION, extras={extra: _extra(extra, set(_packages(extra)) - {lost})})
        expected = {f"ottla[{extra}]": (Level.WARNING, f"{lost} is not installed")}
        assert expected == worst(judgement.judge_installation(found))


def _packages(extra: str) -> Iterator[str]:
    """What pip installs for an extra, with the extras that it includes."""
    for each in EXTRAS[extra]:
        if each.startswith("ottla["):
            yield from chain.from_iterable(map(_packages, each[len("ottla[") : -1].split(",")))
        else:
            yield re.split(r"[\[<>=]", each)[0]


def _extra(extra: str, installed: set[str]) -> tuple[Package, ...]:
    """The packages that an extra names itself, as `probe_installation` finds them."""
    _, extras = read_requirements([f'{each}; extra == "{extra}"' for each in EXTRAS[extra]])
    return tuple(
        replace(each, installed="999" if each.name in installed else None, wanted="") for each in extras[extra]
    )


@pytest.mark.parametrize(
    ("version", "bounds", "expected"),
    [
        ("2.3.3", ">=2.2,<3", True),
        ("3.0.0", "<3,>=2.2", False),
        ("2.10", ">=2.9", True),
        ("2.9", ">=2.9.0", True),
        ("2.0rc1", ">=2.1", False),
        ("1.0.post1", ">=1.0", True),
        ("1", "", True),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, bounds: str, expected: bool) -> None:
    assert expected is judgement.fits(version, bounds)


def test_configuration_and_cluster() -> None:
    assert {} == worst(judgement.judge_configuration(Configuration(file=None, failure=None)))
    assert {"b.toml": (Level.PROBLEM, "unknown config")} == worst(
        judgement.judge_configuration(Configuration(file="b.toml", failure="unknown config"))
    )
    assert {"b:1": (Level.PROBLEM, "refused")} == worst(
        judgement.judge_cluster(ClusterAnswer(bootstrap="b:1", failure="refused"))
    )
    answer = ClusterAnswer(bootstrap="b:1", failure=None, brokers=1, milliseconds=80, problems=("no controller",))
    assert {
        "b:1": (Level.WARNING, "1 broker, 80.0 ms for a round trip"),
        "health": (Level.PROBLEM, "no controller"),
    } == worst(judgement.judge_cluster(answer))


def test_the_report_shows_changes_below_their_line() -> None:
    findings = [
        Finding(area="limits", subject="open files", level=Level.PROBLEM, found="10", change="Raise it."),
        Finding(area="limits", subject="size", level=Level.OK, found="unlimited"),
        Finding(area="clock", subject="source", level=Level.WARNING, found="hpet", change="Change it."),
    ]
    assert [
        "limits",
        "  problem  open files  10",
        "           → Raise it.",
        "  ok       size        unlimited",
        "",
        "clock",
        "  warning  source  hpet",
        "           → Change it.",
        "",
        "1 problem, 1 warning",
    ] == [line for _, line in lines(findings)]
    assert (1, 1, "problem") == (
        document(findings)["problems"],
        document(findings)["warnings"],
        document(findings)["findings"][0]["level"],
    )
