"""Which fetches a leader takes for those of a follower: real requests, on a connection of their own."""

import asyncio
from pathlib import Path
from struct import pack

from ottla.metadata.records import broker_key
from ottla.model.ids import BrokerId
from ottla.protocol.apis import ApiKey
from ottla.protocol.replica_fetch_frames import VERSION, Follower, Limits, fetch_body
from ottla.protocol.scan import FetchRequest, Request
from ottla.transport.connection import Slot
from tests.broker.inside import follower_of
from tests.broker.replicated import ReplicatedBrokers
from tests.unit.transport.rig import ServedListener


def fetch_frame(broker: int, sent_epoch: int) -> bytes:
    """A request without partitions, with the broker id and the epoch as they are sent."""
    header = pack(">hhih", ApiKey.FETCH, VERSION, 1, -1) + b"\0"
    content = header + fetch_body(Follower(BrokerId(broker), sent_epoch), Limits(0, 1, 1 << 20), (0, 0), [], [])
    return pack(">i", len(content)) + content


async def test_only_the_present_registration_of_a_broker_is_believed(tmp_path: Path) -> None:
    received: asyncio.Queue[tuple[FetchRequest, Slot]] = asyncio.Queue()

    def serve(request: Request, buffer: bytearray, slot: Slot, /) -> None:
        assert isinstance(request, FetchRequest), vars(request)
        received.put_nowait((request, slot))
        slot.complete(())

    async with ReplicatedBrokers(tmp_path, count=2) as cluster, ServedListener(lambda turn: serve) as rig:
        present = cluster.brokers[0].image.revision_of(broker_key(BrokerId(1)))
        client = await rig.connect()

        async def believed(broker: int, sent_epoch: int) -> Follower | None:
            await client.send(fetch_frame(broker, sent_epoch))
            return follower_of(cluster.brokers[0], *await received.get())

        assert Follower(BrokerId(1), present) == await believed(1, present)
        assert Follower(BrokerId(1), present, is_leaving=True) == await believed(1, -2 - present)
        for broker, epoch in [(1, -1), (1, 0), (1, present - 1), (1, -1 - present), (-1, present), (5, 0), (5, -2)]:
            assert (broker, epoch, None) == (broker, epoch, await believed(broker, epoch))
