"""The probes of `ottla doctor` on the machine that runs the tests, and the whole command."""

import os
import resource
import socket
import time
from pathlib import Path

import pytest

from ottla.cli.doctor.probes import disk as disk_probe
from ottla.cli.doctor.probes.addresses import probe_address
from ottla.cli.doctor.probes.clock import ClockWatch
from ottla.cli.doctor.probes.disk import mount_of, probe_disk
from ottla.cli.doctor.probes.installation import probe_installation, read_requirements
from ottla.cli.doctor.probes.machine import probe_limits, probe_machine
from ottla.env.real_disk import RealDisk
from ottla.storage.data_dirs.names import LOCK
from ottla.version import __version__
from tests.unit.cli.command_line import CommandLine

MOUNTS = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,data=ordered
30 27 254:2 / /data rw,noatime - xfs /dev/vdb ro,attr2
31 27 254:3 / /data\040dir rw - btrfs /dev/vdc rw
32 27 254:4 / /data rw - nfs4 server:/x rw
"""


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_probe, "WRITE_SECONDS_MAX", 0.01)
    monkeypatch.setattr(disk_probe, "SYNC_SECONDS_MAX", 0.01)


def test_this_machine_has_what_the_tests_run_on() -> None:
    machine, limits = probe_machine(), probe_limits()
    assert (os.uname().sysname, os.uname().release) == (machine.system, machine.kernel)
    assert 0 < machine.cores <= len(os.sched_getaffinity(0))
    assert machine.memory_bytes is not None
    assert machine.memory_bytes <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert (None if hard == resource.RLIM_INFINITY else hard) == limits.open_files
    assert int(Path("/proc/sys/vm/max_map_count").read_text()) == limits.mappings


def test_a_step_of_the_clock_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = ClockWatch()
    assert abs(watch.probe().step_ms) < 1000
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    assert 3_599_000 < watch.probe().step_ms < 3_601_000


def test_a_data_dir_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    found = probe_disk(str(tmp_path))
    assert (True, None, None) == (found.exists, found.failure, found.lock_owner)
    assert found.write_bytes_per_second is not None
    assert found.write_bytes_per_second > 0
    assert found.sync_ms
    assert found.mount_point is not None
    assert os.path.ismount(found.mount_point)
    missing = probe_disk(str(tmp_path / "a" / "b"))
    assert (False, str(tmp_path), None) == (missing.exists, missing.probed, missing.mode)
    assert [] == list(tmp_path.iterdir())


def test_a_file_in_place_of_a_data_dir_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert f"{tmp_path / 'file'} is not a folder" == probe_disk(str(tmp_path / "file")).failure


def test_a_locked_data_dir_names_its_broker(tmp_path: Path) -> None:
    lock = RealDisk().try_lock(str(tmp_path / LOCK), "ottla, process 7")
    assert not isinstance(lock, str)
    assert "ottla, process 7" == probe_disk(str(tmp_path)).lock_owner
    lock.release()
    assert None is probe_disk(str(tmp_path)).lock_owner


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/srv/x", ("ext4", "/", {"rw", "relatime", "data=ordered"})),
        ("/data/dir", ("nfs4", "/data", {"rw"})),
        ("/data dir/x", ("btrfs", "/data dir", {"rw"})),
        ("/database", ("ext4", "/", {"rw", "relatime", "data=ordered"})),
    ],
)
def test_the_mount_of_a_folder(folder: str, expected: tuple[str, str, set[str]]) -> None:
    kind, point, options = mount_of(folder, MOUNTS)
    assert expected == (kind, point, set(options))


def test_a_mount_is_read_only_if_its_file_system_is() -> None:
    assert {"rw", "ro", "noatime", "attr2"} == mount_of("/data", "\n".join(MOUNTS.splitlines()[:3]))[2]
    assert (None, None, frozenset()) == mount_of("/data", "")


def test_addresses_are_bound_and_released() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = probe_address("PLAINTEXT", "127.0.0.1", port)
        assert (True, True) == (found.is_in_use, found.failure is not None)
    for _ in range(2):
        assert None is probe_address("PLAINTEXT", "127.0.0.1", port).failure
    foreign = probe_address("PLAINTEXT", "192.0.2.1", 9092)
    assert (False, True) == (foreign.is_in_use, foreign.failure is not None)


def test_this_installation_is_complete() -> None:
    found = probe_installation()
    assert (__version__, ()) == (found.version, found.kernels_missing)
    assert {"cramjam", "kio", "uvloop"} <= {each.name for each in found.required if each.installed is not None}
    assert "pyarrow" in {each.name for each in found.extras["arrow"]}


def test_requirements_are_read_with_their_extras() -> None:
    required, extras = read_requirements(
        ["pytest>=8", 'nothing-at-all[x]<3,>=2 ; extra == "spark"', 'ottla[arrow]; extra == "spark"']
    )
    assert [("pytest", ">=8", True)] == [(each.name, each.wanted, each.installed is not None) for each in required]
    assert [("nothing-at-all", "<3,>=2", None)] == [
        (each.name, each.wanted, each.installed) for each in extras["spark"]
    ]


@pytest.fixture
def alone(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command without a broker; Java is left out, because starting one takes long."""
    monkeypatch.setattr("ottla.cli.doctor.probes.installation.probe_java", lambda: None)
    return CommandLine("127.0.0.1:1", capfd)


