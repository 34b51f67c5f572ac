"""DescribeQuorum, UnregisterBroker and changes of voters: what tools ask of a cluster that keeps its metadata in a log
of its own (KRaft).

Here the metadata is in a store. So the quorum is described as that of one voter, the controller, which writes; the
other brokers are observers. Offsets are revisions of the store: every registered broker follows it, so that this
broker's revision is shown for all of them. Voters cannot be added or removed, as in a Kafka whose voters are configured
(kraft.version 0).
"""

from typing import Any, Final

from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest
from kio.schema.add_raft_voter.v1.response import AddRaftVoterResponse
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest
from kio.schema.remove_raft_voter.v0.response import RemoveRaftVoterResponse
from kio.schema.types import BrokerId as WireBrokerId
from kio.schema.types import TopicName
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse
from kio.static.primitive import i16, i32, i64, u16

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.records import CONTROLLER_KEY
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import BrokerId
from ottla.protocol.messages import milliseconds, wire_error
from ottla.protocol.newer_messages import UnregisterControllerRequest, UnregisterControllerResponse
from ottla.security.resources import Operation
from ottla.storage.data_dirs.names import KAFKA_METADATA_TOPIC

_EPOCH_MAX: Final = 2**31 - 1
_SHOWN_MAX: Final = 100


def describe_quorum(
    services: Services, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """The quorum of `__cluster_metadata-0`; there is no other partition to ask for."""
    if not context.allows_cluster(Operation.DESCRIBE):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeQuorumResponse(
            error_code=wire_error(denied), error_message="not allowed to describe the cluster", topics=(), nodes=()
        )
    return quorum_of(services.image, request, services.clock.now_ms())


def quorum_of(image: ClusterImage, request: DescribeQuorumRequest, now_ms: int) -> DescribeQuorumResponse:
    """The quorum as an image shows it."""
    return DescribeQuorumResponse(
        error_code=wire_error(ErrorCode.NONE),
        error_message=None,
        topics=tuple(
            TopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    _partition(image, topic.topic_name, int(each.partition_index), now_ms) for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
        nodes=tuple(_voter(image.brokers[each]) for each in sorted(image.brokers) if each == image.controller),
    )


def _partition(image: ClusterImage, topic: TopicName, index: int, now_ms: int) -> PartitionData:
    if (topic, index) != (KAFKA_METADATA_TOPIC, 0):
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if image.controller not in image.brokers:
        return _refused(index, ErrorCode.LEADER_NOT_AVAILABLE)
    return PartitionData(
        partition_index=i32(index),
        error_code=wire_error(ErrorCode.NONE),
        error_message=None,
        leader_id=WireBrokerId(i32(image.controller)),
        leader_epoch=i32(min(image.revision_of(CONTROLLER_KEY), _EPOCH_MAX)),
        high_watermark=i64(image.revision),
        current_voters=(_replica(image, image.controller, now_ms),),
        observers=tuple(_replica(image, each, now_ms) for each in sorted(image.brokers) if each != image.controller),
    )


def _refused(index: int, error: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=i32(index),
        error_code=wire_error(error),
        error_message=None,
        leader_id=WireBrokerId(i32(0)),
        leader_epoch=i32(0),
        high_watermark=i64(0),
        current_voters=(),
        observers=(),
    )


def _replica(image: ClusterImage, broker: BrokerId, now_ms: int) -> ReplicaState:
    return ReplicaState(
        replica_id=WireBrokerId(i32(broker)),
        replica_directory_id=None,
        log_end_offset=i64(image.revision),
        last_fetch_timestamp=i64(now_ms),
        last_caught_up_timestamp=i64(now_ms),
    )


def _voter(broker: BrokerImage) -> Node:
    return Node(
        node_id=WireBrokerId(i32(broker.id)),
        listeners=tuple(Listener(name=each.name, host=each.host, port=u16(each.port)) for each in broker.listeners),
    )


async def unregister_broker(services: Services, context: RequestContext, request: UnregisterBrokerRequest) -> Any:
    """Forgets a broker that is not running and has no replicas."""
    error, message = ErrorCode.NONE, None
    try:
        context.check_cluster(Operation.ALTER)
        revision = await services.controller.unregister_broker(BrokerId(request.broker_id))
        await services.wait_revision(revision)
    except OttlaError as failure:
        error, message = failure.code, str(failure)
    return UnregisterBrokerResponse(throttle_time=milliseconds(0), error_code=wire_error(error), error_message=message)


def add_raft_voter(services: Services, context: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    """Refused: the controller is elected through the metadata store."""
    error, message = _no_voters(services, context, request.cluster_id, "adding")
    return AddRaftVoterResponse(throttle_time=milliseconds(0), error_code=wire_error(error), error_message=message)


def remove_raft_voter(
    services: Services, context: RequestContext, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    """Refused: the controller is elected through the metadata store."""
    error, message = _no_voters(services, context, request.cluster_id, "removing")
    return RemoveRaftVoterResponse(throttle_time=milliseconds(0), error_code=wire_error(error), error_message=message)


def _no_voters(
    services: Services, context: RequestContext, cluster_id: str | None, change: str
) -> tuple[ErrorCode, str]:
    if not context.allows_cluster(Operation.ALTER):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed to alter the cluster"
    if cluster_id is not None and cluster_id != services.image.cluster_id:
        return (
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f'The given id "{cluster_id[:_SHOWN_MAX]}" doesn\'t match the cluster id "{services.image.cluster_id}"',
        )
    return (
        ErrorCode.UNSUPPORTED_VERSION,
        f"Cluster doesn't support {change} voter because the kraft.version feature is 0: "
        "the controller is elected through the metadata store",
    )


def unregister_controller(
    services: Services, context: RequestContext, request: UnregisterControllerRequest
) -> UnregisterControllerResponse:
    """Refused: no controller is registered apart from the brokers, which UnregisterBroker removes."""
    error = ErrorCode.CONTROLLER_ID_NOT_REGISTERED
    message = f"Controller ID {request.controller_id} is not currently registered: brokers are the controllers here"
    if not context.allows_cluster(Operation.ALTER):
        error, message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed to alter the cluster"
    return UnregisterControllerResponse(
        throttle_time=milliseconds(0), error_code=i16(int(error)), error_message=message
    )
