"""Groups over the wire: names that nobody else has, and a member that is where a test needs it."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from tests.wire.exchange import RawConnection
from tests.wire.world import World

SESSION: Final = timedelta(seconds=60)
"""Long enough that no member is removed because the machine stalls."""
PROTOCOL: Final = "range"
PROTOCOL_TYPE: Final = "consumer"
ASSIGNMENT: Final = b"\0\0\0\0\0\0\xff\xff\xff\xff"
"""Of no partitions."""


def unused_group(connection: RawConnection) -> str:
    """A group id that no other test has, whose coordinator answers."""
    group_id = f"wire-{secrets.token_hex(6)}"
    wait_coordinator(connection, group_id)
    return group_id


def wait_coordinator(connection: RawConnection, group_id: str) -> None:
    """Returns once the group can be asked; the first group of a broker has to wait for the internal topic."""
    while True:
        request = {"key_type": 0, "coordinator_keys": [group_id]}
        (found,) = connection.ask_newest(ApiKey.FIND_COORDINATOR, request).coordinators
        (group,) = connection.ask(ApiKey.DESCRIBE_GROUPS, 5, {"groups": [group_id]}).groups
        if (ErrorCode.none, ErrorCode.none) == (found.error_code, group.error_code):
            return


def subscription(*topics: str) -> bytes:
    """What a consumer says when it joins: version 0, the topics, and nothing else."""
    names = b"".join(len(topic).to_bytes(2) + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4) + names + b"\xff\xff\xff\xff"


def join_values(group_id: str, **values: Any) -> dict[str, Any]:
    """A join request."""
    return {
        "group_id": group_id,
        "session_timeout": SESSION,
        "rebalance_timeout": SESSION,
        "protocol_type": PROTOCOL_TYPE,
        "protocols": [{"name": PROTOCOL, "metadata": subscription()}],
        **values,
    }


def sync_values(group_id: str, member_id: str, **values: Any) -> dict[str, Any]:
    """A sync request of the first generation, in which the member leads."""
    return {
        "group_id": group_id,
        "generation_id": 1,
        "member_id": member_id,
        "protocol_type": PROTOCOL_TYPE,
        "protocol_name": PROTOCOL,
        "assignments": [{"member_id": member_id, "assignment": ASSIGNMENT}],
        **values,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlyMember:
    """The only member of a stable group in its first generation."""

    group_id: str
    member_id: str

    @property
    def identity(self) -> dict[str, Any]:
        """What the requests of a member have in common."""
        return {"group_id": self.group_id, "member_id": self.member_id, "generation_id": 1}


def join_alone(connection: RawConnection, *topics: str, instance_id: str | None = None) -> OnlyMember:
    """A new group with one member, which subscribes to these topics."""
    group_id = unused_group(connection)
    values = join_values(
        group_id,
        group_instance_id=instance_id,
        protocols=[{"name": PROTOCOL, "metadata": subscription(*topics)}],
    )
    joined = connection.ask_newest(ApiKey.JOIN_GROUP, values)
    if instance_id is None:
        assert ErrorCode.member_id_required is joined.error_code
        joined = connection.ask_newest(ApiKey.JOIN_GROUP, {**values, "member_id": joined.member_id})
    assert (ErrorCode.none, 1) == (joined.error_code, joined.generation_id)
    synced = connection.ask_newest(ApiKey.SYNC_GROUP, sync_values(group_id, joined.member_id))
    assert (ErrorCode.none, ASSIGNMENT) == (synced.error_code, synced.assignment)
    return OnlyMember(group_id=group_id, member_id=joined.member_id)


def commit_values(world: World, group_id: str, offsets: Mapping[int, int], **values: Any) -> dict[str, Any]:
    """A commit of offsets, by partition of the world's topic, by nobody's member."""
    parts = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": 0,
            "committed_metadata": "note",
        }
        for index, offset in offsets.items()
    ]
    return {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": world.topic, "topic_id": world.topic_id, "partitions": parts}],
        **values,
    }


def commit_errors(answer: Any) -> list[ErrorCode]:
    """The outcome of each partition of a commit, in the order of their indexes."""
    parts = [part for topic in answer.topics for part in topic.partitions]
    return [part.error_code for part in sorted(parts, key=lambda part: part.partition_index)]


def fetch_offsets(connection: RawConnection, group_id: str) -> dict[tuple[str, int], tuple[int, str]]:
    """All that a group has committed: offset and metadata by topic and partition."""
    request = {"groups": [{"group_id": group_id, "topics": None}]}
    (group,) = connection.ask(ApiKey.OFFSET_FETCH, 9, request).groups
    assert ErrorCode.none is group.error_code
    return {
        (topic.name, part.partition_index): (part.committed_offset, part.metadata)
        for topic in group.topics
        for part in topic.partitions
    }
