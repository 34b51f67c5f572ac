"""Metadata recovered from folders: leaders, followers, and folders that are not taken for topics."""

from uuid import UUID

from ottla.controller.recovery_state import (
    KEEP_EVERYTHING,
    LEADER_EPOCHS_SKIPPED,
    PRODUCER_IDS_SKIPPED,
    decide_empty_store,
    decide_older_store,
    unknown_topics,
)
from ottla.metadata.changes import apply, changes_of
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.records import (
    ClaimsRecord,
    FolderClaim,
    ProducerIdsRecord,
    TopicRecord,
    encode,
    partition_key,
    partition_record,
    topic_key,
)
from ottla.metadata.store import Operation, Put
from ottla.model.ids import BrokerId, LeaderEpoch
from ottla.sim.random import SimRandom

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)
RANDOM = SimRandom(1)


def claims(*folders: FolderClaim, next_producer_id: int = 0) -> ClaimsRecord:
    return ClaimsRecord(folders=folders, next_producer_id=next_producer_id)


def folder(name: str, topic_id: UUID | None, epoch: int = 0, end: int = 0, known: int = -1) -> FolderClaim:
    topic, _, index = name.rpartition("-")
    return FolderClaim(topic, int(index), topic_id, epoch, end, known)


def adopted(**by_broker: ClaimsRecord) -> ClusterImage:
    told = {BrokerId(int(name[1:])): record for name, record in by_broker.items()}
    return apply(ClusterImage(), changes_of(1, decide_empty_store(told, RANDOM)))


def described(partition: PartitionImage) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    """With the leader epoch as the distance from the newest one before."""
    return partition.replicas, partition.isr, partition.leader, partition.leader_epoch - LEADER_EPOCHS_SKIPPED


class TestAdoption:
    def test_the_longest_log_of_the_newest_epoch_leads(self) -> None:
        image = adopted(
            b0=claims(folder("t-0", A, epoch=4, end=90)),
            b1=claims(folder("t-0", A, epoch=5, end=60)),
            b2=claims(folder("t-0", A, epoch=5, end=70)),
        )
        (partition,) = image.topics["t"].partitions
        assert ((2, 0, 1), (2,), 2, 5) == described(partition)
        assert (A, KEEP_EVERYTHING) == (image.topics["t"].id, image.topics["t"].configs)

    def test_the_next_epoch_is_above_all_that_any_broker_knows(self) -> None:
        image = adopted(b0=claims(folder("t-0", A, epoch=4, known=9)), b1=claims(folder("t-0", A, epoch=5)))
        assert ((1, 0), (1,), 1, 9) == described(image.topics["t"].partitions[0])

    def test_an_epoch_that_was_led_and_not_written_in_is_not_led_again(self) -> None:
        led = ClaimsRecord(folders=(folder("t-0", A, epoch=4),), next_producer_id=0, leader_epoch=12)
        image = adopted(b0=led, b1=claims(folder("t-0", A, epoch=5)))
        assert ((1, 0), (1,), 1, 12) == described(image.topics["t"].partitions[0])

    def test_equal_logs_share_the_leading(self) -> None:
        record = claims(*[folder(f"t-{index}", A, 1, 5) for index in range(3)])
        image = adopted(b0=record, b1=record, b2=record)
        assert [0, 1, 2] == [partition.leader for partition in image.topics["t"].partitions]

    def test_each_broker_has_what_it_has(self) -> None:
        image = adopted(b0=claims(folder("t-0", A)), b1=claims(folder("t-1", A), folder("u-0", B)))
        assert [(0,), (1,)] == [partition.replicas for partition in image.topics["t"].partitions]
        assert [(1,)] == [partition.replicas for partition in image.topics["u"].partitions]

    def test_a_partition_that_no_broker_has_begins_where_others_are(self) -> None:
        image = adopted(b1=claims(folder("t-2", A, 3, 7)))
        assert [((1,), (1,), 1, 0), ((1,), (1,), 1, 0), ((1,), (1,), 1, 3)] == [
            described(partition) for partition in image.topics["t"].partitions
        ]

    def test_a_folder_of_an_older_topic_of_that_name_is_no_replica(self) -> None:
        image = adopted(
            b0=claims(folder("t-0", A, epoch=9, end=1000)),
            b1=claims(folder("t-0", B, epoch=1, end=5)),
            b2=claims(folder("t-0", B, epoch=1, end=5)),
        )
        assert B == image.topics["t"].id
        assert (1, 2) == image.topics["t"].partitions[0].replicas

    def test_a_folder_without_an_id_belongs_to_the_topic_of_its_name(self) -> None:
        image = adopted(b0=claims(folder("t-0", A, 1, 5)), b1=claims(folder("t-0", None, 1, 7)))
        assert (A, (1, 0)) == (image.topics["t"].id, image.topics["t"].partitions[0].replicas)
        assert 1 == len(adopted(b0=claims(folder("t-0", None))).topics)

    def test_two_names_for_one_id(self) -> None:
        image = adopted(b0=claims(folder("a-0", A), folder("b-0", A), folder("b-1", A)))
        assert ["b"] == list(image.topics)

    def test_producer_ids_are_not_given_out_twice(self) -> None:
        image = adopted(b0=claims(next_producer_id=3_000), b1=claims(next_producer_id=5_000))
        assert 5_000 + PRODUCER_IDS_SKIPPED == image.next_producer_id
        assert PRODUCER_IDS_SKIPPED == adopted(b0=claims()).next_producer_id

    def test_nothing(self) -> None:
        assert {} == adopted(b0=claims()).topics


