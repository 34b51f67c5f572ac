"""What a share consumer asks of its broker: seen between the two."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ottla import AsyncShareConsumer
from ottla.protocol.apis import ApiKey
from tests.broker.client.holding_relay import HoldingRelay, holding_relay
from tests.broker.client.scripted_broker import request_message
from tests.broker.running_broker import make_topic, running
from tests.waiting import until

SETTINGS = {
    "share_coordinator_state_topic_num_partitions": "1",
    "group_share_heartbeat_interval_ms": "300",
    "group_share_min_heartbeat_interval_ms": "300",
}
FOREVER_MS = 180_000


@asynccontextmanager
async def consuming(folder: Path, **options: Any) -> AsyncIterator[tuple[HoldingRelay, AsyncShareConsumer]]:
    """A share consumer of an empty topic, which reaches its broker by a relay only."""
    async with running(folder, **SETTINGS) as broker, holding_relay(broker.port) as relay:
        await make_topic(broker, "t")
        async with AsyncShareConsumer(
            "t", group_id="g", bootstrap_servers=f"127.0.0.1:{relay.port}", retry_backoff_ms=1, **options
        ) as consumer:
            yield relay, consumer


def fetches(relay: HoldingRelay) -> list[Any]:
    """The ShareFetch requests so far."""
    return [
        request_message(ApiKey.SHARE_FETCH, int.from_bytes(frame[6:8]), frame[12:])
        for frame in relay.frames
        if int.from_bytes(frame[4:6]) == ApiKey.SHARE_FETCH
    ]


async def test_a_fetch_does_not_wait_longer_than_the_poll(tmp_path: Path) -> None:
    """Records that came later would be locked, and no poll would return them."""
    async with consuming(tmp_path, fetch_max_wait_ms=60_000) as (relay, consumer):

        async def poll() -> bool:
            assert {} == await consumer.poll(timeout_ms=300)
            return bool(fetches(relay))

        await until(poll)
        waits_ms = [fetch.max_wait.total_seconds() * 1000 for fetch in fetches(relay)]
        assert all(0 < wait_ms <= 300 for wait_ms in waits_ms), waits_ms


async def test_a_session_whose_connection_was_lost_is_opened_again_when_the_broker_may_have_noticed(
    tmp_path: Path,
) -> None:
    """A broker may notice only when it responds; until then the records of the lost session stay locked."""
    wait_ms = 1_000
    async with consuming(tmp_path, fetch_max_wait_ms=wait_ms) as (relay, consumer):
        polling = asyncio.create_task(consumer.poll(timeout_ms=FOREVER_MS))
        await until(lambda: len(fetches(relay)) > 1)
        before, now = len(fetches(relay)), asyncio.get_running_loop().time
        cut_at = now()
        relay.cut()
        await until(lambda: len(fetches(relay)) > before)
        assert now() - cut_at >= wait_ms / 1000
        assert 0 == fetches(relay)[before].share_session_epoch
        consumer.wakeup()
        await asyncio.gather(polling, return_exceptions=True)
