"""Ottla: a distributed, replicated log that speaks Apache Kafka's wire protocol.

`Producer`, `Consumer` and `Admin`, and the same for asyncio, talk to Ottla and to Kafka; `Broker` runs a broker inside
any program. The packages, lowest layer first: `model`, `records`, `env`, `protocol`, `storage`, `metadata`,
`transport`, `controller`, `replication`, `coordination`, `broker`, `client`, `testing`, `cli`. `docs/architecture.md`
has a map of them; the docstring of each package introduces it.
"""

from typing import TYPE_CHECKING, Final

from ottla.lazy_names import lazy_names
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.version import __version__

if TYPE_CHECKING:
    from ottla.broker.broker import Broker as Broker
    from ottla.broker.configs.configuration import BrokerConfig as BrokerConfig
    from ottla.client.admin.acls import ACL as ACL
    from ottla.client.admin.acls import ACLFilter as ACLFilter
    from ottla.client.admin.acls import ACLOperation as ACLOperation
    from ottla.client.admin.acls import ACLPermissionType as ACLPermissionType
    from ottla.client.admin.acls import ACLResourcePatternType as ACLResourcePatternType
    from ottla.client.admin.acls import ACLResourceType as ACLResourceType
    from ottla.client.admin.acls import ResourcePattern as ResourcePattern
    from ottla.client.admin.acls import ResourcePatternFilter as ResourcePatternFilter
    from ottla.client.admin.async_admin import AsyncAdmin as AsyncAdmin
    from ottla.client.admin.async_admin import OffsetSpec as OffsetSpec
    from ottla.client.admin.blocking_admin import Admin as Admin
    from ottla.client.admin.config_requests import ResourceType as ResourceType
    from ottla.client.admin.replica_requests import ElectionType as ElectionType
    from ottla.client.admin.token_requests import DelegationToken as DelegationToken
    from ottla.client.admin.user_requests import ScramCredentialInfo as ScramCredentialInfo
    from ottla.client.admin.user_requests import UserScramCredentialDeletion as UserScramCredentialDeletion
    from ottla.client.admin.user_requests import UserScramCredentialUpsertion as UserScramCredentialUpsertion
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
    from ottla.client.half.async_half_message_producer import AsyncHalfMessageProducer as AsyncHalfMessageProducer
    from ottla.client.half.blocking_half_message_producer import HalfMessageProducer as HalfMessageProducer
    from ottla.client.half.values import HalfDecision as HalfDecision
    from ottla.client.half.values import HalfMessage as HalfMessage
    from ottla.client.half.values import HalfResult as HalfResult
    from ottla.client.parallel.async_parallel_consumer import AsyncParallelConsumer as AsyncParallelConsumer
    from ottla.client.parallel.async_parallel_consumer import HandlerFailedError as HandlerFailedError
    from ottla.client.parallel.async_parallel_consumer import RejectRecordError as RejectRecordError
    from ottla.client.parallel.blocking_parallel_consumer import ParallelConsumer as ParallelConsumer
    from ottla.client.producer.async_producer import AsyncProducer as AsyncProducer
    from ottla.client.producer.batching.deliveries import AsyncDelivery as AsyncDelivery
    from ottla.client.producer.batching.deliveries import Delivery as Delivery
    from ottla.client.producer.blocking_producer import Producer as Producer
    from ottla.client.producer.interceptors import ProducerInterceptor as ProducerInterceptor
    from ottla.client.producer.interceptors import ProducerRecord as ProducerRecord
    from ottla.client.producer.tables.table_delivery import AsyncTableDelivery as AsyncTableDelivery
    from ottla.client.producer.tables.table_delivery import TableDelivery as TableDelivery
    from ottla.client.producer.tables.table_delivery import WrittenRows as WrittenRows
    from ottla.client.share.async_share_consumer import AsyncShareConsumer as AsyncShareConsumer
    from ottla.client.share.blocking_share_consumer import ShareConsumer as ShareConsumer
    from ottla.client.share.values import AcknowledgeType as AcknowledgeType
    from ottla.client.share.values import ShareRecord as ShareRecord
    from ottla.client.values import ConsumerGroupMetadata as ConsumerGroupMetadata
    from ottla.client.values import ConsumerRecord as ConsumerRecord
    from ottla.client.values import OffsetAndMetadata as OffsetAndMetadata
    from ottla.client.values import OffsetAndTimestamp as OffsetAndTimestamp
    from ottla.client.values import RecordMetadata as RecordMetadata
    from ottla.security.quota_entity import QuotaEntity as QuotaEntity
    from ottla.security.scram_credential import ScramMechanism as ScramMechanism

