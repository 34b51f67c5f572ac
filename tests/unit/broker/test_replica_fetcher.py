"""How followers ask: what a leader is never asked, and whom it believes."""

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.broker import replica_fetcher
from ottla.broker.handlers.fetch import _follower_of
from ottla.broker.replica_fetcher import ReplicaFetcher, ReplicaFetchers
from ottla.metadata.image import BrokerImage
from ottla.model.errors import CorruptBatchError
from ottla.model.ids import BrokerId
from ottla.protocol.replica_fetch_frames import Asker
from ottla.replication.follower_state import Patience
from ottla.replication.throttle import Throttle
from ottla.sim.clock import SimClock
from ottla.storage.scanner import DamagedSegmentError
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


@pytest.mark.parametrize("epoch", [0, 1, 2**40])
@pytest.mark.parametrize("is_leaving", [False, True])
def test_what_a_follower_says_of_itself_is_read_as_it_was_meant(epoch: int, is_leaving: bool) -> None:
    asker = Asker(BrokerId(7), epoch, is_leaving)
    assert (asker.spoken_epoch < -1) is is_leaving
    assert asker == Asker.read(BrokerId(7), asker.spoken_epoch)


def test_only_the_present_life_of_a_registered_broker_is_believed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with ReplicatedBrokers(tmp_path, count=2) as cluster:
            leader, present = cluster.brokers[0], cluster.brokers[1].broker_epoch

            def heard(broker: int, epoch: int) -> Asker | None:
                request: Any = SimpleNamespace(replica_id=broker, replica_epoch=epoch)
                return _follower_of(leader, request)

            assert Asker(BrokerId(1), present) == heard(1, present)
            assert Asker(BrokerId(1), present, is_leaving=True) == heard(1, -2 - present)
            for broker, epoch in [(1, -1), (1, 0), (1, present - 1), (1, -1 - present), (-1, present), (5, 0), (5, -2)]:
                assert (broker, epoch, None) == (broker, epoch, heard(broker, epoch))

    asyncio.run(scenario())


@pytest.mark.parametrize("is_in_sync", [False, True])
def test_a_throttle_that_is_overdrawn_is_waited_for_whatever_happens_meanwhile(is_in_sync: bool) -> None:
    """By what came from any leader, in large answers, and though partitions come and go; who is in sync never waits."""
    clock = SimClock()
    throttle = Throttle(1000, clock.monotonic())
    isr = (BrokerId(0), BrokerId(1)) if is_in_sync else (BrokerId(0),)
    log: Any = SimpleNamespace(
        end_offset=5, start_offset=0, epochs=SimpleNamespace(latest=1), health=SimpleNamespace(is_sound=True)
    )
    partition: Any = SimpleNamespace(
        topic="t", topic_id=UUID(int=1), index=0, leader_epoch=1, log=log, follower=object()
    )
    broker: Any = SimpleNamespace(
        id=1,
        clock=clock,
        config=SimpleNamespace(replica_fetch_max_bytes=1 << 20),
        image=SimpleNamespace(topics={"t": SimpleNamespace(partitions=[SimpleNamespace(isr=isr)])}),
        throttles=SimpleNamespace(of_follower=lambda partition: throttle),
    )
    fetcher = ReplicaFetcher(broker, BrokerImage(id=BrokerId(0), host="h", port=1))
    fetcher.set_partitions([partition])
    assert 1 == len(fetcher._wanted())
    throttle.record(11_000, clock.monotonic())
    for _ in range(8):
        clock.advance(1.1)
        fetcher.set_partitions([partition])
        assert is_in_sync is bool(fetcher._wanted())
    clock.advance(2)
    assert 1 == len(fetcher._wanted())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DamagedSegmentError("/own/0.log", 7, "rotten"), "/own/0.log, byte 7: rotten"),
        (CorruptBatchError("offset 3 comes where 5 belongs"), "what broker 0 sent is damaged"),
    ],
)
def test_the_leader_is_not_blamed_for_what_has_rotten_here(
    error: CorruptBatchError, told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> Patience:
        raise error

    monkeypatch.setattr(replica_fetcher, "take_answer", fails)
    broker: Any = SimpleNamespace(
        clock=SimClock(),
        config=SimpleNamespace(replica_fetch_backoff_ms=100),
        throttles=SimpleNamespace(of_follower=lambda partition: None),
        report_failure=lambda found: logging.getLogger("own").error("%s", found),
    )
    fetcher = ReplicaFetcher(broker, BrokerImage(id=BrokerId(0), host="h", port=1))
    part: Any = SimpleNamespace(place=(bytes(16), 0), answer=None, records=memoryview(b""))
    partition: Any = None
    fetcher._take_part(partition, part)
    assert [True] == [each.getMessage().startswith(told) for each in caplog.records]
    assert [part.place] == list(fetcher._waits_until), "it is asked for again after a while"


def test_a_leader_that_does_not_know_that_this_broker_leaves_is_none_to_leave_to() -> None:
    """It would take it back for what it knows of it."""
    broker: Any = SimpleNamespace(is_leaving=False)
    fetchers = ReplicaFetchers(broker)
    fetcher: Any = SimpleNamespace(answered_at=5.0, knows_leaving=False)
    task: Any = None
    fetchers._fetchers[BrokerId(0)] = fetcher, task
    assert (5.0, float("-inf")) == (fetchers.answered_at(BrokerId(0)), fetchers.answered_at(BrokerId(1)))
    broker.is_leaving = True
    assert float("-inf") == fetchers.answered_at(BrokerId(0))
    fetcher.knows_leaving = True
    assert 5.0 == fetchers.answered_at(BrokerId(0))
