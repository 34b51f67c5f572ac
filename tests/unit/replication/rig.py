"""A partition on a simulated disk, waiters that note what they are told, and counts of what the disk was asked."""

import asyncio
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from ottla.env.real_clock import RealClock
from ottla.model.errors import OttlaError
from ottla.model.ids import BrokerId, LeaderEpoch, TopicPartition
from ottla.replication.fetch_waiter import FetchWaiter
from ottla.replication.leader_state import LeaderState
from ottla.replication.partition import Partition
from ottla.replication.timers import Timers
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.storage.log import Appended
from ottla.storage.log_config import LogConfig
from ottla.transport.turn import Turn
from tests.unit.storage.rig import make_store

ME: Final = BrokerId(1)
EPOCH: Final = LeaderEpoch(3)
TOPIC_ID: Final = UUID(int=77)
FLUSH_EACH: Final = LogConfig(flush_messages=1)


class Noted:
    """An append's waiter: `outcomes` by part, `waited` how often it was told to wait."""

    def __init__(self) -> None:
        self.outcomes: dict[int, Appended | OttlaError] = {}
        self.told: list[int] = []
        self.waited = 0

    def on_outcome(self, at: int, outcome: Appended | OttlaError) -> None:
        self.told.append(at)
        self.outcomes[at] = outcome

    def on_waiting(self) -> None:
        self.waited += 1

    def offsets(self) -> dict[int, int | type[OttlaError]]:
        """The base offset of each part, or the kind of its failure."""
        return {
            at: outcome.base_offset if isinstance(outcome, Appended) else type(outcome)
            for at, outcome in self.outcomes.items()
        }


class PartitionRig:
    """Made within a running loop."""

    def __init__(self, disk: SimDisk, partition: Partition, turn: Turn) -> None:
        self.disk = disk
        self.partition = partition
        self.turn = turn
        self.timers = Timers(RealClock())
        self.ready: list[str] = []

    @classmethod
    async def make(
        cls,
        config: LogConfig | None = None,
        *,
        disk: SimDisk | None = None,
        min_insync_replicas: int = 1,
        isr: Sequence[int] = (ME,),
        replicas: Sequence[int] | None = None,
    ) -> "PartitionRig":
        """An empty partition that this broker leads; unless told, all replicas are in sync."""
        disk = disk or SimDisk()
        store = make_store(disk, config=config or LogConfig())
        await store.open()
        log = store.create(TopicPartition("t", 0))
        turn = Turn()
        members = [BrokerId(each) for each in isr]
        leader = LeaderState(
            ME,
            replicas=members if replicas is None else [BrokerId(each) for each in replicas],
            isr=members,
            leader_epoch=EPOCH,
        )
        partition = Partition(
            "t", 0, TOPIC_ID, log, min_insync_replicas=min_insync_replicas, turn=turn, clock=SimClock()
        )
        partition.become_leader(leader)
        return cls(disk, partition, turn)

    def wait_fetch(
        self, name: str, missing_bytes: int, max_wait_ms: int = 3_600_000, *, is_committed: bool = False
    ) -> FetchWaiter:
        """A fetch that waits; its name is noted when it is ready."""
        return FetchWaiter(
            [self.partition],
            missing_bytes=missing_bytes,
            is_committed=is_committed,
            max_wait_ms=max_wait_ms,
            timers=self.timers,
            on_ready=lambda: self.ready.append(name),
        )

    def count(self, operation: str) -> int:
        """How often the log's file was written or synced."""
        return sum(each.name == operation and each.path.endswith(".log") for each in self.disk.trace)

    async def wait_flushes(self) -> None:
        """Returns once no flush of the partition is under way."""
        while self.partition._tasks:
            await asyncio.gather(*self.partition._tasks)
