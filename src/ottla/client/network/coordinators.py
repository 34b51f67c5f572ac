"""Who coordinates a group or a transactional id, and asking it. Looked up anew at every try: coordinators move.

What is asked, and what an answer means, is in `group_admin.py` and `transaction_admin.py`.
"""

from enum import IntEnum
from typing import Any

from ottla.client.errors import answer_error
from ottla.client.network.cluster import Cluster
from ottla.protocol.apis import ApiKey


class CoordinatorType(IntEnum):
    """What has a coordinator, by the protocol's number."""

    GROUP = 0
    TRANSACTION = 1


async def find_coordinator(cluster: Cluster, kind: CoordinatorType, key: str) -> int:
    """The id of the broker that coordinates a group or a transactional id; raises a retriable error while none does."""
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
    """The answer of the broker that coordinates a group or a transactional id."""
    return await cluster.to_broker(await find_coordinator(cluster, kind, key), api_key, message)
