"""FindCoordinator: which broker coordinates a group or a transactional id.

The first request of its kind creates the internal topic and waits for it.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.types import BrokerId as WireBrokerId
from kio.static.primitive import i32

from ottla.broker.handlers.long_requests import with_pauses
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.metadata.image import BrokerImage, ListenerEndpoint
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CoordinatorNotAvailableError, InvalidRequestError, OttlaError
from ottla.model.ids import BrokerId
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.resources import Operation, ResourceType

_GROUP: Final = 0
_TRANSACTION: Final = 1
_SHARE: Final = 2
_SHARE_SINCE: Final = 6
_SEVERAL_SINCE: Final = 4
_KEY_LENGTH_MAX: Final = 8_000
"""The coordinators refuse longer ids."""


async def find_coordinator(
    services: Services, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """The broker for each key, or the error; key types without a coordinator are invalid."""
    finders: dict[int, Callable[[str], Awaitable[BrokerImage]]] = {
        _GROUP: services.groups.find,
        _TRANSACTION: services.transactions.find,
        _SHARE: _share_finder(services, context),
    }
    is_single = context.version < _SEVERAL_SINCE
    coordinators = []
    async for key in with_pauses(request.coordinator_keys):
        try:
            _check_allowed(context, request.key_type, key)
            find = finders.get(request.key_type)
            if find is None:
                raise InvalidRequestError(f"there is no coordinator for keys of type {request.key_type}")
            if len(key) > _KEY_LENGTH_MAX:
                raise InvalidRequestError(f"the key has {len(key)} characters; the limit is {_KEY_LENGTH_MAX}")
            found = await find(key)
            endpoint = found.endpoint(context.listener)
            if endpoint is None:
                raise CoordinatorNotAvailableError(f"broker {found.id} has no listener named {context.listener}")
            coordinators.append(_found(key, found.id, endpoint, "NONE" if is_single else ""))
        except OttlaError as error:
            coordinators.append(_refused(key, error.code, str(error)))
    return FindCoordinatorResponse(throttle_time=milliseconds(0), coordinators=tuple(coordinators))


def _check_allowed(context: RequestContext, key_type: int, key: str) -> None:
    """Raises a DeniedError unless the client may know the coordinator of the key."""
    if key_type == _GROUP:
        context.check(Operation.DESCRIBE, ResourceType.GROUP, key)
    elif key_type == _TRANSACTION:
        context.check(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
    elif key_type == _SHARE and context.version >= _SHARE_SINCE:
        context.check_cluster(Operation.CLUSTER_ACTION)


def _share_finder(services: Services, context: RequestContext) -> Callable[[str], Awaitable[BrokerImage]]:
    """Finds the share coordinator of a share-partition."""

    async def find(key: str) -> BrokerImage:
        from ottla.coordination.share_state.records import read_share_key

        if context.version < _SHARE_SINCE or read_share_key(key) is None:
            raise InvalidRequestError(f"{key[:100]!r} is not a share-partition: group:topicId:partition")
        return await services.share_coordinator.find(key)

    return find


def _found(key: str, coordinator: BrokerId, endpoint: ListenerEndpoint, message: str) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=WireBrokerId(i32(coordinator)),
        host=endpoint.host,
        port=i32(endpoint.port),
        error_code=wire_error(ErrorCode.NONE),
        error_message=message,
    )


def _refused(key: str, error: ErrorCode, why: str) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=WireBrokerId(-1),
        host="",
        port=i32(-1),
        error_code=wire_error(error),
        error_message=why,
    )
