"""Which group ids streams groups may take from other kinds of groups, and what becomes of offsets that they leave.

Pure. As in Kafka, a classic group without members makes room; one with members, or a group of another kind, stays.
"""

from collections.abc import Callable

from ottla.coordination.groups.classic.groups_state import ClassicGroups
from ottla.coordination.groups.migration_state import GroupMigration
from ottla.coordination.groups.streams.requests import Refusal
from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.model.error_codes import ErrorCode


class StreamsClaims:
    """`is_of_other_kind` says whether a group of this id is neither classic nor a streams group."""

    def __init__(
        self, classic: ClassicGroups, migration: GroupMigration, is_of_other_kind: Callable[[str], bool]
    ) -> None:
        self._classic = classic
        self._migration = migration
        self._is_of_other_kind = is_of_other_kind

    def claim(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        """Records that make room for a streams group of this id. Raises `Refusal` if another kind has the group."""
        classic = self._classic.groups.get(group_id)
        if self._is_of_other_kind(group_id) or (classic is not None and classic.members):
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
        return () if classic is None else self._classic.deletion_records(group_id)

    def on_created(self, group_id: str) -> None:
        """A record created a streams group. Offsets replayed before it may have made it look like a classic one."""
        self._migration.on_created(group_id)

    def on_deleted(self, group_id: str) -> None:
        """A record deleted a streams group. Offsets that it leaves belong to a classic group without members."""
        self._migration.on_deleted(group_id)
