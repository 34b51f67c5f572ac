"""Adding partitions, electing leaders and moving replicas: every answer, and what is committed."""

from dataclasses import replace

import pytest

from ottla.controller.decisions import (
    ControllerDecision,
    NewPartitions,
    NewTopic,
    PartitionOutcome,
    Reassignment,
    ReplicaAssignment,
    TopicDefaults,
)
from ottla.controller.partitions_state import decide_add_partitions, decide_elect, decide_finish, decide_reassign
from ottla.controller.topics_state import decide_create
from ottla.metadata.image import NO_LEADER, ClusterImage, PartitionImage
from ottla.metadata.records import encode, partition_key, partition_record
from ottla.metadata.store import Put
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId, LeaderEpoch, TopicPartition
from ottla.sim.random import SimRandom
from tests.unit.controller.images import after, after_operations, brokers, cluster, without_broker

RANDOM = SimRandom(1)
T0 = TopicPartition("t", 0)


def with_topic(*replicas: tuple[int, ...], broker_count: int = 4) -> ClusterImage:
    """A cluster with topic t, its partitions on these brokers."""
    image = cluster(broker_count)
    assignments = tuple(ReplicaAssignment(index, brokers(*each)) for index, each in enumerate(replicas))
    return after(
        image,
        decide_create(
            image,
            [NewTopic(name="t", assignments=assignments)],
            defaults=TopicDefaults(),
            validate_configs=lambda _: None,
            random=RANDOM,
        ),
    )


def changed(image: ClusterImage, partition: PartitionImage) -> ClusterImage:
    """The image after partition t-0's leader, say, wrote this."""
    return after_operations(image, [Put(partition_key("t", 0), encode(partition_record(partition)))])


def first(image: ClusterImage) -> PartitionImage:
    return image.topics["t"].partitions[0]


def codes(decision: ControllerDecision[PartitionOutcome]) -> list[ErrorCode]:
    return [outcome.error for outcome in decision.outcomes]


