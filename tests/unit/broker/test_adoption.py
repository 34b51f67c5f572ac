"""A data dir that Kafka wrote, and one of ours whose metadata was lost, become a broker's own."""

import asyncio
from pathlib import Path

import pytest

from ottla.broker.adoption import KEEP_EVERYTHING, _next_epoch
from ottla.broker.broker import METADATA_FILE, Broker
from ottla.broker.configuration import BrokerConfig
from ottla.controller.topics_state import id_text
from ottla.model.errors import StorageError
from ottla.model.ids import LeaderEpoch, Offset
from ottla.sim.disk import SimDisk
from ottla.storage import names
from ottla.storage.checkpoints import write_epochs
from tests.golden import stores
from tests.golden.manifest import FOLDERS, load, unpack
from tests.unit.broker.running_broker import append, make_topic, with_broker
from tests.unit.storage.rig import NOW, batch, new_log, put
from tests.unit.storage.rig import append as append_to_log
from tests.unit.transport.rig import until

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
def test_kafkas_folders_are_served_with_their_ids_offsets_and_epochs(name: str, tmp_path: Path) -> None:
    data = tmp_path
    unpack(FOLDERS / f"{name}.tar.xz", data)
    expected = load(FOLDERS / f"{name}.json")
    before = sorted(path.name for path in (data / "__cluster_metadata-0").iterdir())

    async def scenario() -> None:
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

    asyncio.run(scenario())
    assert before == sorted(path.name for path in (data / "__cluster_metadata-0").iterdir())


def test_metadata_that_was_lost_does_not_take_the_records_with_it(tmp_path: Path) -> None:
    async def write(broker: Broker) -> None:
        await make_topic(broker, "t", 2)
        append(broker.partitions.find("t", 1), batch(b"a", b"b"))

    with_broker(tmp_path, write)
    for path in (tmp_path / "data").glob(f"{METADATA_FILE}*"):
        path.unlink()

    async def read(broker: Broker) -> list[int]:
        return [partition.end_offset for partition in broker.partitions.of_topic("t")]

    assert [0, 2] == with_broker(tmp_path, read)


def test_without_the_history_of_epochs_the_batches_tell_the_next_one(tmp_path: Path) -> None:
    async def write(broker: Broker) -> None:
        await make_topic(broker, "t")
        partition = broker.partitions.find("t", 0)
        partition.leader_epoch = LeaderEpoch(7)
        append(partition, batch(b"a"))

    with_broker(tmp_path, write)
    for path in (tmp_path / "data").glob(f"{METADATA_FILE}*"):
        path.unlink()
    (tmp_path / "data" / "t-0" / "leader-epoch-checkpoint").unlink()

    async def read(broker: Broker) -> int:
        return broker.partitions.find("t", 0).leader_epoch

    assert 8 == with_broker(tmp_path, read)


class TestNextEpoch:
    """It is above all that the folder has, whichever file tells of it; twice the same epoch would let logs diverge."""

    def written(self, disk: SimDisk, *epochs: int) -> str:
        """A log with a segment for each epoch, and its history."""
        log = new_log(disk)
        for epoch in epochs:
            log.roll(NOW)
            append_to_log(log, batch(b"a"), epoch=LeaderEpoch(epoch))
        log.flush()
        return log.folder

    def test_a_leader_that_wrote_nothing_is_in_the_history_alone(self) -> None:
        disk = SimDisk()
        folder = self.written(disk, 7)
        write_epochs(disk, f"{folder}/{names.EPOCHS}", {LeaderEpoch(7): Offset(0), LeaderEpoch(9): Offset(1)})
        assert 10 == _next_epoch(disk, folder)

    def test_batches_that_are_newer_than_the_history(self) -> None:
        disk = SimDisk()
        folder = self.written(disk, 7, 8)
        write_epochs(disk, f"{folder}/{names.EPOCHS}", {LeaderEpoch(7): Offset(0)})
        assert 9 == _next_epoch(disk, folder)

    def test_a_last_segment_without_batches(self) -> None:
        disk = SimDisk()
        folder = self.written(disk, 7)
        disk.remove(f"{folder}/{names.EPOCHS}")
        put(disk, f"{folder}/{5:020}.log", b"")
        assert 8 == _next_epoch(disk, folder)

    def test_a_tail_that_is_cut_off(self) -> None:
        disk = SimDisk()
        folder = self.written(disk, 7)
        disk.remove(f"{folder}/{names.EPOCHS}")
        path = f"{folder}/{0:020}.log"
        put(disk, path, disk.read(path) + disk.read(path)[:30])
        assert 8 == _next_epoch(disk, folder)

    def test_of_nothing_it_is_the_first(self) -> None:
        assert 0 == _next_epoch(SimDisk(), None)


def test_another_brokers_folder_is_refused(tmp_path: Path) -> None:
    unpack(FOLDERS / "clean.tar.xz", tmp_path)

    async def scenario() -> None:
        with pytest.raises(StorageError, match="node"):
            async with a_broker(tmp_path, node_id=7):
                pass

    asyncio.run(scenario())


def test_a_folder_whose_making_was_cut_off_gets_its_topics_id(tmp_path: Path) -> None:
    async def make(broker: Broker) -> str:
        await make_topic(broker, "t")
        return id_text(broker.image.topics["t"].id)

    topic_id = with_broker(tmp_path, make)
    file = tmp_path / "data" / "t-0" / "partition.metadata"
    whole = file.read_text()
    for left in ("", "version: 0\n", "version: 0\ntopic_"):
        file.write_text(left)
        with_broker(tmp_path, make_nothing)
        assert whole == file.read_text()
    assert f"version: 0\ntopic_id: {topic_id}\n" == whole


async def make_nothing(broker: Broker) -> None:
    assert ["t"] == list(broker.image.topics)


def test_records_under_another_id_are_set_aside_and_not_deleted(tmp_path: Path) -> None:
    async def write(broker: Broker) -> None:
        await make_topic(broker, "t")
        append(broker.partitions.find("t", 0), batch(b"a"))

    with_broker(tmp_path, write)
    data = tmp_path / "data"
    file = data / "t-0" / "partition.metadata"
    content = (data / "t-0" / f"{0:020}.log").read_bytes()
    file.write_text(file.read_text().replace("topic_id: ", "topic_id: x"))

    async def end_offset(broker: Broker) -> int:
        return broker.partitions.find("t", 0).end_offset

    for _ in range(2):
        assert 0 == with_broker(tmp_path, end_offset)
    (kept,) = data.glob("t-0.*-stray")
    assert content == (kept / f"{0:020}.log").read_bytes()
