"""The admin client's methods about groups: which there are, who is in them, what they committed."""

from collections.abc import Collection, Iterable, Mapping

from ottla.client.admin.group_offsets import commit_offsets, committed_offsets, delete_offsets
from ottla.client.admin.group_requests import (
    GroupDescription,
    GroupListing,
    delete_group,
    describe_group,
    list_groups,
    remove_members,
)
from ottla.client.admin.methods import Administration
from ottla.client.admin.values import MemberToRemove, Outcomes
from ottla.client.values import OffsetAndMetadata
from ottla.model.ids import TopicPartition


class GroupAdministration(Administration):
    """A part of `AsyncAdmin`."""

    async def list_consumer_groups(
        self, states_filter: Collection[str] = (), types_filter: Collection[str] = ()
    ) -> list[GroupListing]:
        """The groups of all brokers by name: of these states and types ("classic", "consumer"), or all."""
        return await list_groups(self.cluster, states=states_filter, types=types_filter)

    async def describe_consumer_groups(
        self, group_ids: Iterable[str], *, raise_errors: bool = True
    ) -> Outcomes[str, GroupDescription]:
        """Groups with their members and what each member has."""
        return await self._each(group_ids, lambda name: describe_group(self.cluster, name), raise_errors)

    async def delete_consumer_groups(
        self, group_ids: Iterable[str], *, raise_errors: bool = True
    ) -> Outcomes[str, None]:
        """Deletes groups that nobody is in, with all that they committed."""
        return await self._each(group_ids, lambda name: delete_group(self.cluster, name), raise_errors)

    async def remove_consumer_group_members(
        self,
        group_id: str,
        members: Iterable[MemberToRemove] | None = None,
        *,
        reason: str | None = None,
        raise_errors: bool = True,
    ) -> Outcomes[MemberToRemove, None]:
        """Throws these members, or all, out of a classic group. One that still lives joins again by itself."""
        if members is None:
            described = await describe_group(self.cluster, group_id)
            members = [MemberToRemove(each.member_id, each.instance_id) for each in described.members]
        wishes = {(each.member_id, each.group_instance_id): each for each in members}
        if not wishes:
            return Outcomes({})
        refused = await remove_members(self.cluster, group_id, list(wishes), reason=reason)
        outcomes: Outcomes[MemberToRemove, None] = Outcomes(
            {wish: None for key, wish in wishes.items() if key not in refused},
            {wishes[key]: error for key, error in refused.items()},
        )
        return outcomes.checked() if raise_errors else outcomes

    async def list_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group committed, for these partitions or for all; what it has not is left out."""
        found = await committed_offsets(self.cluster, group_id)
        wanted = found if partitions is None else [each for each in partitions if each in found]
        return {
            each: OffsetAndMetadata(found[each].offset, found[each].metadata, found[each].leader_epoch)
            for each in wanted
        }

    async def alter_consumer_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], *, raise_errors: bool = True
    ) -> Outcomes[TopicPartition, None]:
        """Commits for a group that nobody is in; the group is made if there is none."""
        refused = await commit_offsets(self.cluster, group_id, offsets)
        outcomes: Outcomes[TopicPartition, None] = Outcomes(
            dict.fromkeys(each for each in offsets if each not in refused), refused
        )
        return outcomes.checked() if raise_errors else outcomes

    async def delete_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, raise_errors: bool = True
    ) -> Outcomes[TopicPartition, None]:
        """Forgets what a group committed for partitions of topics that none of its members is subscribed to."""
        asked = list(dict.fromkeys(partitions))
        refused = await delete_offsets(self.cluster, group_id, asked)
        outcomes: Outcomes[TopicPartition, None] = Outcomes(
            dict.fromkeys(each for each in asked if each not in refused), refused
        )
        return outcomes.checked() if raise_errors else outcomes
