"""The listener that a program passes to `subscribe(listener=…)` to follow its partitions. Override what you need."""

from collections.abc import Awaitable, Collection
from typing import Any

from ottla.model.ids import TopicPartition


class ConsumerRebalanceListener:
    """Called by `poll`, or while iterating, in the thread that polls. `poll` raises the errors of its methods.

    Methods may be coroutine functions. Keep them short: the whole group may wait, and a consumer that does not poll for
    `max_poll_interval_ms` is removed from the group.
    """

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Awaitable[Any] | None:
        """Partitions are about to be revoked: commit offsets here. No other member has them yet."""
        return None

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> Awaitable[Any] | None:
        """Partitions were added. Nothing of them was read yet, so `seek` is possible."""
        return None

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> Awaitable[Any] | None:
        """Partitions were taken away, and other members may have them: it is too late to commit."""
        return self.on_partitions_revoked(lost)
