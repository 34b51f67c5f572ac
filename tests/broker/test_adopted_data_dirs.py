"""A data dir that Kafka wrote, and one of ours whose metadata was lost, become a broker's own."""

from pathlib import Path

import pytest

from ottla.broker.broker import METADATA_FILE, Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.startup.folder_claims import read_claim
from ottla.controller.recovery_state import KEEP_EVERYTHING
from ottla.model.base64_ids import id_text
from ottla.model.errors import StorageError
from ottla.model.ids import LeaderEpoch, Offset
from ottla.sim.disk import SimDisk
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import write_epochs
from tests.broker.inside import append, elect_again
from tests.broker.running_broker import make_topic, running, with_broker
from tests.golden import stores
from tests.golden.manifest import FOLDERS, load, unpack
from tests.unit.storage.rig import NOW, P0, batch, new_log, put
from tests.unit.storage.rig import append as append_to_log
from tests.waiting import until

INTERNAL = {"__consumer_offsets", "__transaction_state"}
TRANSACTIONS = "transactions-0"
LEFT_OPEN = {"clean": 1, "killed": 3}
"""So many transactions are open in that partition; their time is up, so our coordinator aborts them."""


def a_broker(data: Path, node_id: int = stores.NODE_ID) -> Broker:
    settings = {"log.dirs": str(data), "listeners": "PLAINTEXT://127.0.0.1:0", "node.id": str(node_id)}
    return Broker(BrokerConfig.parse(settings=settings))


async def transactions_decided(broker: Broker) -> None:
    await until(lambda: all(each.last_stable_offset == each.end_offset for each in broker.partitions))


@pytest.mark.parametrize("name", ["clean", "killed"])
async def test_kafkas_folders_are_served_with_their_ids_offsets_and_epochs(name: str, tmp_path: Path) -> None:
    data = tmp_path
    unpack(FOLDERS / f"{name}.tar.xz", data)
    expected = load(FOLDERS / f"{name}.json")
    before = sorted(path.name for path in (data / "__cluster_metadata-0").iterdir())
    for _ in range(2):
        async with a_broker(data) as broker:
            image = broker.image
            assert stores.CLUSTER_ID == image.cluster_id
            told = {f"{each.topic}-{each.index}": each for each in broker.partitions}
            assert set(expected) == set(told) - {key for key in told if key.rpartition("-")[0] in INTERNAL}
            for key, partition in told.items():
                folder_id = (data / key / "partition.metadata").read_text()
                assert f"topic_id: {id_text(partition.topic_id)}" in folder_id
                assert image.topics[partition.topic].configs == KEEP_EVERYTHING
                if key in expected and key != TRANSACTIONS:
                    starts = partition.log.epochs.starts
                    written = [epoch for epoch, start in starts.items() if start < partition.end_offset]
                    assert max(written, default=-1) < partition.leader_epoch
                    assert expected[key].end_offset == partition.end_offset
            await transactions_decided(broker)
            transactions = told[TRANSACTIONS]
            assert expected[TRANSACTIONS].end_offset + LEFT_OPEN[name] == transactions.end_offset
            assert transactions.leader_epoch == transactions.log.epochs.latest
    assert before == sorted(path.name for path in (data / "__cluster_metadata-0").iterdir())


async def test_metadata_that_was_lost_does_not_take_the_records_with_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await make_topic(broker, "t", 2)
        append(broker.partitions.find("t", 1), batch(b"a", b"b"))
    for path in (tmp_path / "data").glob(f"{METADATA_FILE}*"):
        path.unlink()
    async with running(tmp_path) as broker:
        assert [0, 2] == ([partition.end_offset for partition in broker.partitions.of_topic("t")])


