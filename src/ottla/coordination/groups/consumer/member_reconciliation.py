"""How one member of a consumer group gets from its current assignment to its target, a heartbeat at a time.

Pure functions. First the member gives up partitions that are not in its target, and stays at its epoch until it reports
that it owns none of them; then it moves to the target epoch and gets the partitions that are free; those that other
members still own follow when they are released. So a partition never has two owners, whichever messages are lost.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.coordination.groups.consumer.group import Member
from ottla.coordination.groups.consumer.records import Holdings, MemberState
from ottla.coordination.groups.record_values import Assignment


class Goal(NamedTuple):
    """The target of a member, and the owners of its partitions."""

    target_epoch: int
    target: Assignment
    subscribed_ids: Collection[UUID]
    """The topics that the member subscribes to; the target may be older than the subscription."""
    subscription_changed: bool
    owners: Mapping[tuple[UUID, int], str]
    """The member that has each partition, or is still giving it up."""


def reconcile(member: Member, goal: Goal, owned: Assignment | None) -> Member | None:
    """The member after its next step, unchanged if there is none, or None if it must rejoin. `owned` is its report."""
    match member.state:
        case MemberState.STABLE if member.member_epoch != goal.target_epoch:
            return _advance(member, goal, owned)
        case MemberState.STABLE:
            return _drop_unsubscribed(member, goal, owned) if goal.subscription_changed else member
        case MemberState.UNREVOKED if _owns_any(owned, member.revoking):
            return _drop_unsubscribed(member, goal, owned) if goal.subscription_changed else member
        case MemberState.UNKNOWN if owned is None or any(owned.values()):
            return None
    return _advance(member, goal, owned)


def owns_only(owned: Assignment | None, assigned: Holdings) -> bool:
    """Whether the reported partitions are part of the assigned ones; false without a report."""
    return owned is not None and all(
        partition in assigned.get(topic_id, {}) for topic_id, partitions in owned.items() for partition in partitions
    )


def _owns_any(owned: Assignment | None, revoking: Holdings) -> bool:
    """Whether the member may still own some of these."""
    return owned is None or any(
        partition in revoking.get(topic_id, {}) for topic_id, partitions in owned.items() for partition in partitions
    )


def _advance(member: Member, goal: Goal, owned: Assignment | None) -> Member:
    kept: dict[UUID, dict[int, int]] = {}
    revoked: dict[UUID, dict[int, int]] = {}
    for topic_id, epochs in member.assigned.items():
        wanted = frozenset(goal.target.get(topic_id, ()) if topic_id in goal.subscribed_ids else ())
        for partition, since in epochs.items():
            (kept if partition in wanted else revoked).setdefault(topic_id, {})[partition] = since
    if revoked and _owns_any(owned, revoked):
        return _moved(member, MemberState.UNREVOKED, member.member_epoch, kept, revoked)
    has_unreleased = False
    for topic_id, partitions in goal.target.items():
        if topic_id not in goal.subscribed_ids:
            continue
        for partition in partitions:
            if partition in kept.get(topic_id, {}):
                continue
            # A partition that this member itself was giving up is free: no other member can have it.
            if goal.owners.get((topic_id, partition), member.member_id) != member.member_id:
                has_unreleased = True
            else:
                kept.setdefault(topic_id, {})[partition] = goal.target_epoch
    state = MemberState.UNRELEASED if has_unreleased else MemberState.STABLE
    return _moved(member, state, goal.target_epoch, kept, {})


def _drop_unsubscribed(member: Member, goal: Goal, owned: Assignment | None) -> Member:
    """Revokes partitions of unsubscribed topics at once, before the next target leaves them out."""
    kept = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id in goal.subscribed_ids}
    if len(kept) == len(member.assigned):
        return member
    revoked = {topic_id: dict(epochs) for topic_id, epochs in member.revoking.items()}
    for topic_id, epochs in member.assigned.items():
        if topic_id not in kept:
            revoked[topic_id] = {**revoked.get(topic_id, {}), **epochs}
    if _owns_any(owned, revoked):
        return _moved(member, MemberState.UNREVOKED, member.member_epoch, kept, revoked)
    return _moved(member, member.state, member.member_epoch, kept, member.revoking)


def _moved(member: Member, state: MemberState, epoch: int, assigned: Holdings, revoking: Holdings) -> Member:
    return Member(
        member_id=member.member_id,
        said=member.said,
        state=state,
        previous_member_epoch=member.member_epoch,
        member_epoch=epoch,
        assigned={topic_id: dict(sorted(epochs.items())) for topic_id, epochs in sorted(assigned.items())},
        revoking={topic_id: dict(sorted(epochs.items())) for topic_id, epochs in sorted(revoking.items())},
    )
