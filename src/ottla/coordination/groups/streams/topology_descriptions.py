"""The descriptions of topologies that members of streams groups have sent (KIP-1331). Pure: takes the time.

A description is what operators see of an application: its whole processing graph. It is kept in memory only, by the
group's coordinator: after a failover the next heartbeats ask for it again. Only one member at a time is asked, and
again after `FIRST_BACKOFF_MS`, then at doubled intervals. Sizes are bounded, of each description and of all together; a
description that is too large is refused, and its group is not asked again. If only the room for all of them is used up,
the group is asked again later: other groups may be gone by then.
"""

from dataclasses import dataclass
from typing import Final

from ottla.coordination.groups.streams.requests import Refusal
from ottla.model.error_codes import ErrorCode

FIRST_BACKOFF_MS: Final = 30_000
BACKOFF_MS_MAX: Final = 3_600_000
DESCRIPTION_SIZE_MAX: Final = 256 * 1024


@dataclass(slots=True)
class _Entry:
    """What is known about the description of one group, for one topology epoch."""

    epoch: int
    description: object | None = None
    size: int = 0
    is_refused: bool = False
    backoff_ms: int = 0
    ask_after_ms: int = 0


class TopologyDescriptions:
    """The descriptions of the groups of one shard, by group id."""

    __slots__ = ("_entries", "_size")

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._size = 0

    def ask(self, group_id: str, epoch: int, now_ms: int) -> bool:
        """Whether a member must be asked for the description now; if so, no other member is for a while."""
        entry = self._entry(group_id, epoch)
        if entry.description is not None or entry.is_refused or now_ms < entry.ask_after_ms:
            return False
        entry.backoff_ms = min(2 * entry.backoff_ms, BACKOFF_MS_MAX) or FIRST_BACKOFF_MS
        entry.ask_after_ms = now_ms + entry.backoff_ms
        return True

    def put(self, group_id: str, epoch: int, description: object, size: int, shard_size_max: int) -> None:
        """Keeps a description. Raises `Refusal` if it is too large, or all of them would be larger than the limit."""
        entry = self._entry(group_id, epoch)
        size_max = min(DESCRIPTION_SIZE_MAX, shard_size_max)
        if size > size_max:
            entry.is_refused = entry.description is None
            raise Refusal(
                ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED,
                f"the topology description of group {group_id} has a size of {size} bytes; at most {size_max} are kept",
            )
        if self._size - entry.size + size > shard_size_max:
            raise Refusal(
                ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED,
                f"no room for the topology description of group {group_id} with a size of {size} bytes: descriptions"
                f" take {self._size} of {shard_size_max} bytes; see group.streams.topology.description.memory.bytes",
            )
        self._size += size - entry.size
        entry.description, entry.size = description, size

    def get(self, group_id: str, epoch: int) -> object | None:
        """The description of a group's topology of this epoch, if it was sent."""
        entry = self._entries.get(group_id)
        return None if entry is None or entry.epoch != epoch else entry.description

    def forget(self, group_id: str) -> None:
        """The group was deleted."""
        entry = self._entries.pop(group_id, None)
        if entry is not None:
            self._size -= entry.size

    def shift(self, by_ms: int) -> None:
        """The clock was moved by this much."""
        for entry in self._entries.values():
            entry.ask_after_ms += by_ms

    def _entry(self, group_id: str, epoch: int) -> _Entry:
        entry = self._entries.get(group_id)
        if entry is None or entry.epoch != epoch:
            self.forget(group_id)
            entry = self._entries[group_id] = _Entry(epoch)
        return entry
