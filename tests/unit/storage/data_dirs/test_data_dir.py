"""One data dir: its lock, its identity, its marks and checkpoints."""

import pytest

from ottla.env.ports import Disk
from ottla.env.real_disk import RealDisk
from ottla.model.errors import CorruptError, StorageError
from ottla.model.ids import TopicPartition
from ottla.sim.disk import SimDisk
from ottla.sim.random import SimRandom
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.data_dir import DataDir
from tests.unit.storage.rig import P0, P1, put


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return RealDisk() if request.param == "real" else SimDisk()


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("root") / "data")


def opened(
    disk: Disk, path: str, *, owner: str = "broker 1, process 42", node_id: int = 1, cluster_id: str = "c"
) -> DataDir:
    folder = DataDir(disk, path)
    folder.open(owner=owner, node_id=node_id, cluster_id=cluster_id, random=SimRandom(1))
    return folder


def test_a_new_one_is_made_and_named(disk: Disk, path: str) -> None:
    folder = opened(disk, path)
    assert not folder.is_clean
    assert ["version", "node.id", "cluster.id", "directory.id"] == list(folder.properties)
    assert 22 == len(folder.properties["directory.id"])
    folder.unlock()
    assert folder.properties == opened(disk, path).properties


def test_a_second_broker_is_refused_with_the_name_of_the_first(disk: Disk, path: str) -> None:
    folder = opened(disk, path)
    with pytest.raises(StorageError, match=f"{path} is in use by broker 1, process 42; stop it"):
        opened(disk, path, owner="broker 2")
    folder.unlock()
    opened(disk, path, owner="broker 2").unlock()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"version=1\nnode.id=2\ncluster.id=c\n", "node.id is 2, not 1; this data dir belongs to another broker"),
        (b"version=1\nnode.id=1\ncluster.id=other\n", "cluster.id is other, not c"),
        (b"version=0\nbroker.id=9\ncluster.id=c\n", "node.id is 9, not 1"),
    ],
)
def test_another_brokers_folder_is_refused(disk: Disk, path: str, content: bytes, problem: str) -> None:
    put(disk, f"{path}/{names.META_PROPERTIES}", content)
    with pytest.raises(StorageError, match=problem):
        opened(disk, path)


def test_an_old_brokers_id_counts(disk: Disk, path: str) -> None:
    put(disk, f"{path}/{names.META_PROPERTIES}", b"#Sat\nversion=0\nbroker.id=1\ncluster.id=c\n")
    assert "1" == opened(disk, path).properties["broker.id"]


@pytest.mark.parametrize("content", [b"version=1\n", b"node.id=1\n", b"cluster.id=c\n"])
def test_an_identity_with_holes(disk: Disk, path: str, content: bytes) -> None:
    put(disk, f"{path}/{names.META_PROPERTIES}", content)
    with pytest.raises(CorruptError, match=f"{names.META_PROPERTIES}: .*is missing"):
        opened(disk, path)


def test_the_clean_mark_is_used_up(disk: Disk, path: str) -> None:
    folder = opened(disk, path)
    folder.mark_clean()
    folder.unlock()
    folder = opened(disk, path)
    assert folder.is_clean
    folder.unlock()
    assert not opened(disk, path).is_clean


def test_folders(disk: Disk, path: str) -> None:
    folder = opened(disk, path)
    doomed = names.doomed_name(P1, "0" * 32)
    for name in ("t-0", "x", doomed):
        disk.make_dirs(f"{path}/{name}")
    put(disk, f"{path}/t-5", b"a file")
    assert {P0: f"{path}/t-0"} == folder.partitions()
    assert [f"{path}/{doomed}"] == folder.doomed_folders()


def test_checkpoints(disk: Disk, path: str, caplog: pytest.LogCaptureFixture) -> None:
    folder = opened(disk, path)
    folder.is_clean = True
    folder.write_checkpoint(names.RECOVERY_POINTS, {P0: 5, P1: 6})
    assert {P0: 5, P1: 6} == folder.read_checkpoint(names.RECOVERY_POINTS)
    put(disk, f"{path}/{names.RECOVERY_POINTS}", b"rotten")
    assert ({}, False) == (folder.read_checkpoint(names.RECOVERY_POINTS), folder.is_clean)
    assert "checking every partition of this data dir" in caplog.text


def test_partitions_put_aside_keep_their_checkpoints(disk: Disk, path: str) -> None:
    folder = opened(disk, path)
    folder.write_checkpoint(names.RECOVERY_POINTS, {P0: 5, P1: 6})
    folder.put_aside(P0)
    folder.put_aside(TopicPartition("unknown", 1))
    folder.write_checkpoint(names.RECOVERY_POINTS, {P1: 9})
    folder.write_checkpoint(names.RECOVERY_POINTS, {P1: 10})
    assert {P0: 5, P1: 10} == folder.read_checkpoint(names.RECOVERY_POINTS)


def test_a_refused_checkpoint_names_the_file() -> None:
    disk = SimDisk()
    folder = opened(disk, "/data")
    disk.make_read_only()
    with pytest.raises(StorageError, match=f"/data/{names.RECOVERY_POINTS}: cannot write: Read-only file system"):
        folder.write_checkpoint(names.RECOVERY_POINTS, {})


class TestWhetherItHasEverything:
    """What the machine's page cache had and the disk had not is lost when the machine goes down, and only then."""

    def test_a_new_one_has_not(self, path: str) -> None:
        assert not opened(SimDisk(), path).is_intact

    def test_after_a_kill_it_has(self, path: str) -> None:
        disk = SimDisk()
        opened(disk, path).note_boot()
        assert opened(disk.kill(), path).is_intact

    def test_after_a_power_cut_it_has_not_however_often_it_is_started_until_somebody_says_so(self, path: str) -> None:
        disk = SimDisk()
        opened(disk, path).note_boot()
        disk = disk.crash()
        assert not opened(disk, path).is_intact
        disk = disk.kill()
        assert not opened(disk, path).is_intact
        disk = disk.kill()
        opened(disk, path).note_boot()
        assert opened(disk.kill(), path).is_intact

    def test_after_a_clean_stop_it_has_also_when_the_machine_went_down_since(self, path: str) -> None:
        disk = SimDisk()
        folder = opened(disk, path)
        folder.note_boot()
        folder.mark_clean()
        disk = disk.crash()
        assert opened(disk, path).is_intact
        assert opened(disk.kill(), path).is_intact

    def test_after_a_power_cut_a_clean_stop_brings_nothing_back(self, path: str) -> None:
        disk = SimDisk()
        opened(disk, path).note_boot()
        disk = disk.crash()
        opened(disk, path).mark_clean()
        disk = disk.crash()
        folder = opened(disk, path)
        assert folder.is_clean
        assert not folder.is_intact

    def test_a_machine_that_does_not_say_which_life_it_has(self, path: str) -> None:
        disk = SimDisk()
        disk.boot_id = ""
        opened(disk, path).note_boot()
        after = disk.kill()
        after.boot_id = ""
        assert not opened(after, path).is_intact
