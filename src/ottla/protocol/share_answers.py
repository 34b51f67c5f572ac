"""The responses to ShareFetch and ShareAcknowledge, versions 1 and 2, as a broker writes them. Pure.

Written by hand, since both are as frequent as Fetch: records are passed on without a copy. kio reads the requests, and
`share_frames.py` is the client's side.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from ottla.protocol.fields import compact_string
from ottla.protocol.varints import unsigned_varint

LOCK_TIMEOUT_SINCE: Final = 2
"""The first version of ShareAcknowledge whose response has the lock timeout; every ShareFetch has it."""

_START: Final = Struct(">ih")
_INDEX: Final = Struct(">i")
_PART: Final = Struct(">ih")
_CODE: Final = Struct(">h")
_LEADER: Final = Struct(">iib")
_ACQUIRED: Final = Struct(">qqhb")


class PartAnswer(NamedTuple):
    """The result for one partition; only a ShareFetch has what follows `leader_epoch`."""

    partition: int
    error: int
    message: str | None
    leader_id: int
    leader_epoch: int
    acknowledge_error: int = 0
    acknowledge_message: str | None = None
    records: bytes = b""
    acquired: Sequence[tuple[int, int, int]] = ()
    """First offset, last offset (included) and delivery count."""


class Endpoint(NamedTuple):
    """Where the leader of a partition that is led elsewhere listens."""

    broker_id: int
    host: str
    port: int
    rack: str | None


Topics = Sequence[tuple[UUID, Sequence[PartAnswer]]]


def share_fetch_answer(
    error: int, message: str | None, lock_timeout_ms: int, topics: Topics, endpoints: Sequence[Endpoint]
) -> list[bytes]:
    """The pieces of a body; the records of each partition are a piece of their own."""
    pieces: list[bytes] = []
    text = bytearray(_START.pack(0, error) + compact_string(message) + _INDEX.pack(lock_timeout_ms))
    text += unsigned_varint(len(topics) + 1)
    for topic_id, parts in topics:
        text += topic_id.bytes + unsigned_varint(len(parts) + 1)
        for part in parts:
            text += _PART.pack(part.partition, part.error) + compact_string(part.message)
            text += _CODE.pack(part.acknowledge_error) + compact_string(part.acknowledge_message)
            text += _LEADER.pack(part.leader_id, part.leader_epoch, 0)
            text += unsigned_varint(len(part.records) + 1)
            if part.records:
                pieces += (bytes(text), part.records)
                text.clear()
            text += unsigned_varint(len(part.acquired) + 1)
            for first, last, delivery_count in part.acquired:
                text += _ACQUIRED.pack(first, last, delivery_count, 0)
            text += b"\0"
        text += b"\0"
    text += _endpoints(endpoints) + b"\0"
    pieces.append(bytes(text))
    return pieces


def share_acknowledge_answer(
    version: int, error: int, message: str | None, lock_timeout_ms: int, topics: Topics, endpoints: Sequence[Endpoint]
) -> bytes:
    """A whole body."""
    text = bytearray(_START.pack(0, error) + compact_string(message))
    if version >= LOCK_TIMEOUT_SINCE:
        text += _INDEX.pack(lock_timeout_ms)
    text += unsigned_varint(len(topics) + 1)
    for topic_id, parts in topics:
        text += topic_id.bytes + unsigned_varint(len(parts) + 1)
        for part in parts:
            text += _PART.pack(part.partition, part.error) + compact_string(part.message)
            text += _LEADER.pack(part.leader_id, part.leader_epoch, 0) + b"\0"
        text += b"\0"
    text += _endpoints(endpoints) + b"\0"
    return bytes(text)


def _endpoints(endpoints: Sequence[Endpoint]) -> bytes:
    return unsigned_varint(len(endpoints) + 1) + b"".join(_endpoint_parts(endpoints))


def _endpoint_parts(endpoints: Iterable[Endpoint]) -> Iterable[bytes]:
    for each in endpoints:
        rack = compact_string(each.rack)
        yield _INDEX.pack(each.broker_id) + compact_string(each.host) + _INDEX.pack(each.port) + rack + b"\0"
