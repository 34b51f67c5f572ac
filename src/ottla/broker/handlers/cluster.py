"""DescribeCluster: the brokers, the controller, the cluster's id."""

from typing import TYPE_CHECKING, Final

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.types import BrokerId as WireBrokerId
from kio.static.primitive import i8, i32

from ottla.broker.context import Context
from ottla.broker.handlers.availability import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED
from ottla.metadata.image import NO_LEADER, ClusterImage
from ottla.model.error_codes import ErrorCode
from ottla.protocol.messages import milliseconds, wire_error

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_ENDPOINT_TYPES_SINCE: Final = 1


def describe_cluster(broker: "Broker", context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """The cluster as this broker knows it."""
    return description_of(broker.image, request, context.version)


def description_of(image: ClusterImage, request: DescribeClusterRequest, version: int) -> DescribeClusterResponse:
    """The brokers that live, in the order of their ids; there are no fenced ones to include.

    Controllers have no endpoints of their own here, so that asking for them is refused.
    """
    if request.endpoint_type != _BROKERS:
        return _refused(version, request.endpoint_type)
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(ErrorCode.NONE),
        endpoint_type=i8(_BROKERS),
        cluster_id=image.cluster_id,
        controller_id=WireBrokerId(i32(image.controller if image.controller in image.brokers else NO_LEADER)),
        brokers=tuple(
            DescribeClusterBroker(
                broker_id=WireBrokerId(i32(each.id)),
                host=each.host,
                port=i32(each.port),
                rack=each.rack,
                is_fenced=False,
            )
            for _, each in sorted(image.brokers.items())
        ),
        cluster_authorized_operations=i32(CLUSTER_OPERATIONS if asked else OPERATIONS_NOT_ASKED),
    )


def _refused(version: int, endpoint_type: int) -> DescribeClusterResponse:
    is_known = endpoint_type == _CONTROLLERS
    error = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    if version < _ENDPOINT_TYPES_SINCE:
        error = ErrorCode.INVALID_REQUEST
    return DescribeClusterResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(error),
        error_message=f"this endpoint is a broker's (type {_BROKERS}); the request wants type {endpoint_type}",
        cluster_id="",
        brokers=(),
    )