class TestAddPartitions:
    def test_old_ones_stay_and_new_ones_follow(self) -> None:
        image = with_topic((0, 1), (1, 2))
        decision = decide_add_partitions(image, [NewPartitions(topic="t", partition_count=5)], random=RANDOM)
        (outcome,) = decision.outcomes
        assert (ErrorCode.NONE, 5, 2) == (outcome.error, outcome.partition_count, outcome.replication_factor)
        then = after(image, decision)
        assert image.topics["t"].partitions == then.topics["t"].partitions[:2]
        assert [2] * 5 == [len(partition.isr) for partition in then.topics["t"].partitions]
        assert image.topics["t"].id == then.topics["t"].id
        assert then.revision == then.revision_of("topics/t")

    def test_an_assignment(self) -> None:
        image = with_topic((0, 1))
        wanted = NewPartitions(topic="t", partition_count=3, assignments=(brokers(2, 3), brokers(3, 0)))
        then = after(image, decide_add_partitions(image, [wanted], random=RANDOM))
        assert [brokers(0, 1), brokers(2, 3), brokers(3, 0)] == [p.replicas for p in then.topics["t"].partitions]

    @pytest.mark.parametrize(
        ("wanted", "error", "message"),
        [
            (NewPartitions(topic="x", partition_count=2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic 'x'"),
            (NewPartitions(topic="t", partition_count=2), ErrorCode.INVALID_PARTITIONS, "has 2 partition(s)"),
            (NewPartitions(topic="t", partition_count=1), ErrorCode.INVALID_PARTITIONS, "only be added"),
            (NewPartitions(topic="t", partition_count=-1), ErrorCode.INVALID_PARTITIONS, "only be added"),
            (NewPartitions(topic="t", partition_count=2**31 - 1), ErrorCode.POLICY_VIOLATION, "at most 10000"),
            (
                NewPartitions(topic="t", partition_count=4, assignments=(brokers(0),)),
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "but 1 assignment(s)",
            ),
            (
                NewPartitions(topic="t", partition_count=3, assignments=(brokers(0),)),
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "has replication factor 2",
            ),
            (
                NewPartitions(topic="t", partition_count=3, assignments=(brokers(0, 9),)),
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "broker 9",
            ),
        ],
    )
    def test_refusals(self, wanted: NewPartitions, error: ErrorCode, message: str) -> None:
        decision = decide_add_partitions(with_topic((0, 1), (1, 2)), [wanted], random=RANDOM)
        (outcome,) = decision.outcomes
        assert error == outcome.error
        assert message in (outcome.message or "")
        assert () == decision.operations

    def test_too_few_brokers_are_left(self) -> None:
        image = with_topic((0, 1), broker_count=2)
        wanted = [NewPartitions(topic="t", partition_count=2)]
        (outcome,) = decide_add_partitions(without_broker(image, 1), wanted, random=RANDOM).outcomes
        assert ErrorCode.INVALID_REPLICATION_FACTOR == outcome.error

    def test_twice_and_validate_only(self) -> None:
        image = with_topic((0,))
        wanted = NewPartitions(topic="t", partition_count=2)
        twice = decide_add_partitions(image, [wanted, wanted], random=RANDOM)
        assert [ErrorCode.INVALID_REQUEST] * 2 == [outcome.error for outcome in twice.outcomes]
        checked = decide_add_partitions(image, [wanted], random=RANDOM, validate_only=True)
        assert ([ErrorCode.NONE], ()) == ([outcome.error for outcome in checked.outcomes], checked.operations)


class TestElect:
    def test_the_preferred_one_leads_again(self) -> None:
        image = with_topic((0, 1))
        image = changed(image, replace(first(image), leader=BrokerId(1), leader_epoch=LeaderEpoch(4)))
        decision = decide_elect(image, [T0])
        assert (PartitionOutcome(topic="t", partition=0),) == decision.outcomes
        then = first(after(image, decision))
        assert (0, 5, 1) == (then.leader, then.leader_epoch, then.partition_epoch)

    def test_refusals(self) -> None:
        image = with_topic((0, 1), (1, 0))
        asked = [T0, TopicPartition("t", 2), TopicPartition("t", -1), TopicPartition("x", 0)]
        decision = decide_elect(image, asked)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [ErrorCode.ELECTION_NOT_NEEDED, unknown, unknown, unknown] == codes(decision)

    def test_a_preferred_one_that_cannot(self) -> None:
        image = with_topic((0, 1))
        image = changed(image, replace(first(image), leader=BrokerId(1)))
        behind = changed(image, replace(first(image), isr=brokers(1)))
        unavailable = [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
        assert unavailable == codes(decide_elect(behind, [T0]))
        assert unavailable == codes(decide_elect(without_broker(image, 0), [T0]))

    def test_all_partitions_tells_only_of_those_that_needed_it(self) -> None:
        image = with_topic((0, 1), (1, 0))
        assert ControllerDecision() == decide_elect(image, None)
        image = changed(image, replace(first(image), leader=BrokerId(1)))
        assert (PartitionOutcome(topic="t", partition=0),) == decide_elect(image, None).outcomes

    @pytest.mark.parametrize(
        ("dead", "isr", "leader", "isr_then"),
        [
            ((0,), (0, 1), 1, (1,)),
            ((0,), (0,), 1, (1,)),
            ((0, 1), (0,), 2, (2,)),
        ],
    )
    def test_unclean(self, dead: tuple[int, ...], isr: tuple[int, ...], leader: int, isr_then: tuple[int, ...]) -> None:
        image = with_topic((0, 1, 2))
        image = changed(image, replace(first(image), isr=brokers(*isr), leader=NO_LEADER))
        for broker in dead:
            image = without_broker(image, broker)
        decision = decide_elect(image, [T0], unclean=True)
        assert [ErrorCode.NONE] == codes(decision)
        then = first(after(image, decision))
        assert (leader, brokers(*isr_then), 1) == (then.leader, then.isr, then.leader_epoch)

    @pytest.mark.parametrize(
        ("isr", "lost", "leader", "lost_then"),
        [((0,), (0,), 1, (0,)), ((0,), (0, 1), 2, (0, 1)), ((0,), (0, 1, 2), 0, (1, 2))],
    )
    def test_unclean_prefers_replicas_that_have_their_log(
        self, isr: tuple[int, ...], lost: tuple[int, ...], leader: int, lost_then: tuple[int, ...]
    ) -> None:
        image = with_topic((0, 1, 2))
        image = changed(image, replace(first(image), isr=brokers(*isr), leader=NO_LEADER, lost=brokers(*lost)))
        elected = first(after(image, decide_elect(image, [T0], unclean=True)))
        assert (leader, (leader,), lost_then) == (elected.leader, elected.isr, elected.lost)

    def test_a_preferred_replica_without_its_log_does_not_lead(self) -> None:
        image = with_topic((0, 1))
        image = changed(image, replace(first(image), isr=brokers(0), leader=NO_LEADER, lost=brokers(0)))
        assert [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE] == codes(decide_elect(image, [T0]))

    def test_unclean_refusals(self) -> None:
        image = with_topic((0,))
        assert [ErrorCode.ELECTION_NOT_NEEDED] == codes(decide_elect(image, [T0], unclean=True))
        image = without_broker(image, 0)
        assert [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE] == codes(decide_elect(image, [T0], unclean=True))


def to(*replicas: int, partition: int = 0) -> Reassignment:
    return Reassignment(topic="t", partition=partition, replicas=brokers(*replicas))


BACK = Reassignment(topic="t", partition=0, replicas=None)


class TestReassign:
    def test_to_where_it_is(self) -> None:
        decision = decide_reassign(with_topic((0, 1)), [to(0, 1)])
        assert ([ErrorCode.NONE], ()) == (codes(decision), decision.operations)

    def test_another_order_is_done_at_once(self) -> None:
        image = with_topic((0, 1))
        then = first(after(image, decide_reassign(image, [to(1, 0)])))
        assert replace(first(image), replicas=brokers(1, 0), partition_epoch=1) == then

    def test_a_move_waits_for_the_new_replica(self) -> None:
        image = with_topic((0, 1))
        image = after(image, decide_reassign(image, [to(2, 1)]))
        moving = first(image)
        assert (brokers(2, 1, 0), brokers(2), brokers(0)) == (moving.replicas, moving.adding, moving.removing)
        assert (brokers(0, 1), 0, 0) == (moving.isr, moving.leader, moving.leader_epoch)
        assert ControllerDecision() == decide_finish(image)
        image = changed(image, replace(moving, isr=brokers(0, 1, 2), partition_epoch=2))
        then = first(after(image, decide_finish(image)))
        assert (
            PartitionImage(
                replicas=brokers(2, 1),
                isr=brokers(1, 2),
                leader=BrokerId(2),
                leader_epoch=LeaderEpoch(1),
                partition_epoch=3,
            )
            == then
        )

    def test_fewer_replicas_wait_for_nobody(self) -> None:
        image = with_topic((0, 1))
        then = first(after(image, decide_reassign(image, [to(1)])))
        assert (brokers(1), brokers(1), 1, ()) == (then.replicas, then.isr, then.leader, then.removing)

    def test_a_replica_that_is_behind_is_waited_for(self) -> None:
        image = with_topic((0, 1))
        image = changed(image, replace(first(image), isr=brokers(0)))
        then = first(after(image, decide_reassign(image, [to(1)])))
        assert (brokers(1, 0), brokers(0), 0, brokers(0)) == (then.replicas, then.isr, then.leader, then.removing)

    def test_a_move_taken_back(self) -> None:
        image = with_topic((0, 1))
        moving = after(image, decide_reassign(image, [to(2, 3)]))
        moving = changed(moving, replace(first(moving), isr=brokers(0, 1, 2), leader=BrokerId(2)))
        then = first(after(moving, decide_reassign(moving, [BACK])))
        assert (brokers(0, 1), brokers(0, 1), (), ()) == (then.replicas, then.isr, then.adding, then.removing)
        assert (0, 1) == (then.leader, then.leader_epoch)

    def test_a_move_that_cannot_be_taken_back(self) -> None:
        image = with_topic((0,))
        moving = after(image, decide_reassign(image, [to(2, 3)]))
        moving = changed(moving, replace(first(moving), isr=brokers(2), leader=BrokerId(2)))
        assert [ErrorCode.INVALID_REPLICA_ASSIGNMENT] == codes(decide_reassign(moving, [BACK]))

    def test_another_move_takes_the_place_of_one(self) -> None:
        image = with_topic((0, 1))
        image = after(image, decide_reassign(image, [to(0, 2)]))
        image = after(image, decide_reassign(image, [to(0, 3)]))
        then = first(image)
        assert (brokers(0, 3, 1), brokers(3), brokers(1)) == (then.replicas, then.adding, then.removing)

    def test_refusals(self) -> None:
        image = with_topic((0, 1), (0, 1))
        asked = [
            BACK,
            to(0, 9, partition=1),
            to(0, partition=2),
            Reassignment(topic="x", partition=0, replicas=None),
        ]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            unknown,
            unknown,
        ] == codes(decide_reassign(image, asked))
        invalid = [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
        assert invalid == codes(decide_reassign(image, [to()]))
        assert invalid == codes(decide_reassign(image, [to(1, 1)]))
        assert [ErrorCode.INVALID_REQUEST] * 2 == codes(decide_reassign(image, [to(1), to(2)]))
