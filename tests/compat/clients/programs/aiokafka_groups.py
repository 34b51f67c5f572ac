"""aiokafka as a member of groups, in an event loop that runs all the time. It speaks the classic protocol."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.compat.clients.programs.group_member import (
    COMES_LATER,
    HEARTBEAT_MS,
    METADATA_AGE_MS,
    POLL_S,
    SESSION_TIMEOUT_MS,
    MemberLog,
    Place,
)

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}

CodeOf = Callable[[BaseException], int | None]


class AsyncMember(ConsumerRebalanceListener):  # type: ignore[misc] # the library has no types
    """One consumer and its task; commits as `group_member.Member` does."""

    def __init__(self, consumer: Any, *, commits: bool, code_of: CodeOf) -> None:
        self.log = MemberLog(code_of)
        self.consumer = consumer
        self._code_of = code_of
        self._commits = commits
        self._unsaved = False
        self._leaving = False
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Joins, and reads from then on."""
        self._task = asyncio.create_task(self._live())

    async def leave(self) -> None:
        """Returns when the consumer is closed."""
        self._leaving = True
        if self._task is not None:
            await self._task

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.log.on_assigned(_places(assigned))

    async def on_partitions_revoked(self, revoked: Any) -> None:
        await self._save()
        self.log.on_revoked(_places(revoked))

    async def _live(self) -> None:
        try:
            await self.consumer.start()
            while not self._leaving:
                found = await self.consumer.getmany(timeout_ms=int(POLL_S * 1000))
                records = [(each.topic, each.partition, each.offset) for rows in found.values() for each in rows]
                if records:
                    self.log.on_records(records)
                    self._unsaved = True
                await self._save()
        except Exception as error:
            self.log.on_error(error)
        # It has no callback for the end.
        self.log.on_revoked(_places(self.consumer.assignment()))
        await self.consumer.stop()

    async def _save(self) -> None:
        if not (self._commits and self._unsaved):
            return
        try:
            await self.consumer.commit()
            self._unsaved = False
        except Exception as error:
            if self._code_of(error) not in COMES_LATER:
                raise


class Groups:
    """The commands about groups."""

    def __init__(self, bootstrap: str, code_of: CodeOf) -> None:
        self._bootstrap = bootstrap
        self._code_of = code_of
        self._members: dict[int, AsyncMember] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def join_group(
        self,
        id: int,
        group: str,
        topics: list[str] | None,
        pattern: str | None,
        protocol: str,
        assignor: str,
        instance: str | None,
        reset: str,
        commits: bool,
    ) -> None:
        async def join() -> None:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap,
                group_id=group,
                group_instance_id=instance,
                enable_auto_commit=False,
                auto_offset_reset=reset,
                partition_assignment_strategy=(ASSIGNORS[assignor],),
                session_timeout_ms=SESSION_TIMEOUT_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
                metadata_max_age_ms=METADATA_AGE_MS,
            )
            member = AsyncMember(consumer, commits=commits, code_of=self._code_of)
            consumer.subscribe(topics=topics or (), pattern=pattern, listener=member)
            self._members[id] = member
            await member.begin()

        self._wait(join())

    def member(self, id: int) -> dict[str, Any]:
        return self._members[id].log.answer()

    def commit_offsets(self, id: int, offsets: list[tuple[str, int, int, str]]) -> None:
        wanted = {TopicPartition(topic, partition): (at, metadata) for topic, partition, at, metadata in offsets}
        self._wait(self._members[id].consumer.commit(wanted))

    def seek(self, id: int, topic: str, partition: int, offset: int) -> None:
        self._loop.call_soon_threadsafe(self._members[id].consumer.seek, TopicPartition(topic, partition), offset)

    def leave_group(self, id: int) -> None:
        self._wait(self._members[id].leave())

    def committed_offsets(self, group: str, topic: str, wanted: list[int]) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await admin.start()
            try:
                places = [TopicPartition(topic, each) for each in wanted]
                found = await admin.list_consumer_group_offsets(group, partitions=places)
            finally:
                await admin.close()
            return {"offsets": [[each.partition, found[each].offset, found[each].metadata] for each in places]}

        return dict(self._wait(ask()))

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


def _places(partitions: Any) -> list[Place]:
    return [(each.topic, each.partition) for each in partitions]
