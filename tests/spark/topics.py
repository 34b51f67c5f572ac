"""Topics for tests: made, filled, emptied and deleted by our own clients, on whatever broker is at an address."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ottla.client.admin.async_admin import OffsetSpec
from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.config_requests import ResourceType
from ottla.client.admin.values import ConfigResource, NewPartitions, NewTopic
from ottla.client.producer.blocking_producer import Producer
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_numbers = count()


class Topics:
    """One broker's topics. A context manager."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = Admin(bootstrap_servers=bootstrap)
        self._producer = Producer(bootstrap_servers=bootstrap)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.close()
        self.admin.close()

    def create(self, partitions: int = 1, name: str | None = None, **configs: str) -> str:
        """A topic of a new name, or of this one; configs with underscores for dots."""
        name = name or f"topic-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, topic_configs=settings)
        self.admin.create_topics([topic], wait_for_metadata=True)
        return name

    def delete(self, name: str) -> None:
        """Deletes a topic, and forgets what the producer knows of it."""
        self.admin.delete_topics([name])
        self._producer.close()
        self._producer = Producer(bootstrap_servers=self.bootstrap)

    def grow(self, name: str, partitions: int) -> None:
        """Adds partitions."""
        self.admin.create_partitions({name: NewPartitions(partitions)})

    def configure(self, name: str, **configs: str) -> None:
        """Changes a topic's configs."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        self.admin.alter_configs([ConfigResource(ResourceType.TOPIC, name, settings)])

    def fill(
        self,
        name: str,
        values: Iterable[bytes | None],
        partition: int = 0,
        *,
        keys: Sequence[bytes | None] | None = None,
        timestamps: Sequence[int] | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Writes records to one partition, and waits until they are there."""
        sent = [
            self._producer.send(
                name,
                value,
                key=None if keys is None else keys[index],
                partition=partition,
                timestamp_ms=None if timestamps is None else timestamps[index],
                headers=list(headers),
            )
            for index, value in enumerate(values)
        ]
        for each in sent:
            each.get(30)

    def transaction(self, name: str, values: Sequence[bytes], *, commits: bool, partition: int = 0) -> None:
        """Writes records in a transaction that is committed or aborted."""
        with Producer(bootstrap_servers=self.bootstrap, transactional_id=f"id-{next(_numbers)}") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for value in values:
                producer.send(name, value, partition=partition)
            producer.flush()
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()

    def truncate(self, name: str, before: int, partition: int = 0) -> None:
        """Deletes the records before an offset, as retention does."""
        self.admin.delete_records({TopicPartition(name, partition): before})

    def end(self, name: str, partition: int = 0) -> int:
        """The end offset."""
        where = TopicPartition(name, partition)
        return int(self.admin.list_offsets({where: OffsetSpec.LATEST})[where].offset)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """What a group committed."""
        return {where: found.offset for where, found in self.admin.list_consumer_group_offsets(group).items()}

    def options(self, **options: Any) -> dict[str, str]:
        """Options for reading, with the address; underscores in names stand for dots."""
        given = {name.replace("_", "."): str(value) for name, value in options.items()}
        return {"kafka.bootstrap.servers": self.bootstrap, **given}

    def batch(self, spark: "SparkSession", **options: Any) -> "DataFrame":
        """A DataFrame of records."""
        return spark.read.format("ottla").options(**self.options(**options)).load()

    def stream(self, spark: "SparkSession", **options: Any) -> "DataFrame":
        """A streaming DataFrame of records."""
        return spark.readStream.format("ottla").options(**self.options(**options)).load()


def numbers(begin: int, end: int) -> list[bytes]:
    """Values that tell where they belong."""
    return [b"%d" % number for number in range(begin, end)]


def values_of(rows: Iterable[Mapping[str, Any]]) -> list[bytes]:
    """The values, in order of partitions and offsets."""
    return [
        bytes(row["value"]) for row in sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))
    ]
