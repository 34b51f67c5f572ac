"""Hand-written responses of groups: JoinGroup, SyncGroup and Heartbeat of classic ones, ConsumerGroupHeartbeat.

A rebalance answers all members at once, the leader with the list of members; kio takes several times as long. Covers
the versions with tagged fields, which all recent clients use, and Heartbeat in all versions; older joins and syncs are
written by kio (`messages.py`). The bytes are the same either way.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from struct import Struct, pack
from typing import Final
from uuid import UUID

from ottla.protocol.varints import unsigned_varint

JOIN_SINCE: Final = 6
SYNC_SINCE: Final = 4
"""The lowest versions that are written here."""

_JOIN_TYPE_SINCE: Final = 7
_JOIN_SKIP_SINCE: Final = 9
_SYNC_PROTOCOL_SINCE: Final = 5
_HEARTBEAT_THROTTLE_SINCE: Final = 1
_HEARTBEAT_TAGS_SINCE: Final = 4

_ERROR: Final = Struct(">h")
_THROTTLE_ERROR: Final = Struct(">ih")
_THROTTLE_ERROR_GENERATION: Final = Struct(">ihi")
_EPOCH_INTERVAL: Final = Struct(">ii")
_NULL: Final = b"\0"
_NULL_STRUCTURE: Final = b"\xff"
_STRUCTURE: Final = b"\1"
_NO_TAGS: Final = b"\0"
_BOOLEANS: Final = (b"\0", b"\1")


def joined_body(
    version: int,
    *,
    error: int,
    generation: int,
    protocol_type: str | None,
    protocol_name: str | None,
    leader: str,
    skip_assignment: bool,
    member_id: str,
    members: Iterable[tuple[str, str | None, bytes]],
) -> bytes:
    """A JoinGroup response's body, from `JOIN_SINCE` on; a member is its id, instance id and metadata."""
    start = _joined_start(version, error, generation, protocol_type, protocol_name, leader, skip_assignment)
    listed = [
        b"".join((_text(each), _nullable_text(instance_id), _sized(metadata), _NO_TAGS))
        for each, instance_id, metadata in members
    ]
    return b"".join((start, _text(member_id), unsigned_varint(len(listed) + 1), *listed, _NO_TAGS))


@lru_cache(maxsize=64)
def _joined_start(
    version: int,
    error: int,
    generation: int,
    protocol_type: str | None,
    protocol_name: str | None,
    leader: str,
    skip_assignment: bool,
) -> bytes:
    """What the members of a generation are told alike."""
    parts = [_THROTTLE_ERROR_GENERATION.pack(0, error, generation)]
    if version >= _JOIN_TYPE_SINCE:
        parts += _nullable_text(protocol_type), _nullable_text(protocol_name)
    else:
        # Before it could be null it was empty.
        parts.append(_text(protocol_name or ""))
    parts.append(_text(leader))
    if version >= _JOIN_SKIP_SINCE:
        parts.append(_BOOLEANS[skip_assignment])
    return b"".join(parts)


def synced_body(
    version: int, *, error: int, protocol_type: str | None, protocol_name: str | None, assignment: bytes
) -> bytes:
    """A SyncGroup response's body, from `SYNC_SINCE` on."""
    return b"".join((_synced_start(version, error, protocol_type, protocol_name), _sized(assignment), _NO_TAGS))


@lru_cache(maxsize=64)
def _synced_start(version: int, error: int, protocol_type: str | None, protocol_name: str | None) -> bytes:
    """The same for SyncGroup."""
    protocol = b""
    if version >= _SYNC_PROTOCOL_SINCE:
        protocol = _nullable_text(protocol_type) + _nullable_text(protocol_name)
    return _THROTTLE_ERROR.pack(0, error) + protocol


@lru_cache(maxsize=256)
def heartbeat_body(version: int, error: int) -> bytes:
    """A Heartbeat response's body, in any version."""
    if version < _HEARTBEAT_THROTTLE_SINCE:
        return _ERROR.pack(error)
    return _THROTTLE_ERROR.pack(0, error) + (_NO_TAGS if version >= _HEARTBEAT_TAGS_SINCE else b"")


def consumer_heartbeat_body(
    *,
    error: int,
    error_message: str | None,
    member_id: str | None,
    member_epoch: int,
    heartbeat_interval_ms: int,
    assignment: Mapping[UUID, Sequence[int]] | None,
) -> bytes:
    """A ConsumerGroupHeartbeat response's body, in any version."""
    parts = [
        _THROTTLE_ERROR.pack(0, error),
        _nullable_text(error_message),
        _nullable_text(member_id),
        _EPOCH_INTERVAL.pack(member_epoch, heartbeat_interval_ms),
    ]
    if assignment is None:
        parts += _NULL_STRUCTURE, _NO_TAGS
        return b"".join(parts)
    parts += _STRUCTURE, unsigned_varint(len(assignment) + 1)
    for topic_id, partitions in assignment.items():
        count = len(partitions)
        parts += topic_id.bytes, unsigned_varint(count + 1), pack(f">{count}i", *partitions), _NO_TAGS
    # Of the assignment, and of the response.
    parts += _NO_TAGS, _NO_TAGS
    return b"".join(parts)


def _nullable_text(text: str | None) -> bytes:
    return _NULL if text is None else _sized(text.encode())


def _text(text: str) -> bytes:
    return _sized(text.encode())


def _sized(data: bytes) -> bytes:
    """A compact string: its length plus one, then its bytes."""
    return unsigned_varint(len(data) + 1) + data
