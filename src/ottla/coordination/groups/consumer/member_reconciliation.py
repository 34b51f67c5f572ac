"""How one member of a server-side group gets from what it has to its target, a heartbeat at a time.

Pure functions. First the member gives up what is not in its target, staying at its epoch until it reports that it owns
none of that any more; then it moves to the target's epoch and gets what is free; what others still hold it gets later,
as they release it. So a partition never has two owners, whatever is lost on the way.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from ottla.coordination.groups.consumer.group import Member
from ottla.coordination.groups.consumer.records import Assignment, Holdings, MemberState


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Where a member shall go, and what stands in the way."""

    target_epoch: int
    target: Assignment
    subscribed_ids: Collection[UUID]
    """The topics that the member is subscribed to now; the target may be older than that."""
    subscription_changed: bool
    owners: Mapping[tuple[UUID, int], str]
    """Who has each partition, or is still giving it up."""


def reconcile(member: Member, goal: Goal, owned: Assignment | None) -> Member | None:
    """The member's next step, itself if there is none, or None if it must rejoin. `owned` is what it reported."""
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
    """Whether what the member reported is part of what it was assigned; not if it reported nothing."""
    return owned is not None and all(
        partition in assigned.get(topic_id, {}) for topic_id, partitions in owned.items() for partition in partitions
    )


def _owns_any(owned: Assignment | None, revoking: Holdings) -> bool:
    """Whether the member still owns some of these, as far as is known."""
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
            # What this member itself was giving up, and is given back, is free: nobody else can have it.
            if goal.owners.get((topic_id, partition), member.member_id) != member.member_id:
                has_unreleased = True
            else:
                kept.setdefault(topic_id, {})[partition] = goal.target_epoch
    state = MemberState.UNRELEASED if has_unreleased else MemberState.STABLE
    return _moved(member, state, goal.target_epoch, kept, {})


def _drop_unsubscribed(member: Member, goal: Goal, owned: Assignment | None) -> Member:
    """Takes away what the member no longer wants, ahead of a target that does not know it yet."""
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
    return replace(
        member,
        state=state,
        previous_member_epoch=member.member_epoch,
        member_epoch=epoch,
        assigned={topic_id: dict(sorted(epochs.items())) for topic_id, epochs in sorted(assigned.items())},
        revoking={topic_id: dict(sorted(epochs.items())) for topic_id, epochs in sorted(revoking.items())},
    )
