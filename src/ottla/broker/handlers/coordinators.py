"""FindCoordinator: which broker looks after a group or a transactional id.

Whoever asks for the first one ever has the internal topic made, and waits for it.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.types import BrokerId as WireBrokerId
from kio.static.primitive import i32

from ottla.broker.context import Context
from ottla.broker.handlers.turns import in_turns
from ottla.metadata.image import BrokerImage
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, OttlaError
from ottla.protocol.messages import milliseconds, wire_error

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_GROUP: Final = 0
_TRANSACTION: Final = 1
_SEVERAL_SINCE: Final = 4
_KEY_LENGTH_MAX: Final = 8_000
"""Longer ids than this are nobody's: the coordinators refuse them."""


async def find_coordinator(
    broker: "Broker", context: Context, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """The broker for each key, or why there is none; keys of types that nobody coordinates here are invalid."""
    finders: dict[int, Callable[[str], Awaitable[BrokerImage]]] = {
        _GROUP: broker.groups.find,
        _TRANSACTION: broker.transactions.find,
    }
    find = finders.get(request.key_type)
    is_single = context.version < _SEVERAL_SINCE
    coordinators = []
    async for key in in_turns(request.coordinator_keys):
        try:
            if find is None:
                raise InvalidRequestError(f"nobody coordinates keys of the type {request.key_type} here")
            if len(key) > _KEY_LENGTH_MAX:
                raise InvalidRequestError(f"the key has {len(key)} characters, {_KEY_LENGTH_MAX} at most")
            coordinators.append(_found(key, await find(key), "NONE" if is_single else ""))
        except OttlaError as error:
            coordinators.append(_refused(key, error.code, str(error)))
    return FindCoordinatorResponse(throttle_time=milliseconds(0), coordinators=tuple(coordinators))


def _found(key: str, coordinator: BrokerImage, message: str) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=WireBrokerId(i32(coordinator.id)),
        host=coordinator.host,
        port=i32(coordinator.port),
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
