"""How followers ask: what a leader is never asked, and what a follower says of itself."""

import asyncio
import logging
import struct
from collections import deque
from pathlib import Path

import pytest

from ottla.env.real_network import RealNetwork
from ottla.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptBatchError
from ottla.model.ids import BrokerId, LeaderEpoch
from ottla.protocol.replica_fetch_frames import Follower, Part, PartitionAnswer
from ottla.replication import replica_fetcher
from ottla.replication.follower_state import FollowerState, NextFetch
from ottla.replication.partition_table import PartitionTable
from ottla.replication.replica_fetcher import ReplicaFetchConfig, ReplicaFetcher, ReplicaFetchers
from ottla.replication.throttles import ReplicationThrottles
from ottla.sim.clock import SimClock
from ottla.storage.segments.scanner import DamagedSegmentError
from ottla.transport.client_connection import Connection
from tests.broker.replicated import ReplicatedBrokers
from tests.unit.replication.rig import EPOCH, ME, TOPIC_ID, PartitionRig
from tests.waiting import settle

LEADER = BrokerImage(id=BrokerId(0), host="h", port=1)
PLACE = (TOPIC_ID.bytes, 0)


def fetcher_of(clock: SimClock, *, isr: tuple[BrokerId, ...] = (), rate: int | None = None) -> ReplicaFetcher:
    """One that follows broker 0; with a rate, every partition is throttled. Failures of the disk go to the log."""
    record = PartitionImage(replicas=(LEADER.id, ME), isr=isr, leader=LEADER.id, leader_epoch=EPOCH)
    topic = TopicImage(name="t", id=TOPIC_ID, partitions=(record,))
    image = ClusterImage(topics={"t": topic}, brokers={LEADER.id: LEADER})
    return ReplicaFetcher(
        LEADER,
        RealNetwork(),
        clock,
        ReplicaFetchConfig(wait_max_ms=500, min_bytes=1, max_bytes=1 << 20, response_max_bytes=1 << 20, backoff_ms=100),
        lambda: image,
        ReplicationThrottles(ME, clock, lambda side: rate, lambda side, topic: ("*",)),
        identity=lambda: Follower(ME, 7),
        on_failure=lambda found: logging.getLogger("own").error("%s", found),
    )


class HeldLeader:
    """A connection whose requests wait for `answer`. `sessions` has the (id, epoch) of each request."""

    def __init__(self) -> None:
        self.sessions: list[tuple[int, int]] = []
        self.leader_epochs: list[int | None] = []
        """The leader epoch in each request, None if it does not name the partition."""
        self._waiting: deque[asyncio.Future[memoryview]] = deque()

    def request_bytes(self, api: int, version: int, body: list[bytes], timeout_ms: int) -> asyncio.Future[memoryview]:
        self.sessions.append(struct.unpack_from(">ii", body[0], 13))
        at = body[0].find(TOPIC_ID.bytes)
        self.leader_epochs.append(None if at < 0 else struct.unpack_from(">16xxxxxxi", body[0], at)[0])
        self._waiting.append(asyncio.get_running_loop().create_future())
        return self._waiting[-1]

    def answer(self, session_id: int) -> None:
        """Answers the oldest request, with no partition."""
        self._waiting.popleft().set_result(memoryview(struct.pack(">ixihibb", 1, 0, 0, session_id, 1, 0)))

    def answer_partition(self, session_id: int, error: ErrorCode) -> None:
        """Answers the oldest request, with an error for the partition."""
        start = struct.pack(">ixihib", 1, 0, 0, session_id, 2)
        partition = struct.pack(">bihqqqbibb", 2, 0, error, -1, -1, -1, 1, -1, 1, 0)
        self._waiting.popleft().set_result(memoryview(start + TOPIC_ID.bytes + partition + b"\0\0"))

    def close(self) -> None:
        """Nothing is open."""


async def test_a_wait_for_the_leader_takes_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed before such a task has started would leave a coroutine that was never awaited."""
    leader = HeldLeader()

    async def opened(*_: object, **__: object) -> HeldLeader:
        return leader

    monkeypatch.setattr(Connection, "open", opened)
    partition = (await PartitionRig.make()).partition
    partition.become_follower(FollowerState(LEADER.id, EPOCH))
    fetcher = fetcher_of(SimClock())
    fetcher.set_partitions([partition])
    copying = asyncio.create_task(fetcher.run())
    await settle()
    leader.answer(5)
    await settle()
    assert [(0, 0), (5, 1)] == leader.sessions, "the second request waits at the leader"
    assert {asyncio.current_task(), copying} == asyncio.all_tasks()
    copying.cancel()
    await asyncio.gather(copying, return_exceptions=True)


@pytest.mark.parametrize(
    ("session_id", "then", "after_a_change"),
    [(5, [(0, 0), (5, 1)], [(0, 0), (5, 1), (5, 2)]), (0, [(0, 0), (0, 0)], [(0, 0), (0, 0)])],
    ids=["session", "no room for a session"],
)
async def test_no_request_follows_one_without_a_session(
    session_id: int,
    then: list[tuple[int, int]],
    after_a_change: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = HeldLeader()

    async def opened(*_: object, **__: object) -> HeldLeader:
        return leader

    monkeypatch.setattr(Connection, "open", opened)
    partition = (await PartitionRig.make()).partition
    partition.become_follower(FollowerState(LEADER.id, EPOCH))
    fetcher = fetcher_of(SimClock())
    fetcher.set_partitions([partition])
    copying = asyncio.create_task(fetcher.run())
    await settle()
    fetcher.set_partitions([partition])
    await settle()
    assert [(0, 0)] == leader.sessions, "nothing follows the request that opens the session"
    leader.answer(session_id)
    await settle()
    assert then == leader.sessions
    fetcher.set_partitions([partition])
    await settle()
    assert after_a_change == leader.sessions
    copying.cancel()


async def test_an_answer_to_an_earlier_leader_epoch_does_not_stop_the_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader refuses the older epoch after the follower has learned the newer one: no further change will come."""
    leader, clock = HeldLeader(), SimClock()

    async def opened(*_: object, **__: object) -> HeldLeader:
        return leader

    monkeypatch.setattr(Connection, "open", opened)
    partition = (await PartitionRig.make()).partition
    partition.become_follower(FollowerState(LEADER.id, EPOCH))
    fetcher = fetcher_of(clock)
    fetcher.set_partitions([partition])
    copying = asyncio.create_task(fetcher.run())
    await settle()
    leader.answer(5)
    await settle()
    partition.become_follower(FollowerState(LEADER.id, LeaderEpoch(EPOCH + 1)))
    fetcher.set_partitions([partition])
    await settle()
    assert [EPOCH, None, EPOCH + 1] == leader.leader_epochs
    leader.answer_partition(5, ErrorCode.FENCED_LEADER_EPOCH)
    await settle()
    assert [PLACE] == list(fetcher._wanted())
    leader.answer(5)
    await settle()
    assert [(0, 0), (5, 1), (5, 2), (5, 3)] == leader.sessions
    copying.cancel()


