"""Which offsets are still to be committed to which group: progress in, commits out, never backwards. Pure.

The end of a batch replaces an earlier one that was not committed yet, so an outage only delays commits. A group whose
cluster does not answer is retried with exponential backoff and does not delay others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.model.ids import TopicPartition
from ottla.spark.progress import GroupEnd

BACKOFF_MIN_S: Final = 0.2
BACKOFF_MAX_S: Final = 30.0

GroupKey = tuple[str, str]
"""(bootstrap servers, group id)"""


@dataclass(slots=True, kw_only=True)
class _Following:
    wanted: dict[TopicPartition, int] = field(default_factory=dict)
    """The furthest end of finished batches in each partition; never goes back."""
    told: dict[TopicPartition, int] = field(default_factory=dict)
    """What the group is known to have; at most `wanted`, or further if another client committed."""
    failures: int = 0
    retry_at: float = 0.0


class GroupFollowing:
    """The state of all groups."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, _Following] = {}

    def on_batch(self, ends: Iterable[GroupEnd]) -> None:
        """A batch is finished."""
        for end in ends:
            following = self._groups.setdefault((end.bootstrap, end.group), _Following())
            for partition, offset in end.offsets.items():
                following.wanted[partition] = max(offset, following.wanted.get(partition, 0))

    def due(self, now: float) -> dict[GroupKey, dict[TopicPartition, int]]:
        """What to commit now, by group."""
        return {
            key: pending
            for key, following in self._groups.items()
            if following.retry_at <= now and (pending := self._pending(following))
        }

    def next_deadline(self) -> float | None:
        """When the next commit is due; None if everything is committed."""
        waits = [each.retry_at for each in self._groups.values() if self._pending(each)]
        return min(waits, default=None)

    def is_settled(self) -> bool:
        """Whether everything is committed."""
        return self.next_deadline() is None

    def on_committed(self, key: GroupKey, offsets: Mapping[TopicPartition, int]) -> None:
        """The group has these offsets: they were committed, or it was further already."""
        following = self._groups[key]
        following.told.update(offsets)
        if not self._pending(following):
            following.failures, following.retry_at = 0, 0.0

    def on_failed(self, key: GroupKey, now: float) -> float:
        """The commit failed; returns the wait before the next try."""
        following = self._groups[key]
        pause = min(BACKOFF_MIN_S * 2.0 ** min(following.failures, 20), BACKOFF_MAX_S)
        following.failures += 1
        following.retry_at = now + pause
        return pause

    @staticmethod
    def _pending(following: _Following) -> dict[TopicPartition, int]:
        return {each: offset for each, offset in following.wanted.items() if following.told.get(each, -1) < offset}
