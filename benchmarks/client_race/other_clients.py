"""confluent-kafka, kafka-python and aiokafka, used as their documentation shows for throughput."""

from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from benchmarks.client_race.session import (
    BATCH_BYTES,
    KEYS,
    LINGER_MS,
    PARTITIONS,
    POLL_MS,
    POLL_RECORDS,
    AsyncSession,
    Session,
    check_read,
)


class ConfluentProducer(Session):
    """librdkafka, with as much memory for waiting records as it likes."""

    name = "confluent-kafka"
    share = 8

    def open(self) -> None:
        """A first record brings the metadata."""
        self._producer = Producer(
            {
                "bootstrap.servers": self.lane.bootstrap,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "batch.size": BATCH_BYTES,
                "linger.ms": LINGER_MS,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self.work(1)

    def work(self, count: int) -> None:
        """Polls when its queue is full, and before all is flushed."""
        produce, topic, value = self._producer.produce, self.lane.topic, self.lane.value
        for number in range(count):
            while True:
                try:
                    produce(topic, value, KEYS[number % 1000])
                    break
                except BufferError:
                    self._producer.poll(0.01)
        if self._producer.flush(60):
            raise RuntimeError("confluent-kafka did not deliver all")

    def close(self) -> None:
        """It has no close; its threads end with the object."""
        del self._producer


class ConfluentConsumer(Session):
    """`consume`, which is its fastest way to Python objects."""

    name = "confluent-kafka"
    share = 8

    def open(self) -> None:
        """Without commits."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": self.lane.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "check.crcs": True,
            }
        )
        self._consumer.list_topics(self.lane.topic, 30)

    def work(self, count: int) -> None:
        """From the first record on."""
        self._consumer.assign([ConfluentPartition(self.lane.topic, index, 0) for index in range(PARTITIONS)])
        read = size = 0
        while read < count:
            messages = self._consumer.consume(POLL_RECORDS, 0.1)
            read += len(messages)
            for message in messages:
                if message.error():
                    raise RuntimeError(str(message.error()))
                size += len(message.value())
        check_read(read, size, self.lane)

    def close(self) -> None:
        """Ends its threads."""
        self._consumer.close()


class KafkaPythonProducer(Session):
    """kafka-python."""

    name = "kafka-python"

    def open(self) -> None:
        """A first record brings the metadata."""
        self._producer: Any = KafkaProducer(
            bootstrap_servers=self.lane.bootstrap,
            acks="all",
            enable_idempotence=True,
            batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
        )
        self.work(1)

    def work(self, count: int) -> None:
        """Keeps the last future, which must have succeeded."""
        send, topic, value = self._producer.send, self.lane.topic, self.lane.value
        for number in range(count):
            sent = send(topic, value, KEYS[number % 1000])
        self._producer.flush()
        sent.get(60)

    def close(self) -> None:
        """Ends its thread."""
        self._producer.close()


class KafkaPythonConsumer(Session):
    """kafka-python."""

    name = "kafka-python"

    def open(self) -> None:
        """Without a group."""
        self._consumer: Any = KafkaConsumer(
            bootstrap_servers=self.lane.bootstrap, group_id=None, enable_auto_commit=False
        )
        self._consumer.partitions_for_topic(self.lane.topic)

    def work(self, count: int) -> None:
        """From the first record on."""
        self._consumer.assign([PythonPartition(self.lane.topic, index) for index in range(PARTITIONS)])
        self._consumer.seek_to_beginning()
        read = size = 0
        while read < count:
            for records in self._consumer.poll(POLL_MS, max_records=POLL_RECORDS).values():
                read += len(records)
                for record in records:
                    size += len(record.value)
        check_read(read, size, self.lane)

    def close(self) -> None:
        """Closes its connections."""
        self._consumer.close()


class AiokafkaProducer(AsyncSession):
    """aiokafka."""

    name = "aiokafka"

    async def opened(self) -> None:
        """A first record brings the metadata."""
        self._producer: Any = AIOKafkaProducer(
            bootstrap_servers=self.lane.bootstrap,
            acks="all",
            enable_idempotence=True,
            max_batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
        )
        await self._producer.start()
        await self.worked(1)

    async def worked(self, count: int) -> None:
        """Keeps the last future, which must have succeeded."""
        send, topic, value = self._producer.send, self.lane.topic, self.lane.value
        for number in range(count):
            sent = await send(topic, value, KEYS[number % 1000])
        await self._producer.flush()
        await sent

    async def closed(self) -> None:
        """Ends its tasks."""
        await self._producer.stop()


class AiokafkaConsumer(AsyncSession):
    """aiokafka."""

    name = "aiokafka"

    async def opened(self) -> None:
        """Without a group; connected, and assigned nothing."""
        self._consumer: Any = AIOKafkaConsumer(
            bootstrap_servers=self.lane.bootstrap, group_id=None, enable_auto_commit=False
        )
        await self._consumer.start()

    async def worked(self, count: int) -> None:
        """From the first record on."""
        self._consumer.assign([AioPartition(self.lane.topic, index) for index in range(PARTITIONS)])
        await self._consumer.seek_to_beginning()
        read = size = 0
        while read < count:
            polled = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=POLL_RECORDS)
            for records in polled.values():
                read += len(records)
                for record in records:
                    size += len(record.value)
        check_read(read, size, self.lane)

    async def closed(self) -> None:
        """Ends its tasks."""
        await self._consumer.stop()
