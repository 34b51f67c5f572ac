"""ISR changes of real brokers: counted and logged once they are committed."""

import logging
from pathlib import Path

import pytest

from tests.broker.metric_samples import samples_of, value
from tests.broker.replicated import SOON_LATE, ReplicatedBrokers


async def test_each_change_of_an_isr_is_logged_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ottla.replication.isr_proposals"):
        async with ReplicatedBrokers(tmp_path, SOON_LATE) as brokers:
            # One follower: on a machine that stalls, another one would be late too.
            await brokers.make_topic("t", replicas=2, min_insync_replicas="1")
            await brokers.wait_in_sync("t")
            leader = brokers.leader("t")
            follower = next(each for each in brokers.copies("t") if each != leader)

            def counts() -> tuple[float, float]:
                samples = samples_of(brokers.brokers[leader])
                return value(samples, "ottla_isr_shrinks_total"), value(samples, "ottla_isr_expansions_total")

            before = counts()
            caplog.clear()
            resume = await brokers.silence(follower)
            await brokers.send("t", [b"a"])
            await brokers.wait(lambda: counts()[0] > before[0])
            resume()
            await brokers.wait_in_sync("t")
            after = counts()
    assert (before[0] + 1, before[1] + 1) == after
    shrunk, expanded = [record.message for record in caplog.records if record.name == "ottla.replication.isr_proposals"]
    assert shrunk.startswith("partition t-0: ISR shrunk from [")
    assert expanded.startswith("partition t-0: ISR expanded from [")
    assert [2, 1, 1, 2] == [
        text.split("]")[0].count(",") + 1 for line in (shrunk, expanded) for text in line.split("[")[1:]
    ]
