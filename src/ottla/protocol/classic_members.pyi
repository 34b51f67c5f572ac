"""Types and promises of the compiled JoinGroup, SyncGroup and Heartbeat."""

from typing import final

from typing_extensions import Buffer

@final
class JoinGroup:
    """A JoinGroup request; None is null, or not in the version."""

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    """-1 in the version that has none."""
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """Names and metadata."""
    protocols_size: int
    """Of all names, in characters, and metadata."""
    reason: str | None

@final
class SyncGroup:
    """A SyncGroup request; None is null, or not in the version."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]
    """Member ids and assignments."""
    assignments_size: int
    """Of all member ids, in characters, and assignments."""

@final
class Heartbeat:
    """A Heartbeat request of a classic group; None is null, or not in the version."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None

def read_join_group(version: int, body: Buffer) -> JoinGroup:
    """A request's body in any served version; raises ShapeError or UnicodeDecodeError if it is none.

    As careful with strangers as `shapes.py`: counts, lengths and nulls are checked, tagged fields stepped over.
    """

def read_sync_group(version: int, body: Buffer) -> SyncGroup:
    """The same for SyncGroup."""

def read_heartbeat(version: int, body: Buffer) -> Heartbeat:
    """The same for Heartbeat."""
