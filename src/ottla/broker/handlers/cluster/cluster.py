"""DescribeCluster: the brokers, the controller, the cluster's id."""

from typing import Final

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.types import BrokerId as WireBrokerId
from kio.static.primitive import i8, i32

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.metadata.image import NO_LEADER, ClusterImage
from ottla.model.error_codes import ErrorCode
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.resources import CLUSTER_NAME, OPERATIONS_NOT_REQUESTED, Operation, ResourceType

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_ENDPOINT_TYPES_SINCE: Final = 1


def describe_cluster(
    services: Services, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """The cluster as this broker knows it."""
    operations = OPERATIONS_NOT_REQUESTED
    if request.include_cluster_authorized_operations:
        may_describe = context.sees_cluster(Operation.DESCRIBE)
        operations = context.operations(ResourceType.CLUSTER, CLUSTER_NAME) if may_describe else 0
    return description_of(services.image, request, context.version, context.listener, operations)


def description_of(
    image: ClusterImage, request: DescribeClusterRequest, version: int, listener: str, operations: int
) -> DescribeClusterResponse:
    """The live brokers that have the listener, in the order of their ids; there are no fenced ones to include.

    Controllers have no endpoints of their own here, so that asking for them is refused.
    """
    if request.endpoint_type != _BROKERS:
        return _refused(version, request.endpoint_type)
    return DescribeClusterResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(ErrorCode.NONE),
        endpoint_type=i8(_BROKERS),
        cluster_id=image.cluster_id,
        controller_id=WireBrokerId(i32(image.controller if image.controller in image.brokers else NO_LEADER)),
        brokers=tuple(
            DescribeClusterBroker(
                broker_id=WireBrokerId(i32(each.id)),
                host=endpoint.host,
                port=i32(endpoint.port),
                rack=each.rack,
                is_fenced=False,
            )
            for _, each in sorted(image.brokers.items())
            if (endpoint := each.endpoint(listener)) is not None
        ),
        cluster_authorized_operations=i32(operations),
    )


def _refused(version: int, endpoint_type: int) -> DescribeClusterResponse:
    is_known = endpoint_type == _CONTROLLERS
    error = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    if version < _ENDPOINT_TYPES_SINCE:
        error = ErrorCode.INVALID_REQUEST
    return DescribeClusterResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(error),
        error_message=f"this is a broker endpoint (type {_BROKERS}); the request asks for type {endpoint_type}",
        cluster_id="",
        brokers=(),
    )