class TestRestored:
    def image(self) -> ClusterImage:
        partition = PartitionImage(
            replicas=(BrokerId(0), BrokerId(1), BrokerId(2)),
            isr=(BrokerId(0), BrokerId(1), BrokerId(2)),
            leader=BrokerId(0),
            leader_epoch=LeaderEpoch(3),
            partition_epoch=8,
            adding=(BrokerId(2),),
        )
        operations: list[Operation] = [
            Put(topic_key("t"), encode(TopicRecord(id=A))),
            Put(partition_key("t", 0), encode(partition_record(partition))),
            Put("producer-ids", encode(ProducerIdsRecord(next_id=7_000))),
        ]
        return apply(ClusterImage(), changes_of(1, operations))

    def restored(self, **by_broker: ClaimsRecord) -> ClusterImage:
        image = self.image()
        told = {BrokerId(int(name[1:])): record for name, record in by_broker.items()}
        return apply(image, changes_of(2, decide_older_store(image, told)))

    def test_a_replica_that_was_in_sync_then_does_not_lead_one_with_more(self) -> None:
        image = self.restored(
            b0=claims(folder("t-0", A, epoch=3, end=50)),
            b1=claims(folder("t-0", A, epoch=5, end=80)),
            b2=claims(),
        )
        (partition,) = image.topics["t"].partitions
        assert ((1, 0), (1,), 1, 5) == described(partition)
        assert (9, (), ()) == (partition.partition_epoch, partition.adding, partition.removing)

    def test_epochs_never_go_back(self) -> None:
        image = self.restored(b0=claims(folder("t-0", A, epoch=1, end=50)))
        assert 3 + LEADER_EPOCHS_SKIPPED == image.topics["t"].partitions[0].leader_epoch

    def test_partitions_that_were_added_since(self) -> None:
        image = self.restored(b0=claims(folder("t-0", A, 3, 1), folder("t-1", A, 0, 1)))
        assert [(0,), (0,)] == [partition.replicas for partition in image.topics["t"].partitions]

    def test_what_no_broker_has_stays_as_it_is(self) -> None:
        before = self.image()
        assert before.topics["t"] == self.restored(b0=claims()).topics["t"]

    def test_topics_that_the_store_does_not_know(self) -> None:
        told = claims(folder("t-0", A, 3, 1), folder("u-0", B, 3, 1))
        image = self.restored(b0=told)
        assert ["t"] == list(image.topics)
        assert ["u"] == unknown_topics(image, {BrokerId(0): told})

    def test_a_newer_topic_of_the_same_name_is_unknown(self) -> None:
        told = claims(folder("t-0", C, 0, 4))
        image = self.restored(b0=told)
        assert self.image().topics["t"] == image.topics["t"]
        assert ["t"] == unknown_topics(image, {BrokerId(0): told})

    def test_producer_ids_are_above_those_of_the_store(self) -> None:
        assert 7_000 + PRODUCER_IDS_SKIPPED == self.restored(b0=claims(next_producer_id=4)).next_producer_id
