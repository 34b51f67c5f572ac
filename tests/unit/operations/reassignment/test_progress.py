"""Where replicas are, and which partitions a plan has not moved."""

from ottla.client.admin.replica_requests import PartitionReassignment
from ottla.client.network.cluster_view import ClusterView, PartitionView, TopicView
from ottla.model.ids import TopicPartition
from ottla.operations.reassignment.progress import Progress, not_there, placement_of

E0, E1, USERS = TopicPartition("events", 0), TopicPartition("events", 1), TopicPartition("users", 0)


def topic(name: str, *replicas: tuple[int, ...]) -> TopicView:
    partitions = tuple(
        PartitionView(index=index, leader=None, leader_epoch=0, replicas=some, isr=())
        for index, some in enumerate(replicas)
    )
    return TopicView(name=name, id=None, is_internal=False, partitions=partitions)


VIEW = ClusterView(topics={"events": topic("events", (1, 2), (2, 3)), "users": topic("users", (3,))})


def test_the_replicas_of_all_topics_or_of_some() -> None:
    assert {E0: (1, 2), E1: (2, 3), USERS: (3,)} == placement_of(VIEW)
    assert {USERS: (3,)} == placement_of(VIEW, ["users", "gone"])
    assert {} == placement_of(VIEW, [])


def test_partitions_that_are_elsewhere_and_are_not_being_moved() -> None:
    plan = {E0: (1, 2), E1: (3, 2), USERS: (1,), TopicPartition("gone", 0): (1,)}
    moving = {USERS: PartitionReassignment(replicas=(3, 1), adding_replicas=(1,), removing_replicas=(3,))}
    assert [E1, TopicPartition("gone", 0)] == not_there(VIEW, plan, Progress(moving, 0, 0))
