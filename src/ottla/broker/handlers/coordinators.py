"""FindCoordinator: which broker looks after a group or a transactional id. None does yet.

The API is listed all the same, since librdkafka compresses with LZ4 only for brokers that list it. Whoever asks is told
that no coordinator is available, with the reason.
"""

from typing import TYPE_CHECKING

from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.types import BrokerId as WireBrokerId
from kio.static.primitive import i32

from ottla.broker.context import Context
from ottla.model.error_codes import ErrorCode
from ottla.protocol.messages import milliseconds, wire_error

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


def find_coordinator(broker: "Broker", context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """No coordinator, and why."""
    return FindCoordinatorResponse(
        throttle_time=milliseconds(0),
        coordinators=tuple(
            Coordinator(
                key=key,
                node_id=WireBrokerId(-1),
                host="",
                port=i32(-1),
                error_code=wire_error(ErrorCode.COORDINATOR_NOT_AVAILABLE),
                error_message="this broker serves neither consumer groups nor transactions",
            )
            for key in request.coordinator_keys
        ),
    )
