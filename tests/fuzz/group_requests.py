"""Requests of groups that kernels read: damaged bodies of JoinGroup, SyncGroup, Heartbeat, ConsumerGroupHeartbeat and
ShareAcknowledge.

What they mean is compared with kio in tests/unit/protocol. Commits of offsets are in `offsets.py`; `kernels.py` calls
the targets here.
"""

from contextlib import suppress
from random import Random

from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.classic_members import read_heartbeat, read_join_group, read_sync_group
from ottla.protocol.consumer_heartbeats import read_consumer_heartbeat
from ottla.protocol.shapes import ShapeError
from ottla.protocol.share_acknowledgements import read_share_acknowledgement
from tests.fuzz import damage
from tests.fuzz.requests import RequestWriter


def join(chance: Random) -> None:
    """A member of a classic group joins."""
    version = _version(chance, ApiKey.JOIN_GROUP)
    writer = RequestWriter(chance, flexible=version >= 6)
    writer.text()
    writer.number("i")
    if version >= 1:
        writer.number("i")
    writer.text()
    if version >= 5:
        writer.text(nullable=True)
    writer.text()
    _pairs(chance, writer)
    if version >= 8:
        writer.text(nullable=True)
    writer.tags()
    with suppress(ShapeError, UnicodeDecodeError):
        read_join_group(version, damage.exact(_damaged(chance, bytes(writer.content))))


def sync(chance: Random) -> None:
    """A member of a classic group asks for its assignment, or brings those of all."""
    version = _version(chance, ApiKey.SYNC_GROUP)
    writer = RequestWriter(chance, flexible=version >= 4)
    _classic_member(writer, has_instance=version >= 3)
    if version >= 5:
        writer.text(nullable=True)
        writer.text(nullable=True)
    _pairs(chance, writer)
    writer.tags()
    with suppress(ShapeError, UnicodeDecodeError):
        read_sync_group(version, damage.exact(_damaged(chance, bytes(writer.content))))


def classic_heartbeat(chance: Random) -> None:
    """A member of a classic group."""
    version = _version(chance, ApiKey.HEARTBEAT)
    writer = RequestWriter(chance, flexible=version >= 4)
    _classic_member(writer, has_instance=version >= 3)
    writer.tags()
    with suppress(ShapeError, UnicodeDecodeError):
        read_heartbeat(version, damage.exact(_damaged(chance, bytes(writer.content))))


def _classic_member(writer: RequestWriter, *, has_instance: bool) -> None:
    writer.text()
    writer.number("i")
    writer.text()
    if has_instance:
        writer.text(nullable=True)


def _pairs(chance: Random, writer: RequestWriter) -> None:
    """Protocols or assignments."""
    for _ in range(writer.count((0, 1, 2, 200))):
        writer.text()
        writer.sized(chance.randbytes(chance.choice((0, 1, 126, 127, 300))), "i")
        writer.tags()


def heartbeat(chance: Random) -> None:
    """A member of a consumer group."""
    version = _version(chance, ApiKey.CONSUMER_GROUP_HEARTBEAT)
    writer = RequestWriter(chance, flexible=True)
    writer.text()
    writer.text()
    writer.number("i")
    writer.text(nullable=True)
    writer.text(nullable=True)
    writer.number("i")
    for _ in range(writer.count()):
        writer.text()
    if version >= 1:
        writer.text(nullable=True)
    writer.text(nullable=True)
    for _ in range(writer.count()):
        writer.topic(by_id=True)
        for _ in range(writer.count((0, 1, 2, 200))):
            writer.number("i")
        writer.tags()
    writer.tags()
    with suppress(ShapeError, UnicodeDecodeError):
        read_consumer_heartbeat(version, damage.exact(_damaged(chance, bytes(writer.content))))


def acknowledge(chance: Random) -> None:
    """A member of a share group."""
    version = _version(chance, ApiKey.SHARE_ACKNOWLEDGE)
    writer = RequestWriter(chance, flexible=True)
    writer.text(nullable=True)
    writer.text(nullable=True)
    writer.number("i")
    if version >= 2:
        writer.content += bytes((chance.randrange(2),))
    for _ in range(writer.count()):
        writer.topic(by_id=True)
        for _ in range(writer.count()):
            writer.number("i")
            for _ in range(writer.count()):
                writer.number("q")
                writer.number("q")
                for _ in range(writer.count((0, 1, 2, 200))):
                    writer.number("b")
                writer.tags()
            writer.tags()
        writer.tags()
    writer.tags()
    with suppress(ShapeError, UnicodeDecodeError):
        read_share_acknowledgement(version, damage.exact(_damaged(chance, bytes(writer.content))))


def _version(chance: Random, api_key: ApiKey) -> int:
    return chance.choice(range(SERVED[api_key].lowest, SERVED[api_key].highest + 1))


def _damaged(chance: Random, body: bytes) -> bytes:
    if chance.random() < 0.6:
        body = damage.damaged_bytes(chance, body)
    return body[: chance.randrange(len(body) + 1)] if chance.random() < 0.3 else body
