"""Round robin: all partitions of all topics are assigned in turn to the members that subscribed."""

from collections.abc import Mapping
from itertools import cycle

from ottla.client.group.assignors.assignor import Assignment, MemberSubscription, PlainAssignor, static_first
from ottla.model.ids import TopicPartition


class RoundRobinAssignor(PlainAssignor):
    """Goes through partitions in topic order; members that are not subscribed to the topic are skipped."""

    name = "roundrobin"

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        """As in `Assignor`."""
        assignment: Assignment = {member_id: [] for member_id in members}
        wanted = {topic for subscription in members.values() for topic in subscription.topics}
        turns = cycle(sorted(members.items(), key=static_first))
        for topic in sorted(wanted & partition_counts.keys()):
            for partition in range(partition_counts[topic]):
                member_id = next(member_id for member_id, subscription in turns if topic in subscription.topics)
                assignment[member_id].append(TopicPartition(topic, partition))
        return assignment
