"""Moves of replicas: a plan with its exact effect, then a job that starts it, reports progress and clears the throttle.

Plans, throttles and progress are those of `ottla cluster reassign` (`ottla.operations.reassignment`).
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.replica_requests import list_reassignments
from ottla.client.admin.topic_requests import partition_sizes
from ottla.console.cluster.access import Access
from ottla.console.cluster.jobs import Job
from ottla.console.errors import InvalidFormError, NotFoundError
from ottla.console.web.human import plural, short_bytes, span
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.operations.reassignment.execution import cancel_moves, clear_throttle_of, start_moves
from ottla.operations.reassignment.plan import plan_moves, write_plan
from ottla.operations.reassignment.progress import TIMEOUT_MS, placement_of, progress_of
from ottla.operations.reassignment.throttle import ThrottleConfigs, clear_throttle, find_throttle

_WATCH_SECONDS: Final = 1.0
_THROTTLE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """A plan and what it does."""

    topic: str
    brokers: tuple[int, ...]
    replication_factor: int | None
    """None for the present one."""
    bytes_per_second: int | None
    """What each broker may copy; None without a limit."""
    moves: Mapping[TopicPartition, tuple[int, ...]]
    """The partitions that change, and their new replicas."""
    present: Mapping[TopicPartition, tuple[int, ...]]
    copied_bytes: int
    """What new replicas have to copy."""
    busiest_bytes: int
    """What the busiest broker has to send or receive."""

    @property
    def copies(self) -> int:
        """New replicas."""
        return sum(len(set(replicas) - set(self.present[each])) for each, replicas in self.moves.items())

    @property
    def removals(self) -> int:
        """Replicas that go."""
        return sum(len(set(self.present[each]) - set(replicas)) for each, replicas in self.moves.items())

    @property
    def seconds(self) -> float | None:
        """How long the throttle makes it take at least; None without one."""
        return None if self.bytes_per_second is None else self.busiest_bytes / self.bytes_per_second

    @property
    def document(self) -> str:
        """The plan as a file, for `ottla cluster reassign execute`."""
        return write_plan(self.moves)

    @property
    def digest(self) -> str:
        """Differs between plans that move other replicas."""
        before = write_plan({each: self.present[each] for each in self.moves})
        return hashlib.sha256(f"{before}\n{self.document}".encode()).hexdigest()

    def check_shown(self, digest: str) -> None:
        """Raises `InvalidFormError` if this is not the plan that was shown, whose digest this is."""
        if digest != self.digest:
            raise InvalidFormError(
                f"replicas of {self.topic} or brokers have changed since this plan was shown; nothing was moved: load"
                " the page again for a new plan"
            )

    @property
    def sentence(self) -> str:
        """The exact effect."""
        if not self.moves:
            return "Nothing to move: replicas and leaders are spread evenly over these brokers already."
        changed = plural(len(self.moves), "partition")
        if not self.copies and self.removals:
            return f"Removes {plural(self.removals, 'replica')} of {changed}; copies nothing."
        if not self.copies:
            return f"Changes the order of replicas of {changed}, and so their preferred leaders; copies nothing."
        size = short_bytes(self.copied_bytes)
        replicas = plural(self.copies, "new replica")
        if self.seconds is None:
            return f"Moves {changed}: {replicas}, about {size}, as fast as brokers can copy."
        rate = f"{short_bytes(self.bytes_per_second or 0)}/s for each broker"
        return f"Moves {changed}: {replicas}, about {size}, at {rate}: {span(self.seconds)}."


async def plan_topic(
    access: Access,
    topic: str,
    brokers: Sequence[int],
    replication_factor: int | None,
    bytes_per_second: int | None,
) -> MovePlan:
    """Spreads the replicas of a topic evenly over brokers. Raises `PlanError`, `InvalidFormError`, `NotFoundError`."""
    cluster = access.cluster
    view = await cluster.retry(cluster.refresh)
    if topic not in view.topics:
        raise NotFoundError(f"topic {topic} does not exist, or you may not describe it")
    unknown = sorted(set(brokers) - view.brokers.keys())
    if unknown or not brokers:
        known = ", ".join(map(str, sorted(view.brokers)))
        raise InvalidFormError(f"choose from the brokers of this cluster: {known}")
    present = placement_of(view, [topic])
    moves = plan_moves(present, {each: view.brokers[each].rack for each in brokers}, replication_factor)
    leaders = {TopicPartition(topic, each.index): each.leader for each in view.topics[topic].partitions}
    sizes = await partition_sizes(cluster, list(moves))
    received: Counter[int] = Counter()
    sent: Counter[int] = Counter()
    for partition, replicas in moves.items():
        for broker in set(replicas) - set(present[partition]):
            received[broker] += sizes.get(partition, 0)
            sent[leaders[partition] or -1] += sizes.get(partition, 0)
    return MovePlan(
        topic=topic,
        brokers=tuple(brokers),
        replication_factor=replication_factor,
        bytes_per_second=bytes_per_second,
        moves=moves,
        present=present,
        copied_bytes=sum(received.values()),
        busiest_bytes=max([*received.values(), *sent.values()], default=0),
    )


def start_plan(access: Access, plan: MovePlan) -> Job:
    """Starts a job that moves replicas. Stopping the job cancels what is not moved yet."""

    async def work(job: Job) -> str:
        details = {
            "partitions": len(plan.moves),
            "bytes": plan.copied_bytes,
            "throttle": plan.bytes_per_second,
            "plan": plan.document,
        }
        async with access.change("reassign replicas of topic", plan.topic, details):
            _, refused = await start_moves(access.cluster, dict(plan.moves), plan.bytes_per_second)
        started = [each for each in plan.moves if each not in refused]
        try:
            await _watch(access, job, plan, started)
        except asyncio.CancelledError:
            await _cancel(access, plan, started)
            raise
        await clear_throttle_of(access.cluster, plan.moves)
        if refused:
            reasons = "; ".join(str(each) for each in list(refused.values())[:3])
            return f"moved {plural(len(started), 'partition')}; {len(refused)} refused: {reasons}"
        return f"moved {plural(len(started), 'partition')}, {short_bytes(plan.copied_bytes)}"

    job = access.start_job("reassign", f"Move replicas of {plan.topic}", work)
    job.report(0, plan.copied_bytes, unit="bytes")
    return job


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftThrottle:
    """A throttle for copies of replicas, and whether something still moves with it."""

    configs: ThrottleConfigs
    moving: int
    """Partitions that are being moved, by any reassignment."""

    @property
    def is_left(self) -> bool:
        """Whether it only slows down replication now: what set it has ended, or was killed."""
        return bool(self.configs) and not self.moving


async def find_left_throttle(access: Access) -> LeftThrottle:
    """The throttle of brokers and topics. One is left behind by a console or a command that was killed."""
    cluster = access.cluster
    view = await cluster.retry(cluster.refresh)
    moving = await list_reassignments(cluster, None, timeout_ms=TIMEOUT_MS)
    return LeftThrottle(configs=await find_throttle(cluster, list(view.topics)), moving=len(moving))


async def has_left_throttle(access: Access) -> bool:
    """Whether brokers have a throttle that nothing needs; asked again after some seconds. False if the user may not
    know."""

    async def ask() -> bool:
        cluster = access.cluster
        try:
            if not (await find_throttle(cluster, [])).rates:
                return False
            return not await list_reassignments(cluster, None, timeout_ms=TIMEOUT_MS)
        except OttlaError:
            return False

    return await access.clients.remembered.get("left throttle", _THROTTLE_SECONDS, ask)


async def remove_left_throttle(access: Access) -> None:
    """Removes a throttle that was left behind. Raises `InvalidFormError` while partitions are being moved."""
    found = await find_left_throttle(access)
    details = {"rates": dict(found.configs.rates), "topics": list(found.configs.topics)}
    async with access.change("remove replication throttle", "cluster", details):
        if found.moving:
            raise InvalidFormError(
                f"{plural(found.moving, 'partition')} still moving: the throttle is removed when the moves have ended"
            )
        await clear_throttle(access.cluster, found.configs.topics)
    access.clients.remembered.forget("left throttle")


async def _watch(access: Access, job: Job, plan: MovePlan, started: Sequence[TopicPartition]) -> None:
    while started:
        try:
            progress = await progress_of(access.cluster, started)
        except OttlaError as error:
            # Brokers go on by themselves while this page cannot ask them.
            job.report(note=f"cannot read the progress: {error}")
        else:
            done = max(plan.copied_bytes - progress.bytes_left, 0)
            job.report(done, plan.copied_bytes, note=f"{plural(len(progress.moving), 'partition')} in progress")
            if not progress.moving:
                return
        await asyncio.sleep(_WATCH_SECONDS)


async def _cancel(access: Access, plan: MovePlan, started: Sequence[TopicPartition]) -> None:
    async with access.change("cancel reassignment of topic", plan.topic, {"partitions": len(started)}):
        moving = (await progress_of(access.cluster, started)).moving
        if moving:
            await cancel_moves(access.cluster, moving)
        await clear_throttle_of(access.cluster, plan.moves)
