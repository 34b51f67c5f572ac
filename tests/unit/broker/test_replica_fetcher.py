"""How followers ask: what a leader is never asked."""

import asyncio
import logging
from pathlib import Path

import pytest

from tests.unit.broker.replicated import ReplicatedBrokers


def test_partitions_that_come_while_a_session_is_opened_wait_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with ReplicatedBrokers(tmp_path) as cluster:
            await asyncio.gather(*(cluster.make_topic(f"t{each}", 3) for each in range(5)))
            await cluster.send("t4", [b"x"])
            for each in range(5):
                await cluster.wait_in_sync(f"t{each}")

    caplog.set_level(logging.INFO, "ottla.broker.replica_fetcher")
    asyncio.run(scenario())
    assert [] == [record.message for record in caplog.records if "FETCH_SESSION" in record.message]
