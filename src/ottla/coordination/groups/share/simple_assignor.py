"""The `simple` assignor of share groups: every partition has members, every member has about as many partitions.

Pure. Several members may have the same partition. With more members than partitions each partition is shared by as many
members as it takes to give every member one. Members keep what they have as far as that allows. Where subscriptions
differ, each topic is assigned by itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.coordination.groups.record_values import Assignment

SIMPLE: Final = "simple"

_Place = tuple[UUID, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedMember:
    """A member, the topics it subscribes to that exist, and what its target was."""

    member_id: str
    topic_ids: frozenset[UUID]
    last_target: Assignment


def assign(members: Sequence[AssignedMember], partitions: Mapping[UUID, Iterable[int]]) -> dict[str, Assignment]:
    """The target of each member; `partitions` has the assignable partitions of each topic."""
    ordered = sorted(members, key=lambda member: member.member_id)
    found: dict[str, set[_Place]] = {member.member_id: set() for member in ordered}
    topic_ids = sorted({topic_id for member in ordered for topic_id in member.topic_ids})
    is_alike = all(member.topic_ids == ordered[0].topic_ids for member in ordered)
    for together in [topic_ids] if is_alike else [[topic_id] for topic_id in topic_ids]:
        places = [(topic_id, index) for topic_id in together for index in sorted(partitions.get(topic_id, ()))]
        subscribers = [member for member in ordered if not member.topic_ids.isdisjoint(together)]
        for member_id, given in _spread(subscribers, places).items():
            found[member_id] |= given
    return {member_id: _by_topic(given) for member_id, given in found.items()}


def _spread(members: Sequence[AssignedMember], places: Sequence[_Place]) -> dict[str, set[_Place]]:
    """Gives each partition the same number of members, and the members numbers that differ by one at most."""
    found: dict[str, set[_Place]] = {member.member_id: set() for member in members}
    if not members or not places:
        return found
    sharing = -(-len(members) // len(places))
    total = sharing * len(places)
    # The larger quotas are spread over the members: -(-x // y) rounds up.
    quotas = {
        member.member_id: -(-total * (at + 1) // len(members)) + (-total * at // len(members))
        for at, member in enumerate(members)
    }
    lacking = dict.fromkeys(places, sharing)
    for member in members:
        held = found[member.member_id]
        for topic_id, indexes in member.last_target.items():
            for index in indexes:
                place = (topic_id, index)
                if lacking.get(place, 0) > 0 and len(held) < quotas[member.member_id]:
                    held.add(place)
                    lacking[place] -= 1
    # First those that would have no member.
    for place in sorted(places, key=lambda place: -lacking[place]):
        for _ in range(lacking[place]):
            taker = max(
                (member.member_id for member in members if place not in found[member.member_id]),
                key=lambda member_id: quotas[member_id] - len(found[member_id]),
                default=None,
            )
            if taker is None or len(found[taker]) >= quotas[taker]:
                break
            found[taker].add(place)
    return found


def _by_topic(places: Iterable[_Place]) -> Assignment:
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(places):
        topics.setdefault(topic_id, []).append(index)
    return {topic_id: tuple(indexes) for topic_id, indexes in topics.items()}
