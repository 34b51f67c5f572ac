"""The work of `ottla consume --group`: joins the group, writes its records, and commits those that were written."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

from ottla.cli.consume.record_sink import RecordSink
from ottla.cli.output import say
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.group.rebalance_listener import ConsumerRebalanceListener
from ottla.client.network.cluster import Cluster
from ottla.model.ids import TopicPartition
from ottla.records.record import Record

POLL_RECORDS_MAX: Final = 10_000
POLL_MS: Final = 500
EMPTY_POLLS_MAX: Final = 10
"""A cooperative rebalance may assign nothing at first, and something a moment later."""


class GroupConsuming(ConsumerRebalanceListener):
    """One member of a group."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        *,
        topics: Sequence[str],
        pattern: str | None,
        auto_offset_reset: Literal["earliest", "latest"],
        isolation_level: Literal["read_uncommitted", "read_committed"],
        client_options: Mapping[str, Any],
    ) -> None:
        self._group_id = group_id
        self._consumer = AsyncConsumer(
            bootstrap_servers=",".join(map(str, cluster.bootstrap)),
            client_id=cluster.client_id,
            group_id=group_id,
            auto_offset_reset=auto_offset_reset,
            isolation_level=isolation_level,
            allow_auto_create_topics=False,
            **client_options,
        )
        self._consumer.subscribe(topics, pattern=None if pattern is None else rf"(?:{pattern})$", listener=self)
        self._is_assigned = False
        self._empty_polls = 0
        self._ends: dict[TopicPartition, int] = {}
        """Where each partition ended when it was assigned."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """The group has decided what this member reads."""
        self._is_assigned = True

    async def run(self, sink: RecordSink, *, follow: bool) -> None:
        """Writes records until the sink is full or, without `follow`, the partitions end.

        Polls commit what earlier polls gave, so only what was written. At the end the rest is committed, after an
        interrupt as well; if writing failed, the last poll's records are not committed.
        """
        is_written = True
        try:
            while not sink.is_full:
                polled = await self._consumer.poll(POLL_MS, sink.room(POLL_RECORDS_MAX))
                is_written = False
                for partition, records in polled.items():
                    await sink.write(
                        partition,
                        (
                            Record(each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
                            for each in records
                        ),
                    )
                sink.flush()
                is_written = True
                if not follow and await self._is_at_end():
                    break
            await self._consumer.commit()
        finally:
            await self._consumer.close(autocommit=is_written)

    async def _is_at_end(self) -> bool:
        if not self._is_assigned:
            return False
        assigned = self._consumer.assignment()
        if not assigned:
            self._empty_polls += 1
            if self._empty_polls < EMPTY_POLLS_MAX:
                return False
            say(f"group {self._group_id}: all partitions are assigned to other members")
        self._empty_polls = 0
        new = assigned - self._ends.keys()
        if new:
            self._ends.update(await self._consumer.end_offsets(new))
        for partition in assigned:
            if await self._consumer.position(partition) < self._ends[partition]:
                return False
        return True
