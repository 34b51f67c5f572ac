"""Fetch requests as they come off the wire, with what sessions look at."""

from collections.abc import Sequence
from struct import pack

from ottla.protocol.scan import FetchRequest, scan_requests

Wants = Sequence[tuple[str | bytes, int, int]]
"""(topic, partition, fetch offset); the topic as its name, or for version 13 as its id of 16 bytes."""


def fetch_frame(
    session_id: int,
    session_epoch: int,
    wanted: Wants = (),
    forgotten: Sequence[tuple[str | bytes, int]] = (),
    *,
    version: int = 7,
) -> bytes:
    """Version 7 for topics by name, 13 for topics by id, 4 for those from before there were sessions."""
    limits = pack(">iiiib", -1, 500, 1, 1 << 20, 0)
    session = pack(">ii", session_id, session_epoch) if version >= 7 else b""
    if version >= 13:
        topics = [topic_id + b"\x02" + pack(">iiqiqib", at, -1, offset, -1, -1, 1 << 20, 0) + b"\0"
                  for topic_id, at, offset in wanted if isinstance(topic_id, bytes)]  # fmt: skip
        gone = [
            topic_id + b"\x02" + pack(">i", at) + b"\0" for topic_id, at in forgotten if isinstance(topic_id, bytes)
        ]
        header = pack(">hhih", 1, version, 5, -1) + b"\0"
        body = limits + session + _compact(topics) + _compact(gone) + b"\x01\0"
    else:
        start = pack(">q", -1) if version >= 5 else b""
        topics = [
            _name(name) + pack(">iiq", 1, at, offset) + start + pack(">i", 1 << 20) for name, at, offset in wanted
        ]
        gone = [_name(name) + pack(">ii", 1, at) for name, at in forgotten]
        header = pack(">hhih", 1, version, 5, -1)
        body = limits + session + _array(topics) + (_array(gone) if version >= 7 else b"")
    return pack(">i", len(header + body)) + header + body


def fetch_request(
    session_id: int,
    session_epoch: int,
    wanted: Wants = (),
    forgotten: Sequence[tuple[str | bytes, int]] = (),
    *,
    version: int = 7,
) -> FetchRequest:
    """The same as the broker's scan finds it."""
    frame = fetch_frame(session_id, session_epoch, wanted, forgotten, version=version)
    (request,), end, _ = scan_requests(bytearray(frame), 0, len(frame), 1 << 20)
    assert isinstance(request, FetchRequest), vars(request)
    assert len(frame) == end
    return request


def _name(name: str | bytes) -> bytes:
    assert isinstance(name, str)
    return pack(">h", len(name)) + name.encode()


def _array(items: list[bytes]) -> bytes:
    return pack(">i", len(items)) + b"".join(items)


def _compact(items: list[bytes]) -> bytes:
    assert len(items) < 127
    return bytes([len(items) + 1]) + b"".join(items)
