"""Of each topic, every subscriber gets one run of neighbouring partitions, so that like partitions of topics meet."""

from collections.abc import Mapping

from ottla.client.assignors.assignor import Assignment, MemberSubscription, PlainAssignor, static_first
from ottla.model.ids import TopicPartition


class RangeAssignor(PlainAssignor):
    """Cuts each topic by itself; those who come first get one more where it does not divide."""

    name = "range"

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        """See `Assignor`."""
        assignment: Assignment = {member_id: [] for member_id in members}
        ordered = sorted(members.items(), key=static_first)
        for topic, count in sorted(partition_counts.items()):
            subscribers = [member_id for member_id, subscription in ordered if topic in subscription.topics]
            if not subscribers:
                continue
            quota, extra = divmod(count, len(subscribers))
            start = 0
            for index, member_id in enumerate(subscribers):
                end = start + quota + (index < extra)
                assignment[member_id] += [TopicPartition(topic, partition) for partition in range(start, end)]
                start = end
        return assignment
