"""The target assignment of a streams group: the sticky assignor.

Pure function of the members, the subtopologies and the last target; everything is taken in a fixed order, so that the
same input always gives the same target. Active tasks stay where they were, then go to members that had them as standby
tasks, as long as no member gets more than its share; the rest goes to the process with the least load for each of its
members. Standby tasks then go to other processes than the active task's, first to those that had them before.
"""

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ottla.coordination.groups.streams.tasks import NOTHING, TaskId, TaskSet, as_tasks, task_ids
from ottla.coordination.groups.streams.topology_configuration import ConfiguredSubtopology


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedMember:
    """A member as the assignor sees it. Members of one process share its state directory."""

    member_id: str
    process_id: str
    last_target: TaskSet = NOTHING


def assign(
    members: Sequence[AssignedMember], subtopologies: Collection[ConfiguredSubtopology], standby_replicas: int
) -> dict[str, TaskSet]:
    """The target of every member. Each task is active exactly once; a stateful one has up to `standby_replicas` standby
    tasks, all in different processes."""
    if not members:
        return {}
    draft = _Draft(members, subtopologies, standby_replicas)
    _assign_active(draft)
    if standby_replicas:
        _assign_standby(draft, standby_replicas)
    return draft.targets()


class _Share:
    """How many tasks a member may have: the rest of all tasks, divided among the members that are not full yet."""

    def __init__(self, task_count: int, member_count: int) -> None:
        self._tasks = task_count
        self._members = member_count
        self.per_member = 0
        self._divide()

    def on_assigned(self, load: int) -> None:
        """A member got a task and has this many now. A full one leaves the division with its tasks."""
        if load == self.per_member:
            self._members -= 1
            self._tasks -= load
            self._divide()

    def _divide(self) -> None:
        self.per_member = -(-self._tasks // self._members) if self._members > 0 else 0


class _Process:
    """The members of one process, and their tasks so far."""

    def __init__(self) -> None:
        self.loads: dict[str, int] = {}
        self.tasks: set[TaskId] = set()
        self.task_count = 0
        self._queue: list[tuple[int, str]] = []
        """Members by a load that may be outdated: loads only grow."""

    @property
    def load(self) -> float:
        """Tasks for each member."""
        return self.task_count / len(self.loads)

    def add(self, member_id: str) -> None:
        self.loads[member_id] = 0
        heapq.heappush(self._queue, (0, member_id))

    def least_loaded(self) -> str:
        while True:
            load, member_id = self._queue[0]
            if load == self.loads[member_id]:
                return member_id
            heapq.heapreplace(self._queue, (self.loads[member_id], member_id))


class _Draft:
    """A target being computed."""

    def __init__(
        self,
        members: Sequence[AssignedMember],
        subtopologies: Collection[ConfiguredSubtopology],
        standby_replicas: int,
    ) -> None:
        ordered = sorted(members, key=lambda member: member.member_id)
        self.active_tasks = [TaskId(each.subtopology_id, at) for each in subtopologies for at in range(each.task_count)]
        self.stateful_tasks = [
            TaskId(each.subtopology_id, at)
            for each in subtopologies
            if each.is_stateful
            for at in range(each.task_count)
        ]
        self.process_of = {member.member_id: member.process_id for member in ordered}
        self.processes: dict[str, _Process] = {}
        self.was_active: dict[TaskId, str] = {}
        self.was_standby: dict[TaskId, list[str]] = {}
        self.active: dict[str, list[TaskId]] = {}
        self.standby: dict[str, list[TaskId]] = {}
        for member in ordered:
            self.processes.setdefault(member.process_id, _Process()).add(member.member_id)
            self.active[member.member_id], self.standby[member.member_id] = [], []
            for task in task_ids(member.last_target.active):
                self.was_active[task] = member.member_id
            for task in task_ids(member.last_target.standby):
                self.was_standby.setdefault(task, []).append(member.member_id)
        self.active_share = _Share(len(self.active_tasks), len(ordered))
        total = len(self.active_tasks) + len(self.stateful_tasks) * standby_replicas
        self.total_share = _Share(total, len(ordered))

    def process(self, member_id: str) -> _Process:
        return self.processes[self.process_of[member_id]]

    def load(self, member_id: str) -> int:
        return self.process(member_id).loads[member_id]

    def give(self, member_id: str, task: TaskId, *, is_active: bool) -> None:
        process = self.process(member_id)
        process.tasks.add(task)
        process.task_count += 1
        process.loads[member_id] += 1
        (self.active if is_active else self.standby)[member_id].append(task)
        if is_active:
            self.active_share.on_assigned(process.loads[member_id])
        self.total_share.on_assigned(process.loads[member_id])

    def least_loaded(self, member_ids: Sequence[str]) -> str:
        return min(member_ids, key=lambda each: (self.process(each).load, self.load(each), each))

    def targets(self) -> dict[str, TaskSet]:
        return {
            member_id: TaskSet(active=as_tasks(self.active[member_id]), standby=as_tasks(self.standby[member_id]))
            for member_id in self.process_of
        }


def _by_partition(task: TaskId) -> tuple[int, str]:
    return task.partition, task.subtopology_id


def _assign_active(draft: _Draft) -> None:
    left = []
    for task in sorted(draft.active_tasks, key=_by_partition):
        member_id = draft.was_active.get(task)
        if member_id is not None and draft.load(member_id) < draft.active_share.per_member:
            draft.give(member_id, task, is_active=True)
        else:
            left.append(task)
    rest = []
    for task in left:
        had_it = draft.was_standby.get(task)
        member_id = draft.least_loaded(had_it) if had_it else None
        if member_id is not None and draft.load(member_id) < draft.active_share.per_member:
            draft.give(member_id, task, is_active=True)
        else:
            rest.append(task)
    # By subtopology: a new group gets runs of tasks that each process spreads over its members.
    queue = [(process.load, process_id) for process_id, process in draft.processes.items()]
    heapq.heapify(queue)
    for task in sorted(rest):
        _, process_id = queue[0]
        process = draft.processes[process_id]
        draft.give(process.least_loaded(), task, is_active=True)
        heapq.heapreplace(queue, (process.load, process_id))


def _assign_standby(draft: _Draft, replicas: int) -> None:
    left: list[tuple[TaskId, int]] = []
    for task in sorted(draft.stateful_tasks, key=_by_partition, reverse=True):
        missing = replicas
        while missing:
            member_id = _earlier_holder(draft, task)
            if member_id is None:
                left.append((task, missing))
                break
            draft.give(member_id, task, is_active=False)
            missing -= 1
    queue = [(process.load, process_id) for process_id, process in draft.processes.items()]
    heapq.heapify(queue)
    for task, missing in sorted(left, reverse=True):
        for _ in range(missing):
            if not _give_standby(draft, queue, task):
                # Every process has the task already: there are fewer processes than wanted copies.
                break


def _earlier_holder(draft: _Draft, task: TaskId) -> str | None:
    """A member that had the task, has room for it, and whose process does not have it now."""

    def may_have(member_id: str) -> bool:
        return task not in draft.process(member_id).tasks and draft.load(member_id) < draft.total_share.per_member

    was_active = draft.was_active.get(task)
    if was_active is not None and may_have(was_active):
        return was_active
    candidates = [member_id for member_id in draft.was_standby.get(task, ()) if may_have(member_id)]
    return draft.least_loaded(candidates) if candidates else None


def _give_standby(draft: _Draft, queue: list[tuple[float, str]], task: TaskId) -> bool:
    """Gives the task to the least loaded process that does not have it; returns whether there is one."""
    skipped = []
    is_given = False
    while queue and not is_given:
        load, process_id = heapq.heappop(queue)
        process = draft.processes[process_id]
        if task not in process.tasks:
            draft.give(process.least_loaded(), task, is_active=False)
            load, is_given = process.load, True
        skipped.append((load, process_id))
    for entry in skipped:
        heapq.heappush(queue, entry)
    return is_given
