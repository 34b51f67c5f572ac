"""Types and promises of the compiled ConsumerGroupHeartbeat."""

from typing import final
from uuid import UUID

from typing_extensions import Buffer

@final
class ConsumerHeartbeatRequest:
    """The request; None is null, "as before" to a member that has joined."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topic_names: tuple[str, ...] | None
    topic_regex: str | None
    """None in versions that have none."""
    server_assignor: str | None
    owned_partitions: dict[UUID, tuple[int, ...]] | None

def read_consumer_heartbeat(version: int, body: Buffer) -> ConsumerHeartbeatRequest:
    """A request's body in any served version; raises ShapeError or UnicodeDecodeError if it is none.

    As careful with strangers as `shapes.py`: counts, lengths and nulls are checked, tagged fields stepped over.
    """