def test_the_command_reports_all_areas(alone: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text(
        f'log.dirs = ["{tmp_path}/one", "{tmp_path}/two"]\nlisteners = ["PLAINTEXT://127.0.0.1:0"]\n'
    )
    done = alone("doctor", "--config", str(tmp_path / "broker.toml"), "--http", "127.0.0.1:0", "--json")
    found = {(each["area"], each["subject"]) for each in done.json["findings"] if each["level"] != "problem"}
    assert {
        ("machine", "Python"),
        ("limits", "open files"),
        ("clock", "steps"),
        (f"{tmp_path}/one", "data dir"),
        (f"{tmp_path}/two", "data dir"),
        ("ports", "PLAINTEXT"),
        ("ports", "--http"),
        ("packages", "dependencies"),
        ("Spark", "Java"),
        ("configuration", str(tmp_path / "broker.toml")),
    } <= found
    assert (1 if done.json["problems"] else 0) == done.status


def test_problems_end_with_status_1(alone: CommandLine, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        done = alone("doctor", "--data", str(tmp_path), "--listen", place)
    assert 1 == done.status
    assert f"problem  PLAINTEXT  {place} is in use\n" in done.out
    (tmp_path / "bad.toml").write_text("log.retention.msec = 1\n")
    refused = alone("doctor", "--config", str(tmp_path / "bad.toml"))
    assert 1 == refused.status
    assert "log.retention.ms" in refused.out
    missing = alone("doctor", "--config", str(tmp_path / "none.toml"))
    assert (1, True) == (missing.status, "No such file" in missing.out)


def test_a_cluster_that_cannot_be_reached_is_a_problem(alone: CommandLine, tmp_path: Path) -> None:
    done = alone("doctor", "--data", str(tmp_path), "--listen", "127.0.0.1:0", "--bootstrap", "127.0.0.1:1", "--json")
    (found,) = [each for each in done.json["findings"] if each["area"] == "cluster"]
    assert (1, "problem", True) == (done.status, found["level"], "127.0.0.1:1" in found["found"])


def test_a_healthy_cluster_is_ok(
    ottla: CommandLine, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.cli.doctor.probes.installation.probe_java", lambda: None)
    done = ottla("doctor", "--data", str(tmp_path), "--listen", bootstrap, "--bootstrap", bootstrap, "--json")
    levels = {(each["area"], each["subject"]): each["level"] for each in done.json["findings"]}
    assert ("problem", "ok") == (levels["ports", "PLAINTEXT"], levels["cluster", bootstrap])
