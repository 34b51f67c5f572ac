"""Finds the coordinator of a group or transactional id, and sends requests to it.

The coordinator is looked up for every try, since coordinators move.
"""

from enum import IntEnum
from typing import Any

from ottla.client.errors import answer_error
from ottla.client.network.cluster import Cluster
from ottla.protocol.apis import ApiKey


class CoordinatorType(IntEnum):
    """The kinds of coordinators, by their number in the protocol."""

    GROUP = 0
    TRANSACTION = 1


async def find_coordinator(cluster: Cluster, kind: CoordinatorType, key: str) -> int:
    """The id of the coordinator of a group or transactional id. Raises a retriable error while there is none."""
    from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
    from kio.static.primitive import i8

    message = FindCoordinatorRequest(key_type=i8(kind), coordinator_keys=(key,))
    response = await cluster.to_any(ApiKey.FIND_COORDINATOR, message)
    (found,) = response.coordinators
    if found.error_code:
        noun = "group" if kind is CoordinatorType.GROUP else "transactional id"
        raise answer_error(int(found.error_code), f"the coordinator of {noun} {key!r}", found.error_message)
    return int(found.node_id)


async def to_coordinator(cluster: Cluster, kind: CoordinatorType, key: str, api_key: ApiKey, message: Any) -> Any:
    """The response of the coordinator of a group or transactional id."""
    return await cluster.to_broker(await find_coordinator(cluster, kind, key), api_key, message)
