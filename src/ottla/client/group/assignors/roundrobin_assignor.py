"""All partitions of all topics are dealt out in turn to whoever subscribed."""

from collections.abc import Mapping
from itertools import cycle

from ottla.client.group.assignors.assignor import Assignment, MemberSubscription, PlainAssignor, static_first
from ottla.model.ids import TopicPartition


class RoundRobinAssignor(PlainAssignor):
    """Deals partitions in the order of topics; a member that does not want one is passed over."""

    name = "roundrobin"

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        """See `Assignor`."""
        assignment: Assignment = {member_id: [] for member_id in members}
        wanted = {topic for subscription in members.values() for topic in subscription.topics}
        turns = cycle(sorted(members.items(), key=static_first))
        for topic in sorted(wanted & partition_counts.keys()):
            for partition in range(partition_counts[topic]):
                member_id = next(member_id for member_id, subscription in turns if topic in subscription.topics)
                assignment[member_id].append(TopicPartition(topic, partition))
        return assignment