async def test_partitions_that_come_while_a_session_is_opened_wait_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.replication.replica_fetcher")
    async with ReplicatedBrokers(tmp_path) as cluster:
        await asyncio.gather(*(cluster.make_topic(f"t{each}", 3) for each in range(5)))
        await cluster.send("t4", [b"x"])
        for each in range(5):
            await cluster.wait_in_sync(f"t{each}")
    assert [] == [record.message for record in caplog.records if "FETCH_SESSION" in record.message]


@pytest.mark.parametrize("epoch", [0, 1, 2**40])
@pytest.mark.parametrize("is_leaving", [False, True])
def test_what_a_follower_says_of_itself_is_read_as_it_was_meant(epoch: int, is_leaving: bool) -> None:
    identity = Follower(BrokerId(7), epoch, is_leaving)
    assert (identity.sent_epoch < -1) is is_leaving
    assert identity == Follower.read(BrokerId(7), identity.sent_epoch)


@pytest.mark.parametrize("is_in_sync", [False, True])
async def test_a_throttle_that_is_overdrawn_is_waited_for_whatever_happens_meanwhile(is_in_sync: bool) -> None:
    """By what came from any leader, in large answers, and though partitions come and go; who is in sync never waits."""
    clock = SimClock()
    partition = (await PartitionRig.make()).partition
    partition.become_follower(FollowerState(LEADER.id, EPOCH))
    fetcher = fetcher_of(clock, isr=(LEADER.id, ME) if is_in_sync else (LEADER.id,), rate=1000)
    fetcher.set_partitions([partition])
    assert [PLACE] == list(fetcher._wanted())
    throttle = fetcher._throttles.of_follower(partition)
    assert throttle is not None
    throttle.record(11_000, clock.monotonic())
    for _ in range(8):
        clock.advance(1.1)
        fetcher.set_partitions([partition])
        assert is_in_sync is bool(fetcher._wanted())
    clock.advance(2)
    assert [PLACE] == list(fetcher._wanted())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DamagedSegmentError("/own/0.log", 7, "rotten"), "/own/0.log, byte 7: rotten"),
        (CorruptBatchError("offset 3 comes where 5 belongs"), "replica fetcher: leader 0 sent a corrupt batch"),
    ],
)
async def test_the_leader_is_not_blamed_for_what_has_rotten_here(
    error: CorruptBatchError, told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> NextFetch:
        raise error

    monkeypatch.setattr(replica_fetcher, "take_answer", fails)
    partition = (await PartitionRig.make()).partition
    partition.become_follower(FollowerState(LEADER.id, EPOCH))
    fetcher = fetcher_of(SimClock())
    fetcher._take_part(partition, Part(PLACE, PartitionAnswer(), memoryview(b"")))
    assert [True] == [each.getMessage().startswith(told) for each in caplog.records]
    assert [PLACE] == list(fetcher._waits_until), "it is asked for again after a while"


async def test_a_leader_that_does_not_know_that_this_broker_leaves_is_none_to_leave_to() -> None:
    """It would take it back for what it knows of it."""
    clock, identity = SimClock(), Follower(ME, 7)
    partition = (await PartitionRig.make()).partition
    partition.become_follower(FollowerState(LEADER.id, EPOCH))
    partitions = PartitionTable()
    partitions.add(partition)
    fetcher = fetcher_of(clock)
    fetcher.answered_at = 5.0
    fetchers = ReplicaFetchers(
        partitions,
        lambda: ClusterImage(brokers={LEADER.id: LEADER}),
        clock,
        fetcher_for=lambda leader: fetcher,
        identity=lambda: identity,
        wait_max_ms=500,
    )
    fetchers.refresh()
    assert (5.0, float("-inf")) == (fetchers.answered_at(LEADER.id), fetchers.answered_at(ME))
    identity = identity._replace(is_leaving=True)
    assert float("-inf") == fetchers.answered_at(LEADER.id)
    fetcher.knows_leaving = True
    assert 5.0 == fetchers.answered_at(LEADER.id)
    await fetchers.close()
