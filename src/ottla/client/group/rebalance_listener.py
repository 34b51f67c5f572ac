"""What a program can do when partitions come and go. Override what you need, and hand it to `subscribe(listener=…)`."""

from collections.abc import Awaitable, Collection
from typing import Any

from ottla.model.ids import TopicPartition


class ConsumerRebalanceListener:
    """Called within `poll`, or while iterating, on the thread that polls; what it raises comes out of there.

    With the asyncio consumer a method may be a coroutine function, which is awaited. Keep it short: the whole group may
    wait, and after `max_poll_interval_ms` it goes on without this member.
    """

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Awaitable[Any] | None:
        """Partitions are about to be given up: commit what was done. Called before anybody else can have them."""
        return None

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> Awaitable[Any] | None:
        """Partitions were added; nothing of them was read yet, so `seek` is possible."""
        return None

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> Awaitable[Any] | None:
        """Partitions were taken away, and somebody else may have them: committing is too late."""
        return self.on_partitions_revoked(lost)
