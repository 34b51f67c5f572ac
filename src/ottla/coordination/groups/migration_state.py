"""Groups that change their kind while they live: from classic to consumer when a member of the consumer protocol joins,
and back when the last such member has left.

Pure. `upgrade.py` and `downgrade.py` have the conversions; what consumer group members that still speak the classic
protocol may do is in `consumer/classic_members_state.py`. An empty group only makes room for the other kind; a group
with members is converted if `group.consumer.migration.policy` allows it.
"""

from ottla.coordination.groups.classic.generations_state import GroupState, answer_join, answer_sync
from ottla.coordination.groups.classic.group_state import ClassicGroup
from ottla.coordination.groups.classic.groups_state import ClassicGroups
from ottla.coordination.groups.consumer.group_change import GroupChange
from ottla.coordination.groups.consumer.groups_state import ConsumerGroups
from ottla.coordination.groups.downgrade import can_be_classic, downgrade
from ottla.coordination.groups.offsets_state import OffsetsState
from ottla.coordination.groups.upgrade import upgrade
from ottla.coordination.runtime.effects import Effect
from ottla.model.error_codes import ErrorCode
from ottla.model.invariants import violated


class GroupMigration:
    """What the classic and the consumer groups of a shard need to know of each other."""

    def __init__(self, classic: ClassicGroups, offsets: OffsetsState) -> None:
        self._classic = classic
        self._offsets = offsets
        self.downgraded: dict[str, int] = {}
        """Groups whose downgrade is being written, and since when."""

    # Upgrade

    def claim(self, consumers: ConsumerGroups, group_id: str, now_ms: int) -> GroupChange | None:
        """Takes a classic group over: a change that begins with its conversion, or None if there is no such group.

        Raises `Refusal` if the group must stay classic.
        """
        classic = self._classic.groups.get(group_id)
        if classic is None:
            return None
        change = upgrade(classic, consumers.topics, consumers.config)
        change.on_taken.append(lambda: _on_upgraded(classic))
        for member in change.group.members.values():
            consumers.start_session(group_id, member, now_ms)
        return change

    def on_created(self, group_id: str) -> None:
        """A record made a consumer group. Offsets replayed before it may have made it look like a classic one."""
        self._classic.give_up(group_id)

    # Downgrade

    def downgrade(self, consumers: ConsumerGroups, change: GroupChange, member_ids: list[str], now_ms: int) -> bool:
        """Converts a group to a classic one if only members that use the classic protocol stay when these leave.

        Returns whether it did.
        """
        gone = frozenset(member_ids)
        staying = [member for member in change.group.members.values() if member.member_id not in gone]
        if not can_be_classic(staying, consumers.config):
            return False
        group_id = change.group.group_id
        value = downgrade(change, staying, consumers.topics, now_ms)

        def on_taken() -> list[Effect]:
            for member in value.members:
                self._classic.start_session(group_id, member.member_id, now_ms + member.session_timeout_ms)
            self.downgraded[group_id] = now_ms
            return []

        change.on_taken.append(on_taken)
        return True

    def on_deleted(self, group_id: str) -> None:
        """A record deleted a consumer group. Offsets that it leaves belong to a classic group without members."""
        if self._offsets.partitions(group_id):
            self._classic.on_offsets(group_id)

    def on_replayed(self) -> None:
        """A downgraded group must rebalance before a member can ask for its old assignment."""
        for group_id, since_ms in list(self.downgraded.items()):
            group = self._classic.groups.get(group_id)
            if group is not None and group.state is GroupState.STABLE:
                del self.downgraded[group_id]
                if group.rebalance(since_ms):
                    violated(f"group {group_id}: a request waits in a group that has only just become classic")

    # Time

    def next_deadline(self) -> int | None:
        """When `on_tick` must be called next."""
        return min(self.downgraded.values()) if self.downgraded else None

    def on_clock_set(self, by_ms: int) -> None:
        """The clock was moved by this much."""
        self.downgraded = {group_id: since_ms + by_ms for group_id, since_ms in self.downgraded.items()}

    def on_tick(self) -> None:
        """Groups that are still waiting were not downgraded: the write failed."""
        self.downgraded.clear()

    def check(self, consumers: ConsumerGroups) -> None:
        """Raises when a group is of two kinds."""
        for group_id in consumers.groups:
            if group_id in self._classic.groups:
                violated(f"group {group_id} is both a classic and a consumer group")


def _on_upgraded(classic: ClassicGroup) -> list[Effect]:
    """Waiting members of the classic group are asked to join again, and find the consumer group."""
    effects: list[Effect] = []
    for member in classic.members:
        effects += answer_join(member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        effects += answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
    return effects
