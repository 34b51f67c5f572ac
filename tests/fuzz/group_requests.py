"""Requests of groups that kernels read: damaged bodies of ConsumerGroupHeartbeat and ShareAcknowledge.

What they mean is compared with kio in tests/unit/protocol. Commits of offsets are in `offsets.py`; `kernels.py` calls
the targets here.
"""

from contextlib import suppress
from random import Random

from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.consumer_heartbeats import read_consumer_heartbeat
from ottla.protocol.shapes import ShapeError
from ottla.protocol.share_acknowledgements import read_share_acknowledgement
from tests.fuzz import damage
from tests.fuzz.requests import RequestWriter


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
