"""Whom a producer takes for the leaders of a topic, by metadata of several brokers that hear of changes one by one."""

from uuid import UUID

from ottla.client.network.cluster_view import PartitionView, TopicView
from ottla.client.producer.batching.partition_queue_state import PartitionQueue
from ottla.client.producer.topic_routes import TopicRoutes
from ottla.sim.random import SimRandom

FIRST, SECOND = UUID(int=1), UUID(int=2)


def told(routes: TopicRoutes, topic_id: UUID | None, leader: int | None, leader_epoch: int) -> tuple[int | None, int]:
    """Who leads after this was told, and in which epoch."""
    partition = PartitionView(index=0, leader=leader, leader_epoch=leader_epoch, replicas=(0, 1), isr=(0, 1))
    routes.update(TopicView(name="t", id=topic_id, is_internal=False, partitions=(partition,)), PartitionQueue)
    queue = routes.queues[0]
    return queue.leader, queue.leader_epoch


def test_an_older_leader_is_not_believed() -> None:
    routes = TopicRoutes("t", SimRandom(1), 1000)
    assert (1, 5) == told(routes, FIRST, 1, 5)
    assert (1, 5) == told(routes, FIRST, 0, 4)
    assert (None, 5) == told(routes, FIRST, None, 5)
    assert [] == routes.available
    assert (0, 6) == told(routes, FIRST, 0, 6)
    assert [0] == routes.available


def test_a_topic_that_was_made_anew_counts_from_the_beginning() -> None:
    routes = TopicRoutes("t", SimRandom(1), 1000)
    assert (1, 5) == told(routes, FIRST, 1, 5)
    assert (0, 0) == told(routes, SECOND, 0, 0)


def test_who_names_no_epoch_is_believed() -> None:
    routes = TopicRoutes("t", SimRandom(1), 1000)
    assert (1, 5) == told(routes, None, 1, 5)
    assert (0, -1) == told(routes, None, 0, -1)
