"""How one member of a streams group gets from its current tasks to its target, a heartbeat at a time.

Pure functions. First the member gives up tasks that are not in its target, and stays at its epoch until it reports that
it owns none of them; then it moves to the target epoch and gets the tasks that are free; those that others still own
follow when they are released. So an active task never has two owners, and a process never has a task twice in any role,
since both would use the same state directory.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ottla.coordination.groups.streams.group import Member
from ottla.coordination.groups.streams.records import MemberState
from ottla.coordination.groups.streams.tasks import (
    NOTHING_HELD,
    HeldTasks,
    TaskEpochs,
    TaskId,
    Tasks,
    TaskSet,
    as_tasks,
    shares_tasks,
    task_ids,
)

IsTaken = Callable[[TaskId], bool]
"""Whether another member still has a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The target of a member, and which of its tasks are not free."""

    target_epoch: int
    target: TaskSet
    is_active_elsewhere: IsTaken
    """Another member has the task as an active one, or is giving it up."""
    is_in_process: IsTaken
    """Another member of the same process has the task in any role, or is giving it up."""


def reconcile(member: Member, goal: Goal, owned: TaskSet | None) -> Member | None:
    """The member after its next step, unchanged if there is none, or None if it must rejoin. `owned` is its report."""
    match member.state:
        case MemberState.STABLE if member.member_epoch == goal.target_epoch:
            return member
        case MemberState.UNREVOKED if owned is None or shares_tasks(owned, member.revoking):
            return member
        case MemberState.UNREVOKED:
            return _advance(member, goal, owned, member.member_epoch + 1)
        case MemberState.UNKNOWN if owned is None or not owned.is_empty:
            return None
        case MemberState.UNKNOWN:
            return _advance(member, goal, owned, goal.target_epoch)
    return _advance(member, goal, owned, member.member_epoch)


def _advance(member: Member, goal: Goal, owned: TaskSet | None, epoch: int) -> Member:
    target, assigned = goal.target, member.assigned
    kept_active, revoked_active = _split_epochs(assigned.active, target.active)
    kept_standby, revoked_standby = _split(assigned.standby, target.standby)
    kept_warmup, revoked_warmup = _split(assigned.warmup, target.warmup)
    revoked = HeldTasks(active=revoked_active, standby=revoked_standby, warmup=revoked_warmup)
    if not revoked.is_empty and (owned is None or shares_tasks(owned, revoked)):
        kept = HeldTasks(active=kept_active, standby=kept_standby, warmup=kept_warmup)
        return _moved(member, MemberState.UNREVOKED, epoch, kept, revoked)

    def is_taken(task: TaskId) -> bool:
        return goal.is_active_elsewhere(task) or goal.is_in_process(task)

    new_active, waits_active = _free(target.active, kept_active, is_taken)
    new_standby, waits_standby = _free(target.standby, kept_standby, goal.is_in_process)
    new_warmup, waits_warmup = _free(target.warmup, kept_warmup, goal.is_in_process)
    active = {subtopology_id: dict(epochs) for subtopology_id, epochs in kept_active.items()}
    for subtopology_id, partition in new_active:
        active.setdefault(subtopology_id, {})[partition] = goal.target_epoch
    has = HeldTasks(
        active={key: dict(sorted(active[key].items())) for key in sorted(active)},
        standby=as_tasks([*task_ids(kept_standby), *new_standby]),
        warmup=as_tasks([*task_ids(kept_warmup), *new_warmup]),
    )
    is_waiting = waits_active or waits_standby or waits_warmup
    state = MemberState.UNRELEASED if is_waiting else MemberState.STABLE
    if state is member.state and epoch == goal.target_epoch and has == assigned and member.revoking.is_empty:
        return member
    return _moved(member, state, goal.target_epoch, has, NOTHING_HELD)


def _split_epochs(current: TaskEpochs, target: Tasks) -> tuple[TaskEpochs, TaskEpochs]:
    """Tasks that stay, and those to give up."""
    kept: dict[str, dict[int, int]] = {}
    revoked: dict[str, dict[int, int]] = {}
    for subtopology_id, epochs in current.items():
        wanted = frozenset(target.get(subtopology_id, ()))
        for partition, since in epochs.items():
            (kept if partition in wanted else revoked).setdefault(subtopology_id, {})[partition] = since
    return kept, revoked


def _split(current: Tasks, target: Tasks) -> tuple[Tasks, Tasks]:
    wanted = frozenset(task_ids(target))
    ids = list(task_ids(current))
    return as_tasks(task for task in ids if task in wanted), as_tasks(task for task in ids if task not in wanted)


def _free(target: Tasks, kept: TaskEpochs | Tasks, is_taken: IsTaken) -> tuple[list[TaskId], bool]:
    """The tasks that the member can get now, and whether it has to wait for others."""
    wanted = [task for task in task_ids(target) if task.partition not in kept.get(task.subtopology_id, ())]
    free = [task for task in wanted if not is_taken(task)]
    return free, len(free) < len(wanted)


def _moved(member: Member, state: MemberState, epoch: int, assigned: HeldTasks, revoking: HeldTasks) -> Member:
    return replace(
        member,
        state=state,
        previous_member_epoch=member.member_epoch,
        member_epoch=epoch,
        assigned=assigned,
        revoking=revoking,
    )
