"""The share-partitions of this broker: made when a member first fetches, dropped when they are not valid any more."""

import asyncio
from typing import Final

from ottla.coordination.share_partitions.dead_letter_delivery import WriteDeadLetters
from ottla.coordination.share_partitions.settings import SettingsOf
from ottla.coordination.share_partitions.share_counts import ShareCounts
from ottla.coordination.share_partitions.share_partition import SharePartition
from ottla.coordination.share_state.client import ShareStateAccess
from ottla.coordination.share_state.records import ShareKey
from ottla.env.ports import Clock, Disk
from ottla.model.ids import TopicPartition
from ottla.replication.partition import Partition
from ottla.replication.partition_table import PartitionTable
from ottla.replication.timers import Timers


class SharePartitions:
    """Share-partitions by key; each is loaded once."""

    def __init__(
        self,
        partitions: PartitionTable,
        *,
        access: ShareStateAccess,
        settings_of: SettingsOf,
        clock: Clock,
        disk: Disk,
        timers: Timers,
        write_dead_letters: WriteDeadLetters,
        counts: ShareCounts,
    ) -> None:
        self.settings_of: Final = settings_of
        self.counts: Final = counts
        self._partitions = partitions
        self._access = access
        self._clock = clock
        self._disk = disk
        self._timers = timers
        self._write_dead_letters = write_dead_letters
        self._loaded: dict[ShareKey, SharePartition] = {}
        self._loads: dict[ShareKey, asyncio.Task[SharePartition]] = {}
        self._last_writes: dict[ShareKey, asyncio.Task[None]] = {}
        """What share-partitions that were dropped are still storing."""

    def __len__(self) -> int:
        return len(self._loaded)

    @property
    def in_flight(self) -> int:
        """How many offsets were delivered and are not below the start offset, of all of them."""
        return sum(each.state.in_flight for each in self._loaded.values())

    def get(self, key: ShareKey) -> SharePartition | None:
        """A share-partition that is loaded and may be used."""
        found = self._loaded.get(key)
        if found is not None and (found.is_retiring or not found.is_current):
            found.fence()
            return None
        return found

    def load(self, key: ShareKey) -> "asyncio.Task[SharePartition]":
        """Loads a share-partition that `get` does not have. All fetches that ask for it meanwhile get the same task, so
        none may cancel it. Raises an `OttlaError` if this broker does not lead the partition; the task raises one if
        the state cannot be loaded."""
        load = self._loads.get(key)
        if load is None:
            partition = self._partitions.find(key.topic_id.bytes, key.partition)
            load = self._loads[key] = asyncio.get_running_loop().create_task(self._load(key, partition))
            load.add_done_callback(lambda done: self._on_load_done(key, done))
        return load

    async def _load(self, key: ShareKey, partition: Partition) -> SharePartition:
        made = SharePartition(
            key,
            partition,
            access=self._access,
            settings_of=self.settings_of,
            clock=self._clock,
            disk=self._disk,
            timers=self._timers,
            write_dead_letters=self._write_dead_letters,
            counts=self.counts,
            on_fenced=self._on_fenced,
        )
        last_write = self._last_writes.get(key)
        if last_write is not None:
            # The state is loaded with what the one before has decided.
            await asyncio.wait({last_write})
        await made.load()
        self._loaded[key] = made
        return made

    def _on_load_done(self, key: ShareKey, done: "asyncio.Task[SharePartition]") -> None:
        if self._loads.get(key) is done:
            del self._loads[key]
        if not done.cancelled():
            # There may be no fetch that waits for it any more.
            done.exception()

    def _on_fenced(self, fenced: SharePartition) -> None:
        key = fenced.key
        if self._loaded.get(key) is fenced:
            del self._loaded[key]
        writer = fenced.writer
        if writer is not None:
            self._last_writes[key] = writer
            writer.add_done_callback(lambda done: self._on_last_write(key, done))

    def _on_last_write(self, key: ShareKey, done: "asyncio.Task[None]") -> None:
        if self._last_writes.get(key) is done:
            del self._last_writes[key]

    def refresh(self) -> None:
        """Drops those whose partition is not led here in the same epoch any more."""
        for found in list(self._loaded.values()):
            place = TopicPartition(found.partition.topic, found.partition.index)
            if not found.is_current or self._partitions.held.get(place) is not found.partition:
                found.fence()

    def of_group(self, group_id: str) -> list[SharePartition]:
        """The share-partitions of a group that are loaded."""
        return [each for each in self._loaded.values() if each.key.group_id == group_id]

    def drop_group(self, group_id: str) -> None:
        """No member of the group fetches here any more: its share-partitions are loaded again when one does. Those that
        still write dead letters go when these are written."""
        for found in self.of_group(group_id):
            found.retire()

    async def close(self) -> None:
        """Fences all of them."""
        for load in list(self._loads.values()):
            load.cancel()
        await asyncio.gather(*[found.close() for found in list(self._loaded.values())])