__all__ = [
    "ACL",
    "ACLFilter",
    "ACLOperation",
    "ACLPermissionType",
    "ACLResourcePatternType",
    "ACLResourceType",
    "AcknowledgeType",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncHalfMessageProducer",
    "AsyncParallelConsumer",
    "AsyncProducer",
    "AsyncRangeReader",
    "AsyncShareConsumer",
    "AsyncTableDelivery",
    "Broker",
    "BrokerConfig",
    "ConfigResource",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "DelegationToken",
    "Delivery",
    "ElectionType",
    "HalfDecision",
    "HalfMessage",
    "HalfMessageProducer",
    "HalfResult",
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
    "QuotaEntity",
    "RangeReader",
    "RecordMetadata",
    "RejectRecordError",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "ScramCredentialInfo",
    "ScramMechanism",
    "ShareConsumer",
    "ShareRecord",
    "TableDelivery",
    "TopicPartition",
    "UpgradeType",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "WrittenRows",
    "__version__",
]

_LAZY: Final = {
    "Broker": "ottla.broker.broker",
    "BrokerConfig": "ottla.broker.configs.configuration",
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
    "AsyncHalfMessageProducer": "ottla.client.half.async_half_message_producer",
    "HalfMessageProducer": "ottla.client.half.blocking_half_message_producer",
    "HalfDecision": "ottla.client.half.values",
    "HalfMessage": "ottla.client.half.values",
    "HalfResult": "ottla.client.half.values",
    "AsyncDelivery": "ottla.client.producer.batching.deliveries",
    "Delivery": "ottla.client.producer.batching.deliveries",
    "ProducerInterceptor": "ottla.client.producer.interceptors",
    "ProducerRecord": "ottla.client.producer.interceptors",
    "AsyncParallelConsumer": "ottla.client.parallel.async_parallel_consumer",
    "HandlerFailedError": "ottla.client.parallel.async_parallel_consumer",
    "RejectRecordError": "ottla.client.parallel.async_parallel_consumer",
    "ElectionType": "ottla.client.admin.replica_requests",
    "AsyncProducer": "ottla.client.producer.async_producer",
    "AsyncRangeReader": "ottla.client.consumer.range_reader",
    "RangeReader": "ottla.client.consumer.range_reader",
    "ConsumerRebalanceListener": "ottla.client.group.rebalance_listener",
    "AsyncShareConsumer": "ottla.client.share.async_share_consumer",
    "ShareConsumer": "ottla.client.share.blocking_share_consumer",
    "AcknowledgeType": "ottla.client.share.values",
    "ShareRecord": "ottla.client.share.values",
    "AsyncTableDelivery": "ottla.client.producer.tables.table_delivery",
    "TableDelivery": "ottla.client.producer.tables.table_delivery",
    "WrittenRows": "ottla.client.producer.tables.table_delivery",
    "ConsumerGroupMetadata": "ottla.client.values",
    "ConsumerRecord": "ottla.client.values",
    "OffsetAndMetadata": "ottla.client.values",
    "OffsetAndTimestamp": "ottla.client.values",
    "RecordMetadata": "ottla.client.values",
    "ACL": "ottla.client.admin.acls",
    "ACLFilter": "ottla.client.admin.acls",
    "ACLOperation": "ottla.client.admin.acls",
    "ACLPermissionType": "ottla.client.admin.acls",
    "ACLResourcePatternType": "ottla.client.admin.acls",
    "ACLResourceType": "ottla.client.admin.acls",
    "ResourcePattern": "ottla.client.admin.acls",
    "ResourcePatternFilter": "ottla.client.admin.acls",
    "UserScramCredentialDeletion": "ottla.client.admin.user_requests",
    "UserScramCredentialUpsertion": "ottla.client.admin.user_requests",
    "ScramCredentialInfo": "ottla.client.admin.user_requests",
    "DelegationToken": "ottla.client.admin.token_requests",
    "UpgradeType": "ottla.model.upgrade_type",
    "QuotaEntity": "ottla.security.quota_entity",
    "ScramMechanism": "ottla.security.scram_credential",
}

# A client does not load the broker.
__getattr__, __dir__ = lazy_names(__name__, _LAZY)
