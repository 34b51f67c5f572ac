"""A data dir that Kafka wrote, and one of ours whose metadata was lost, become a broker's own."""

import asyncio
from pathlib import Path

import pytest

from ottla.broker.adoption import KEEP_EVERYTHING
from ottla.broker.broker import METADATA_FILE, Broker
from ottla.broker.configuration import BrokerConfig
from ottla.controller.topics_state import id_text
from ottla.model.errors import StorageError
from tests.golden import stores
from tests.golden.manifest import FOLDERS, load, unpack
from tests.unit.broker.running_broker import append, make_topic, with_broker
from tests.unit.storage.rig import batch

INTERNAL = {"__consumer_offsets", "__transaction_state"}


def a_broker(data: Path, node_id: int = stores.NODE_ID) -> Broker:
    settings = {"log.dirs": str(data), "listeners": "PLAINTEXT://127.0.0.1:0", "node.id": str(node_id)}
    return Broker(BrokerConfig.parse(settings=settings))


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
                    assert (partition.log.epochs.latest or -1) < partition.leader_epoch
                    if key in expected:
                        assert expected[key].end_offset == partition.end_offset

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


def test_another_brokers_folder_is_refused(tmp_path: Path) -> None:
    unpack(FOLDERS / "clean.tar.xz", tmp_path)

    async def scenario() -> None:
        with pytest.raises(StorageError, match="node"):
            async with a_broker(tmp_path, node_id=7):
                pass

    asyncio.run(scenario())
