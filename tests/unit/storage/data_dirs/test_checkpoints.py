"""Checkpoint files: what is written is read, Kafka's bytes exactly, and nothing else is believed."""

import errno

import pytest

from ottla.model.errors import CorruptError
from ottla.model.ids import LeaderEpoch, Offset, TopicPartition
from ottla.sim.disk import Moment, SimDisk, SimulatedCrash
from ottla.storage.data_dirs import checkpoints
from tests.unit.storage.rig import put

PATH = "/data/checkpoint"
OFFSETS = {TopicPartition("b", 1): Offset(7), TopicPartition("a", 10): Offset(0), TopicPartition("a", 2): Offset(2**62)}


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs("/data")
    return disk


def test_offsets(disk: SimDisk) -> None:
    put(disk, PATH, checkpoints.encode_offsets(OFFSETS))
    assert b"0\n3\na 2 4611686018427387904\na 10 0\nb 1 7\n" == disk.read(PATH)
    assert (OFFSETS, None) == checkpoints.read_sealed_offsets(disk, PATH)


def test_sealed_offsets(disk: SimDisk) -> None:
    """Every change of a byte is found, and Kafka reads the seal as a partition that cannot exist."""
    content = checkpoints.encode_offsets(OFFSETS, name="checkpoint", directory_id="D-1")
    put(disk, PATH, content)
    assert (OFFSETS, "D-1") == checkpoints.read_sealed_offsets(disk, PATH)
    assert b"0\n4\na 2 4611686018427387904\na 10 0\nb 1 7\n#D-1 0 3990819644\n" == content
    for at, byte in enumerate(content):
        for changed in set(range(256)) - {byte}:
            put(disk, PATH, content[:at] + bytes([changed]) + content[at + 1 :])
            try:
                found = checkpoints.read_sealed_offsets(disk, PATH)
            except CorruptError:
                continue
            # Only the seal itself is hurt, or what separates words and lines.
            assert found.directory_id is None or (OFFSETS, "D-1") == found
            assert OFFSETS.items() <= found.offsets.items()


def test_the_checkpoint_of_another_name(disk: SimDisk) -> None:
    put(disk, PATH, checkpoints.encode_offsets(OFFSETS, name="another", directory_id="D-1"))
    with pytest.raises(CorruptError, match=f"^{PATH}, line 6: the checksum does not match$"):
        checkpoints.read_offsets(disk, PATH)


def test_none(disk: SimDisk) -> None:
    assert {} == checkpoints.read_offsets(disk, PATH)
    assert {} == checkpoints.read_epochs(disk, PATH)
    put(disk, PATH, checkpoints.encode_offsets({}))
    assert b"0\n0\n" == disk.read(PATH)
    assert {} == checkpoints.read_offsets(disk, PATH)


def test_epochs(disk: SimDisk) -> None:
    epochs = {LeaderEpoch(0): Offset(0), LeaderEpoch(4): Offset(9)}
    checkpoints.write_epochs(disk, PATH, epochs)
    assert b"0\n2\n0 0\n4 9\n" == disk.read(PATH)
    assert epochs == checkpoints.read_epochs(disk, PATH)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1\n0\n",
        b"0\n",
        b"0\nx\n",
        "0\n²\n".encode(),
        b"0\n-1\n",
        b"0\n2\na 1 2\n",
        b"0\n0\na 1 2\n",
        b"0\n1\na 1\n",
        b"0\n1\na 1 2 3\n",
        b"0\n1\na x 2\n",
        b"0\n1\na 1 -2\n",
        b"0\n1\na 1 1_0\n",
        b"0\n1\na 1 " + b"9" * 5000 + b"\n",
        b"0\n" + b"1" * 5000 + b"\n",
        b"0\n2\na 1 2\na 1 3\n",
        b"0\n1\na,b 1 2\n",
        b"0\n2\n#D 0 1\n#D 0 1\n",
        b"\xff\n",
    ],
)
def test_damaged_offsets(disk: SimDisk, content: bytes) -> None:
    put(disk, PATH, content)
    with pytest.raises(CorruptError, match=f"^{PATH}, (line|byte) "):
        checkpoints.read_offsets(disk, PATH)


@pytest.mark.parametrize(
    "content", [b"0\n1\n1 2 3\n", b"0\n1\nx 2\n", b"0\n2\n2 0\n1 5\n", b"0\n2\n1 5\n2 4\n", b"0\n1\n-1 0\n"]
)
def test_damaged_epochs(disk: SimDisk, content: bytes) -> None:
    put(disk, PATH, content)
    with pytest.raises(CorruptError, match=f"^{PATH}, line "):
        checkpoints.read_epochs(disk, PATH)


def test_properties(disk: SimDisk) -> None:
    checkpoints.write_properties(disk, PATH, {"version": "1", "node.id": "3"})
    assert b"version=1\nnode.id=3\n" == disk.read(PATH)
    put(disk, PATH, b"# a comment\n\n node.id = 3 \ncluster.id=a=b\n")
    assert {"node.id": "3", "cluster.id": "a=b"} == checkpoints.read_properties(disk, PATH)
    with pytest.raises(CorruptError, match="line 3"):
        checkpoints.read_properties(disk, PATH, ":")


def test_a_crash_leaves_the_old_or_the_new() -> None:
    rehearsal = SimDisk()
    rehearsal.make_dirs("/data")
    checkpoints.replace_file(rehearsal, PATH, b"old")
    since = rehearsal.operation_count
    checkpoints.replace_file(rehearsal, PATH, b"new")
    outcomes = set()
    for number in range(since, rehearsal.operation_count):
        for moment in Moment:
            for seed in range(4):
                disk = SimDisk(seed)
                disk.make_dirs("/data")
                checkpoints.replace_file(disk, PATH, b"old")
                disk.fail_at(number, SimulatedCrash, moment)
                with pytest.raises(SimulatedCrash):
                    checkpoints.replace_file(disk, PATH, b"new")
                outcomes.add(disk.crash().read(PATH))
    assert {b"old", b"new"} == outcomes


def test_a_refusing_disk_leaves_the_old(disk: SimDisk) -> None:
    checkpoints.replace_file(disk, PATH, b"old")
    disk.fail_at(disk.operation_count + 2, OSError(errno.ENOSPC, "full"))
    with pytest.raises(OSError, match="full"):
        checkpoints.replace_file(disk, PATH, b"new")
    assert b"old" == disk.read(PATH)
