"""Which keys have records in retry, so that later records of these keys have to wait for them. Pure.

Records are known by their first delivery: partition and offset. A consumer knows only what it handed back itself.
"""

from collections.abc import Collection, Hashable

from ottla.model.ids import TopicPartition


class KeyOrderState:
    """The records that one consumer handed back and that have not returned to it yet."""

    def __init__(self) -> None:
        self._out: dict[TopicPartition, dict[Hashable, set[int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._out)

    def on_handed_back(self, partition: TopicPartition, key: Hashable, offset: int) -> None:
        """A record is in retry."""
        self._out.setdefault(partition, {}).setdefault(key, set()).add(offset)

    def on_delivered(self, partition: TopicPartition, key: Hashable, offset: int) -> bool:
        """A record was delivered, or returned. Returns whether an earlier one of its key is in retry."""
        keys = self._out.get(partition, {})
        offsets = keys.get(key)
        if offsets is None:
            return False
        offsets.discard(offset)
        if not offsets:
            del keys[key]
            if not keys:
                del self._out[partition]
            return False
        return min(offsets) < offset

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are assigned to another consumer."""
        for partition in partitions:
            self._out.pop(partition, None)
