"""The active controller: leadership goes back to the preferred replicas by itself."""

import asyncio
from pathlib import Path

from tests.broker.replicated import ReplicatedBrokers


async def leaders_after_a_restart(folder: Path, settings: dict[str, str]) -> tuple[list[int], list[int]]:
    """The leader right after broker 2 came back, and the preferred one."""
    async with ReplicatedBrokers(folder, settings) as cluster:
        await cluster.make_topic("t", 3)
        await cluster.stop(2)
        await cluster.start(2)
        for each in range(3):
            await cluster.wait_in_sync("t", each)
        if settings["auto.leader.rebalance.enable"] == "true":
            await cluster.wait(lambda: {cluster.leader("t", each) for each in range(3)} == {0, 1, 2})
        image = cluster.brokers[0].image.topics["t"]
        return [each.leader for each in image.partitions], [each.replicas[0] for each in image.partitions]


def test_preferred_replicas_lead_again_after_a_while(tmp_path: Path) -> None:
    settings = {"auto.leader.rebalance.enable": "true", "leader.imbalance.check.interval.seconds": "1"}
    leaders, preferred = asyncio.run(leaders_after_a_restart(tmp_path, settings))
    assert preferred == leaders


def test_unless_that_is_not_wanted(tmp_path: Path) -> None:
    settings = {"auto.leader.rebalance.enable": "false", "leader.imbalance.check.interval.seconds": "1"}
    leaders, preferred = asyncio.run(leaders_after_a_restart(tmp_path, settings))
    assert ({0, 1}, {0, 1, 2}) == (set(leaders), set(preferred))
