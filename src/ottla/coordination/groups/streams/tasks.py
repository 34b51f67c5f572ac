"""Tasks of a Kafka Streams application: a subtopology and a partition of its source topics, in one of three roles.

Plain values. An active task processes records; a standby task copies the state of an active one; a warm-up task does so
before an active task moves to it. Warm-up tasks are read and written, but not assigned, as in Kafka 4.3.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

Tasks = Mapping[str, tuple[int, ...]]
"""Partitions by subtopology id, both ascending; a subtopology without partitions is not in it."""

TaskEpochs = Mapping[str, Mapping[int, int]]
"""Partitions by subtopology id, each with the member epoch since which the member has the task."""

NO_TASKS: Final[Tasks] = {}


class TaskId(NamedTuple):
    """One task."""

    subtopology_id: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSet:
    """The tasks of one member by role: its target, or what it reports to own."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is no task in any role."""
        return not (self.active or self.standby or self.warmup)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTasks:
    """The tasks that a member has, or is giving up; only active tasks have epochs."""

    active: TaskEpochs = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is no task in any role."""
        return not (self.active or self.standby or self.warmup)

    def task_set(self) -> TaskSet:
        """The tasks without their epochs."""
        active = {subtopology_id: tuple(epochs) for subtopology_id, epochs in self.active.items()}
        return TaskSet(active=active, standby=self.standby, warmup=self.warmup)

    def active_ids(self) -> Iterator[TaskId]:
        """Every active task."""
        for subtopology_id, epochs in self.active.items():
            for partition in epochs:
                yield TaskId(subtopology_id, partition)

    def copy_ids(self) -> Iterator[TaskId]:
        """Every standby and warm-up task."""
        yield from task_ids(self.standby)
        yield from task_ids(self.warmup)


NOTHING: Final = TaskSet()
NOTHING_HELD: Final = HeldTasks()


def task_ids(tasks: Tasks) -> Iterator[TaskId]:
    """Every task, one by one."""
    for subtopology_id, partitions in tasks.items():
        for partition in partitions:
            yield TaskId(subtopology_id, partition)


def as_tasks(ids: Iterable[TaskId]) -> Tasks:
    """Tasks by subtopology, both ascending."""
    found: dict[str, list[int]] = {}
    for subtopology_id, partition in sorted(set(ids)):
        found.setdefault(subtopology_id, []).append(partition)
    return {subtopology_id: tuple(partitions) for subtopology_id, partitions in found.items()}


def shares_tasks(owned: TaskSet, held: HeldTasks) -> bool:
    """Whether any task is in both, in the same role."""
    return (
        not set(task_ids(owned.active)).isdisjoint(held.active_ids())
        or not set(task_ids(owned.standby)).isdisjoint(task_ids(held.standby))
        or not set(task_ids(owned.warmup)).isdisjoint(task_ids(held.warmup))
    )


def owns_only(owned: TaskSet | None, held: HeldTasks) -> bool:
    """Whether all reported tasks are held in the same role; false without a report."""
    return (
        owned is not None
        and set(held.active_ids()).issuperset(task_ids(owned.active))
        and set(task_ids(held.standby)).issuperset(task_ids(owned.standby))
        and set(task_ids(held.warmup)).issuperset(task_ids(owned.warmup))
    )
