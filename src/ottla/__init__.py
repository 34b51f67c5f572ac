"""Ottla: a distributed, replicated log that speaks Apache Kafka's wire protocol.

`Producer`, `Consumer` and `Admin`, and the same for asyncio, talk to Ottla and to Kafka; `Broker` runs a broker within
any program. The rooms of the house, bottom first: `model`, `records`, `env`, `protocol`, `storage`, `metadata`,
`transport`, `controller`, `replication`, `coordination`, `broker`, `client`, `testing`, `cli`. `docs/architecture.md`
has the map and the walks; each package's docstring is its front door.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.version import __version__

if TYPE_CHECKING:
    from ottla.broker.broker import Broker as Broker
    from ottla.broker.configuration import BrokerConfig as BrokerConfig
    from ottla.client.admin.async_admin import AsyncAdmin as AsyncAdmin
    from ottla.client.admin.async_admin import OffsetSpec as OffsetSpec
    from ottla.client.admin.blocking_admin import Admin as Admin
    from ottla.client.admin.config_requests import ResourceType as ResourceType
    from ottla.client.admin.partition_moves import ElectionType as ElectionType
    from ottla.client.admin.values import ConfigResource as ConfigResource
    from ottla.client.admin.values import MemberToRemove as MemberToRemove
    from ottla.client.admin.values import NewPartitions as NewPartitions
    from ottla.client.admin.values import NewTopic as NewTopic
    from ottla.client.admin.values import Outcomes as Outcomes
    from ottla.client.admin.values import PartlyFailedError as PartlyFailedError
    from ottla.client.consumer.async_consumer import AsyncConsumer as AsyncConsumer
    from ottla.client.consumer.blocking_consumer import Consumer as Consumer
    from ottla.client.consumer.range_reader import AsyncRangeReader as AsyncRangeReader
    from ottla.client.consumer.range_reader import RangeReader as RangeReader
    from ottla.client.group.rebalance_listener import ConsumerRebalanceListener as ConsumerRebalanceListener
    from ottla.client.parallel.async_parallel_consumer import AsyncParallelConsumer as AsyncParallelConsumer
    from ottla.client.parallel.async_parallel_consumer import HandlerFailedError as HandlerFailedError
    from ottla.client.parallel.async_parallel_consumer import RejectRecordError as RejectRecordError
    from ottla.client.parallel.blocking_parallel_consumer import ParallelConsumer as ParallelConsumer
    from ottla.client.producer.async_producer import AsyncProducer as AsyncProducer
    from ottla.client.producer.blocking_producer import Producer as Producer
    from ottla.client.producer.deliveries import AsyncDelivery as AsyncDelivery
    from ottla.client.producer.deliveries import Delivery as Delivery
    from ottla.client.producer.interceptors import ProducerInterceptor as ProducerInterceptor
    from ottla.client.producer.interceptors import ProducerRecord as ProducerRecord
    from ottla.client.producer.table_delivery import AsyncTableDelivery as AsyncTableDelivery
    from ottla.client.producer.table_delivery import TableDelivery as TableDelivery
    from ottla.client.producer.table_delivery import WrittenRows as WrittenRows
    from ottla.client.values import ConsumerGroupMetadata as ConsumerGroupMetadata
    from ottla.client.values import ConsumerRecord as ConsumerRecord
    from ottla.client.values import OffsetAndMetadata as OffsetAndMetadata
    from ottla.client.values import OffsetAndTimestamp as OffsetAndTimestamp
    from ottla.client.values import RecordMetadata as RecordMetadata

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncParallelConsumer",
    "AsyncProducer",
    "AsyncRangeReader",
    "AsyncTableDelivery",
    "Broker",
    "BrokerConfig",
    "ConfigResource",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "Delivery",
    "ElectionType",
    "HandlerFailedError",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "OttlaError",
    "Outcomes",
    "ParallelConsumer",
    "PartlyFailedError",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "RangeReader",
    "RecordMetadata",
    "RejectRecordError",
    "ResourceType",
    "TableDelivery",
    "TopicPartition",
    "WrittenRows",
    "__version__",
]

_LAZY: Final = {
    "Broker": "ottla.broker.broker",
    "BrokerConfig": "ottla.broker.configuration",
    "AsyncAdmin": "ottla.client.admin.async_admin",
    "OffsetSpec": "ottla.client.admin.async_admin",
    "ConfigResource": "ottla.client.admin.values",
    "MemberToRemove": "ottla.client.admin.values",
    "NewPartitions": "ottla.client.admin.values",
    "NewTopic": "ottla.client.admin.values",
    "Outcomes": "ottla.client.admin.values",
    "PartlyFailedError": "ottla.client.admin.values",
    "Admin": "ottla.client.admin.blocking_admin",
    "Consumer": "ottla.client.consumer.blocking_consumer",
    "ParallelConsumer": "ottla.client.parallel.blocking_parallel_consumer",
    "Producer": "ottla.client.producer.blocking_producer",
    "ResourceType": "ottla.client.admin.config_requests",
    "AsyncConsumer": "ottla.client.consumer.async_consumer",
    "AsyncDelivery": "ottla.client.producer.deliveries",
    "Delivery": "ottla.client.producer.deliveries",
    "ProducerInterceptor": "ottla.client.producer.interceptors",
    "ProducerRecord": "ottla.client.producer.interceptors",
    "AsyncParallelConsumer": "ottla.client.parallel.async_parallel_consumer",
    "HandlerFailedError": "ottla.client.parallel.async_parallel_consumer",
    "RejectRecordError": "ottla.client.parallel.async_parallel_consumer",
    "ElectionType": "ottla.client.admin.partition_moves",
    "AsyncProducer": "ottla.client.producer.async_producer",
    "AsyncRangeReader": "ottla.client.consumer.range_reader",
    "RangeReader": "ottla.client.consumer.range_reader",
    "ConsumerRebalanceListener": "ottla.client.group.rebalance_listener",
    "AsyncTableDelivery": "ottla.client.producer.table_delivery",
    "TableDelivery": "ottla.client.producer.table_delivery",
    "WrittenRows": "ottla.client.producer.table_delivery",
    "ConsumerGroupMetadata": "ottla.client.values",
    "ConsumerRecord": "ottla.client.values",
    "OffsetAndMetadata": "ottla.client.values",
    "OffsetAndTimestamp": "ottla.client.values",
    "RecordMetadata": "ottla.client.values",
}


def __getattr__(name: str) -> Any:
    """Loads what is large when it is first asked for: a client need not pay for the broker."""
    if name not in _LAZY:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    """The public names, whether they are loaded or not."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
