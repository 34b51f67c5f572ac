"""What the requests are about: a topic with known records, made over the wire."""

import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from ottla.records.builder import BatchBuilder
from tests.wire.exchange import RawConnection

TIMEOUT: Final = timedelta(seconds=60)
PARTITIONS: Final = 3
FIRST_TIMESTAMP: Final = 1_700_000_000_000
RECORDS: Final = 4
"""In partition 0, one a millisecond; the others are empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A broker's address, its id, and a topic on it."""

    address: str
    broker_id: int
    cluster_id: str
    topic: str
    topic_id: UUID

    def wanted(self, **partition: Any) -> list[dict[str, Any]]:
        """The topic with one partition, under every name that requests have for them."""
        return [wanted(self.topic, self.topic_id, **partition)]


def wanted(topic: str, topic_id: UUID | None, **partition: Any) -> dict[str, Any]:
    """One topic with one partition, under every name that requests have for them."""
    parts = [partition]
    return {"name": topic, "topic": topic, "topic_id": topic_id, "partitions": parts, "partition_data": parts}


def unused_name() -> str:
    """A name or id that no other test has, whatever else the broker was used for."""
    return f"wire-{secrets.token_hex(6)}"


def create_topic(connection: RawConnection, name: str, partitions: int = 1, **configs: str) -> UUID:
    """Makes a topic and answers its id.

    `batch` has old timestamps: unless told otherwise, retention keeps them, or the records would be gone whenever the
    broker looks, half a minute after its start and every five minutes.
    """
    configs = {"retention_ms": "-1", **configs}
    answer = connection.ask_newest(
        ApiKey.CREATE_TOPICS,
        {
            "timeout": TIMEOUT,
            "topics": [
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
                }
            ],
        },
    )
    (topic,) = answer.topics
    assert ErrorCode.none is topic.error_code, topic.error_message
    wait_served(connection, topic.topic_id, partitions)
    return UUID(str(topic.topic_id))


def wait_served(connection: RawConnection, topic_id: UUID, partitions: int) -> None:
    """Returns once the broker serves a topic that was just made; Kafka says "made" some moments before."""
    while True:
        parts = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1} for index in range(partitions)]
        answer = connection.ask_newest(
            ApiKey.FETCH, {"topics": [{"topic_id": topic_id, "partitions": parts}], "max_bytes": 1}
        )
        if all(ErrorCode.none is part.error_code for topic in answer.responses for part in topic.partitions):
            return


def batch(producer_id: int = -1) -> bytes:
    """A batch of records with consecutive timestamps; with a producer id the first batch of that producer."""
    is_idempotent = producer_id >= 0
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=0 if is_idempotent else -1,
        base_sequence=0 if is_idempotent else -1,
    )
    for number in range(RECORDS):
        builder.append(FIRST_TIMESTAMP + number, b"key %d" % number, b"value %d" % number)
    return builder.build()


def produce(connection: RawConnection, topic_id: UUID, content: bytes, index: int = 0) -> int:
    """Appends a batch and answers its base offset."""
    answer = connection.ask_newest(
        ApiKey.PRODUCE,
        {
            "acks": -1,
            "timeout": TIMEOUT,
            "topic_data": [{"topic_id": topic_id, "partition_data": [{"index": index, "records": content}]}],
        },
    )
    (part,) = answer.responses[0].partition_responses
    assert ErrorCode.none is part.error_code, part.error_message
    return int(part.base_offset)


def make_world(address: str) -> World:
    """A topic with `PARTITIONS` partitions and `RECORDS` records in the first."""
    with RawConnection(address) as connection:
        cluster = connection.ask_newest(ApiKey.METADATA, {"topics": []})
        topic = unused_name()
        topic_id = create_topic(connection, topic, PARTITIONS)
        assert 0 == produce(connection, topic_id, batch())
        return World(
            address=address,
            broker_id=cluster.brokers[0].node_id,
            cluster_id=cluster.cluster_id,
            topic=topic,
            topic_id=topic_id,
        )


def end_offset(connection: RawConnection, topic: str) -> int:
    """Where the first partition of a topic ends."""
    wanted = {"replica_id": -1, "topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    answer = connection.ask_newest(ApiKey.LIST_OFFSETS, wanted)
    return int(answer.topics[0].partitions[0].offset)