async def test_without_the_history_of_epochs_the_batches_tell_the_next_one(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await make_topic(broker, "t")
        partition = broker.partitions.find("t", 0)
        elect_again(partition, LeaderEpoch(7))
        append(partition, batch(b"a"))
    for path in (tmp_path / "data").glob(f"{METADATA_FILE}*"):
        path.unlink()
    (tmp_path / "data" / "t-0" / "leader-epoch-checkpoint").unlink()
    async with running(tmp_path) as broker:
        assert (broker.partitions.find("t", 0).leader_epoch) > 7


class TestHowFarALogGoes:
    """By epoch and end offset, whichever file tells of it; the next epoch is above all that the folder knows."""

    def written(self, disk: SimDisk, *epochs: int) -> str:
        """A log with a segment for each epoch, and its history."""
        log = new_log(disk)
        for epoch in epochs:
            log.roll(NOW)
            append_to_log(log, batch(b"a"), epoch=LeaderEpoch(epoch))
        log.flush()
        return log.folder

    def reach(self, disk: SimDisk, folder: str, clean_end: int | None = None) -> tuple[int, int, int]:
        """Last epoch, end offset, highest epoch known."""
        ends = {} if clean_end is None else {P0: Offset(clean_end)}
        claim = read_claim(disk, P0, folder, ends)
        return claim.last_epoch, claim.end_offset, claim.known_epoch

    def test_a_leader_that_wrote_nothing_is_in_the_history_alone(self) -> None:
        disk = SimDisk()
        folder = self.written(disk, 7)
        write_epochs(disk, f"{folder}/{names.EPOCHS}", {LeaderEpoch(7): Offset(0), LeaderEpoch(9): Offset(1)})
        assert (9, 1, 9) == self.reach(disk, folder)

    def test_an_epoch_whose_records_were_lost_counts_only_for_the_next_one(self) -> None:
        disk = SimDisk()
        folder = self.written(disk, 7)
        write_epochs(disk, f"{folder}/{names.EPOCHS}", {LeaderEpoch(7): Offset(0), LeaderEpoch(9): Offset(5)})
        assert (7, 1, 9) == self.reach(disk, folder)

    def test_batches_that_are_newer_than_the_history(self) -> None:
        disk = SimDisk()
        folder = self.written(disk, 7, 8)
        write_epochs(disk, f"{folder}/{names.EPOCHS}", {LeaderEpoch(7): Offset(0)})
        assert (8, 2, 8) == self.reach(disk, folder)

    def test_a_last_segment_without_batches(self) -> None:
        disk = SimDisk()
        folder = self.written(disk, 7)
        disk.remove(f"{folder}/{names.EPOCHS}")
        put(disk, f"{folder}/{5:020}.log", b"")
        assert (7, 5, 7) == self.reach(disk, folder)

    def test_a_tail_that_is_cut_off(self) -> None:
        disk = SimDisk()
        folder = self.written(disk, 7)
        disk.remove(f"{folder}/{names.EPOCHS}")
        path = f"{folder}/{0:020}.log"
        put(disk, path, disk.read(path) + disk.read(path)[:30])
        assert (7, 1, 7) == self.reach(disk, folder)

    def test_after_a_clean_shutdown_the_checkpoints_tell(self) -> None:
        disk = SimDisk()
        folder = self.written(disk, 7)
        put(disk, f"{folder}/{0:020}.log", b"not read")
        assert (7, 1, 7) == self.reach(disk, folder, clean_end=1)

    def test_an_empty_folder(self) -> None:
        disk = SimDisk()
        disk.make_dirs("/data/t-0")
        assert (-1, 0, -1) == self.reach(disk, "/data/t-0")


async def test_another_brokers_folder_is_refused(tmp_path: Path) -> None:
    unpack(FOLDERS / "clean.tar.xz", tmp_path)
    with pytest.raises(StorageError, match="node"):
        async with a_broker(tmp_path, node_id=7):
            pass


async def test_a_folder_whose_making_was_cut_off_gets_its_topics_id(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await make_topic(broker, "t")
        topic_id = id_text(broker.image.topics["t"].id)
    file = tmp_path / "data" / "t-0" / "partition.metadata"
    whole = file.read_text()
    for left in ("", "version: 0\n", "version: 0\ntopic_"):
        file.write_text(left)
        await with_broker(tmp_path, make_nothing)
        assert whole == file.read_text()
    assert f"version: 0\ntopic_id: {topic_id}\ntopic: t\npartition: 0\n" == whole


async def make_nothing(broker: Broker) -> None:
    assert ["t"] == list(broker.image.topics)
