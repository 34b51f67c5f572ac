"""Ottla's clients: record by record, blocking and in an event loop, and as Arrow tables."""

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.client_race.session import (
    BATCH_BYTES,
    KEYS,
    LINGER_MS,
    PARTITIONS,
    POLL_MS,
    POLL_RECORDS,
    AsyncSession,
    Lane,
    Session,
    check_read,
)
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.blocking_producer import Producer
from ottla.model.ids import TopicPartition

ARROW_SHARE = 30


def partitions(lane: Lane) -> list[TopicPartition]:
    """All of the topic."""
    return [TopicPartition(lane.topic, index) for index in range(PARTITIONS)]


class OttlaProducer(Session):
    """The blocking one."""

    name = "ottla"
    share = 8

    def open(self) -> None:
        """A first record brings the metadata."""
        self._producer = Producer(bootstrap_servers=self.lane.bootstrap, batch_size=BATCH_BYTES, linger_ms=LINGER_MS)
        self._producer.send(self.lane.topic, self.lane.value, KEYS[0]).get(60)

    def work(self, count: int) -> None:
        """Keeps the last delivery, which must have succeeded."""
        send, topic, value = self._producer.send, self.lane.topic, self.lane.value
        for number in range(count):
            sent = send(topic, value, KEYS[number % 1000])
        self._producer.flush()
        sent.get(60)

    def close(self) -> None:
        """Ends its thread."""
        self._producer.close()


class OttlaConsumer(Session):
    """The blocking one."""

    name = "ottla"
    share = 8

    def open(self) -> None:
        """Without a group."""
        self._consumer = Consumer(bootstrap_servers=self.lane.bootstrap)
        self._consumer.partitions_for_topic(self.lane.topic)

    def work(self, count: int) -> None:
        """From the first record on."""
        self._consumer.assign(partitions(self.lane))
        self._consumer.seek_to_beginning()
        read = size = 0
        while read < count:
            for records in self._consumer.poll(POLL_MS, POLL_RECORDS).values():
                read += len(records)
                for record in records:
                    size += len(record.value)
        check_read(read, size, self.lane)

    def close(self) -> None:
        """Ends its thread."""
        self._consumer.close()


class OttlaAsyncProducer(AsyncSession):
    """The one for asyncio."""

    name = "ottla async"
    share = 8

    async def opened(self) -> None:
        """A first record brings the metadata."""
        self._producer = AsyncProducer(
            bootstrap_servers=self.lane.bootstrap, batch_size=BATCH_BYTES, linger_ms=LINGER_MS
        )
        await self._producer.start()
        await self.worked(1)

    async def worked(self, count: int) -> None:
        """Keeps the last delivery, which must have succeeded."""
        send, topic, value = self._producer.send, self.lane.topic, self.lane.value
        for number in range(count):
            sent = await send(topic, value, KEYS[number % 1000])
        await self._producer.flush()
        await sent

    async def closed(self) -> None:
        """Ends its tasks."""
        await self._producer.close()


class OttlaAsyncConsumer(AsyncSession):
    """The one for asyncio."""

    name = "ottla async"
    share = 8

    async def opened(self) -> None:
        """Without a group."""
        self._consumer = AsyncConsumer(bootstrap_servers=self.lane.bootstrap)
        await self._consumer.partitions_for_topic(self.lane.topic)

    async def worked(self, count: int) -> None:
        """From the first record on."""
        self._consumer.assign(partitions(self.lane))
        self._consumer.seek_to_beginning()
        read = size = 0
        while read < count:
            for records in (await self._consumer.poll(POLL_MS, POLL_RECORDS)).values():
                read += len(records)
                for record in records:
                    size += len(record.value)
        check_read(read, size, self.lane)

    async def closed(self) -> None:
        """Ends its tasks."""
        await self._consumer.close()


class ArrowProducer(Session):
    """Whole tables. Their rows are there before, as the other clients' keys and values are."""

    name = "ottla arrow"
    share = ARROW_SHARE

    def open(self) -> None:
        """A first row brings the metadata."""
        self._producer = Producer(bootstrap_servers=self.lane.bootstrap)
        self._rows = pa.table({"key": KEYS, "value": [self.lane.value] * len(KEYS)})
        self._rows = pa.concat_tables([self._rows] * 20).combine_chunks()
        self.work(1)

    def work(self, count: int) -> None:
        """Table after table, then waits for all."""
        sent = []
        while count > 0:
            rows = self._rows.slice(0, count)
            sent.append(self._producer.send_table(self.lane.topic, rows))
            count -= rows.num_rows
        for delivery in sent:
            delivery.get(60)

    def close(self) -> None:
        """Ends its thread."""
        self._producer.close()


class ArrowConsumer(OttlaConsumer):
    """Arrow batches, whose values are touched by summing up their sizes."""

    name = "ottla arrow"
    share = ARROW_SHARE

    def work(self, count: int) -> None:
        """From the first record on."""
        self._consumer.assign(partitions(self.lane))
        self._consumer.seek_to_beginning()
        read = size = 0
        while read < count:
            for batch in self._consumer.poll_arrow(POLL_MS).values():
                read += batch.num_rows
                size += pc.sum(pc.binary_length(batch["value"])).as_py()
        check_read(read, size, self.lane)
