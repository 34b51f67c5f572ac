"""The work of `ottla consume --share`: joins the share group, writes records, and accepts those that were written."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.cli.consume.record_sink import RecordSink
from ottla.client.network.cluster import Cluster
from ottla.client.share.async_share_consumer import AsyncShareConsumer
from ottla.client.share.values import ShareRecords
from ottla.records.record import Record

POLL_RECORDS_MAX: Final = 500
POLL_MS: Final = 500
EMPTY_POLLS_MAX: Final = 4
"""Polls without a record, once partitions are assigned, after which the command ends unless it follows."""


class ShareGroupConsuming:
    """One member of a share group."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        *,
        topics: Sequence[str],
        records_max: int | None,
        client_options: Mapping[str, Any],
    ) -> None:
        self._consumer = AsyncShareConsumer(
            *topics,
            bootstrap_servers=",".join(map(str, cluster.bootstrap)),
            client_id=cluster.client_id,
            group_id=group_id,
            share_acknowledgement_mode="explicit",
            # Records that are not printed would be acquired and released, which counts as a delivery.
            share_acquire_mode="batch_optimized" if records_max is None else "record_limit",
            **client_options,
        )

    async def run(self, sink: RecordSink, *, follow: bool) -> None:
        """Writes records until the sink is full or, without `follow`, no more come.

        A record is accepted once it was written. At the end, also after an interrupt, all other records are released.
        """
        empty_polls = 0
        try:
            while not sink.is_full:
                polled = await self._consumer.poll(POLL_MS, sink.room(POLL_RECORDS_MAX))
                await self._write(sink, polled)
                empty_polls = 0 if polled or not self._consumer.assignment() else empty_polls + 1
                if not follow and empty_polls >= EMPTY_POLLS_MAX:
                    break
            await self._consumer.commit()
        finally:
            await self._consumer.close()

    async def _write(self, sink: RecordSink, polled: ShareRecords) -> None:
        for partition, records in polled.items():
            await sink.write(
                partition,
                (Record(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in records),
            )
        sink.flush()
        for records in polled.values():
            for record in records:
                self._consumer.acknowledge(record)
