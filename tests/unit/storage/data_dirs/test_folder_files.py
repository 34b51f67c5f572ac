"""What folders say of themselves and of the metadata they were used with, and folders under another's name."""

import pytest

from ottla.model.ids import BrokerId, TopicPartition
from ottla.sim.disk import SimDisk
from ottla.sim.random import SimRandom
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.data_dir import DataDir
from ottla.storage.data_dirs.metadata_seen import MetadataSeen, encode_seen, history_number, next_history, read_seen
from ottla.storage.data_dirs.misplaced_folders import Placement, place
from ottla.storage.data_dirs.partition_identity import PartitionIdentity, encode_identity, read_identity
from tests.unit.storage.rig import DATA, put

ID = "ABCDEFGHIJKLMNOPQRSTUA"
SEEN = MetadataSeen(
    history="h",
    revision=7,
    brokers=(BrokerId(0), BrokerId(2)),
    next_producer_id=3_000,
    newest_key="partitions/t/0",
    newest_key_revision=6,
)
PATH = f"{DATA}/{names.METADATA_SEEN}"


def at(name: str) -> TopicPartition:
    topic, _, index = name.rpartition("-")
    return TopicPartition(topic, int(index))


def says(name: str, topic_id: str = ID) -> PartitionIdentity:
    return PartitionIdentity(topic_id=topic_id, topic=at(name).topic, index=at(name).partition)


SILENT = PartitionIdentity(problem="missing")


def placed(name_of: dict[str, str] | None = None, **folders: PartitionIdentity) -> Placement:
    """Folders by their names, with `_` for `-`."""
    found = {name.replace("_", "-"): identity for name, identity in folders.items()}
    return place({name: (at(name), identity) for name, identity in found.items()}, (name_of or {}).get)


class TestIdentity:
    @pytest.mark.parametrize("topic", ["t", "a.b_c-d", "x-1"])
    def test_round_trip(self, topic: str) -> None:
        disk = SimDisk()
        disk.make_dirs("/t-3")
        put(disk, f"/t-3/{names.PARTITION_METADATA}", encode_identity(TopicPartition(topic, 3), ID))
        assert PartitionIdentity(topic_id=ID, topic=topic, index=3) == read_identity(disk, "/t-3")

    def test_kafkas_file_has_the_topic_id_alone(self) -> None:
        disk = SimDisk()
        disk.make_dirs("/t-3")
        put(disk, f"/t-3/{names.PARTITION_METADATA}", f"version: 0\ntopic_id: {ID}".encode())
        assert PartitionIdentity(topic_id=ID) == read_identity(disk, "/t-3")


class TestPlaces:
    def test_right_ones_stay(self) -> None:
        assert Placement() == placed(t_0=says("t-0"), t_1=SILENT, u_0=PartitionIdentity(topic_id=ID))

    def test_a_swap(self) -> None:
        assert {"t-0": at("t-1"), "t-1": at("t-0")} == placed(t_0=says("t-1"), t_1=says("t-0")).moves

    def test_kafkas_folders_are_told_apart_by_the_topics_ids(self) -> None:
        other = f"B{ID[1:]}"
        found = placed({ID: "t", other: "u"}, t_0=PartitionIdentity(topic_id=other), u_0=PartitionIdentity(topic_id=ID))
        assert {"t-0": at("u-0"), "u-0": at("t-0")} == found.moves

    def test_a_copy_of_another_is_refused(self) -> None:
        found = placed(t_0=says("t-0"), t_1=says("t-0"))
        assert ({}, [at("t-1")]) == (found.moves, list(found.refused))

    def test_a_place_that_a_folder_of_unknown_identity_has(self) -> None:
        found = placed(t_0=says("t-1"), t_1=SILENT)
        assert ({}, {at("t-0"), at("t-1")}) == (found.moves, set(found.refused))

    def test_two_that_claim_one_place(self) -> None:
        found = placed(t_0=says("t-2"), t_1=says("t-2"))
        assert ({}, {at("t-0"), at("t-1"), at("t-2")}) == (found.moves, set(found.refused))

    def test_what_waits_for_a_refused_one_is_refused(self) -> None:
        found = placed(t_0=says("t-1"), t_1=says("t-2"), t_2=says("t-2"))
        assert ({}, {at("t-0"), at("t-1")}) == (found.moves, set(found.refused))


class TestMetadataSeen:
    def test_round_trip(self) -> None:
        disk = SimDisk()
        disk.make_dirs(DATA)
        assert read_seen(disk, PATH) is None
        for seen in (SEEN, MetadataSeen(history="", revision=0)):
            put(disk, PATH, encode_seen(seen))
            assert seen == read_seen(disk, PATH)

    @pytest.mark.parametrize("content", [b"", b"\xff", b"history=h\nrevision=x\n", b"nonsense"])
    def test_a_damaged_file_is_ignored(self, content: bytes) -> None:
        disk = SimDisk()
        disk.make_dirs(DATA)
        put(disk, PATH, content)
        assert read_seen(disk, PATH) is None

    def test_histories_follow_each_other(self) -> None:
        random = SimRandom(1)
        first = next_history([""], random)
        second = next_history(["", first], random)
        assert [1, 2] == [history_number(first), history_number(second)]
        seen = MetadataSeen(history=first, revision=7)
        assert [False, False, True] == [seen.is_newer_than(first, revision) for revision in (8, 7, 6)]
        # However many revisions the store has: a later recovery knew more, an earlier one less.
        assert (True, False) == (seen.is_newer_than("", 1_000), seen.is_newer_than(second, 1))
        assert not seen.is_newer_than(next_history([""], random), 1)

    def test_it_never_goes_back(self) -> None:
        disk = SimDisk()
        disk.make_dirs(DATA)
        folder = DataDir(disk, DATA)
        folder.write_seen(SEEN)
        folder.write_seen(MetadataSeen(history="h", revision=6))
        assert SEEN == read_seen(disk, PATH)
        other = MetadataSeen(history="i", revision=1)
        folder.write_seen(other)
        assert other == read_seen(disk, PATH)
