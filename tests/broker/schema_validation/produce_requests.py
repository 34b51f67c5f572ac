"""Produce requests to topics with schema validation, and what is in their answers."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode as WireCode

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import ConfigResource
from ottla.protocol.apis import ApiKey
from ottla.protocol.config_resources import ResourceType
from ottla.records.builder import BatchBuilder
from ottla.records.layout import Codec
from ottla.testing import InProcessBroker
from tests.wire.exchange import RawConnection, read_response, request_frame

URL: Final = "confluent.schema.registry.url"
VALUES: Final = {"confluent.value.schema.validation": "true"}
Record = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


def set_registry(broker: InProcessBroker, *urls: str) -> None:
    """Changes the broker's config; it has taken effect when this returns."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.alter_configs([ConfigResource(ResourceType.BROKER, "", {URL: ",".join(urls)})])


def batch(*records: Record, codec: Codec = Codec.NONE, **options: Any) -> bytes:
    builder = BatchBuilder(codec=codec, **options)
    for key, value, headers in records:
        builder.append(1_700_000_000_000, key, value, headers)
    return builder.build()


def values(*found: bytes | None) -> list[Record]:
    return [(None, each, ()) for each in found]


def produced(broker: InProcessBroker, topic: str, content: bytes, acks: int = -1) -> Any:
    """The answer for the one partition."""
    with RawConnection(broker.bootstrap) as connection:
        return ask(connection, topic, content, acks)


def produce_request(topic: str, content: bytes, acks: int = -1) -> dict[str, Any]:
    return {
        "acks": acks,
        "timeout": timedelta(seconds=60),
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": content}]}],
    }


def ask(connection: RawConnection, topic: str, content: bytes, acks: int = -1) -> Any:
    # The last version that names topics.
    answer = connection.ask(ApiKey.PRODUCE, 12, produce_request(topic, content, acks))
    return answer.responses[0].partition_responses[0]


def end_offset(broker: InProcessBroker, topic: str) -> int:
    partition = broker.broker.partitions.get(topic, 0)
    assert partition is not None
    return partition.end_offset


def refused(answer: Any) -> list[tuple[int, str]]:
    assert WireCode.invalid_record is answer.error_code, answer
    return [(each.batch_index, each.batch_index_error_message) for each in answer.record_errors]


def frame(topic: str, content: bytes) -> bytes:
    return request_frame(ApiKey.PRODUCE, 12, produce_request(topic, content))


def part(received: bytes) -> Any:
    return read_response(ApiKey.PRODUCE, 12, received)[1].responses[0].partition_responses[0]
