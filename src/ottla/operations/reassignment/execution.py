"""Starts and cancels the moves of a plan, with the throttle that limits how fast replicas are copied."""

from collections.abc import Iterable, Mapping

from ottla.client.admin.replica_requests import alter_reassignments, list_reassignments
from ottla.client.errors import AnswerError
from ottla.client.network.cluster import Cluster
from ottla.model.ids import TopicPartition
from ottla.operations.reassignment.progress import TIMEOUT_MS, placement_of
from ottla.operations.reassignment.throttle import clear_throttle, set_throttle


async def start_moves(
    cluster: Cluster, plan: Mapping[TopicPartition, tuple[int, ...]], bytes_per_second: int | None
) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[TopicPartition, AnswerError]]:
    """Starts the moves of a plan; returns the replicas before, which undo the plan, and the moves that were refused.

    With a rate, each broker copies at most that many bytes per second, until the throttle is cleared.
    """
    present = placement_of(await cluster.refresh())
    before = {each: present[each] for each in plan if each in present}
    if bytes_per_second is not None:
        moving = await list_reassignments(cluster, plan, timeout_ms=TIMEOUT_MS)
        gone = {each: tuple(set(move.replicas) - set(move.adding_replicas)) for each, move in moving.items()}
        await set_throttle(cluster, {**before, **gone}, plan, bytes_per_second)
    return before, await alter_reassignments(cluster, plan, timeout_ms=TIMEOUT_MS)


async def cancel_moves(cluster: Cluster, moving: Iterable[TopicPartition]) -> dict[TopicPartition, AnswerError]:
    """Cancels moves in progress: replicas stay where they were. Returns what was refused; the throttle stays."""
    return await alter_reassignments(cluster, dict.fromkeys(moving), timeout_ms=TIMEOUT_MS)


async def clear_throttle_of(cluster: Cluster, moved: Iterable[TopicPartition]) -> bool:
    """Removes the throttle of the topics of these partitions; returns whether there was one. The rates of brokers stay
    while other partitions are being moved with them."""
    moving = await list_reassignments(cluster, None, timeout_ms=TIMEOUT_MS)
    return await clear_throttle(cluster, sorted({each.topic for each in moved}), rates=not moving)
