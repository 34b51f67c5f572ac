"""Bootstrap, metadata, routing and trying again."""

import asyncio
from uuid import UUID

import pytest

from ottla.client.admin.topic_requests import create_topic, delete_topic
from ottla.client.errors import AnswerError, CannotConnectError, ConnectionLostError, RetriableAnswerError, answer_error
from ottla.client.network.backoff import Backoff
from ottla.client.network.cluster import Cluster, UnknownPartitionInTopicError
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.sim.clock import SimClock
from ottla.sim.random import SimRandom
from ottla.transport.addresses import Address
from tests.broker.client.scripted_broker import scripted, versions_answer
from tests.broker.client.scripted_leaders import TOPIC, scripted_leaders

NOBODY = Address("127.0.0.1", 1)


async def test_bootstrap_goes_on_to_the_next_address(address: Address) -> None:
    async with Cluster([NOBODY, address]) as cluster:
        view = await cluster.refresh([])
        assert [address] == [each.address for each in view.brokers.values()]
        assert view.controller in view.brokers


async def test_nobody_can_be_reached_and_the_error_says_what_to_do() -> None:
    async with Cluster([NOBODY]) as cluster:
        words = r"cannot reach any broker of 127.0.0.1:1 \(127.0.0.1:1: connection refused\); is one running"
        with pytest.raises(CannotConnectError, match=words):
            # And at once: an address that nobody listens at is wrong rather than slow.
            await cluster.retry(cluster.refresh, timeout_ms=10**9)


async def test_topics_are_found_and_missing_ones_refused(address: Address) -> None:
    async with Cluster([address]) as cluster:
        await create_topic(cluster, "cluster-found", partitions=2)
        topic = await cluster.topic("cluster-found")
        assert [0, 1] == [each.index for each in topic.partitions]
        assert topic.partitions[1] == await cluster.partition(TopicPartition("cluster-found", 1))
        with pytest.raises(UnknownPartitionInTopicError, match="has no partition 2; its partitions are 0 to 1"):
            await cluster.leader_of(TopicPartition("cluster-found", 2))
        with pytest.raises(
            AnswerError, match="topic cluster-missing: the topic or partition does not exist"
        ) as refused:
            await cluster.topic("cluster-missing")
        assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION is refused.value.error_code
        await delete_topic(cluster, "cluster-found")
        with pytest.raises(AnswerError, match="the topic or partition does not exist"):
            await cluster.topic("cluster-found")


async def test_a_topic_that_has_not_changed_is_kept(address: Address) -> None:
    async with Cluster([address]) as cluster:
        await create_topic(cluster, "cluster-kept", partitions=2)
        before = await cluster.topic("cluster-kept")
        view = await cluster.refresh(["cluster-kept"])
        assert before is view.topics["cluster-kept"]


async def test_one_connection_is_shared_by_all_who_ask_at_once() -> None:
    def script(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes | None:
        return versions_answer(version, correlation_id)

    async with scripted(script) as (listening, address), Cluster([address]) as cluster:
        found = await asyncio.gather(*(cluster.any_connection() for _ in range(5)))
        assert 1 == len({id(each) for each in found}) == listening.connections
        found[0].close()
        assert found[0] is not await cluster.any_connection()
        assert 2 == listening.connections


async def test_a_broker_that_knows_an_older_leader_is_not_believed() -> None:
    async with scripted_leaders() as leaders, Cluster(leaders.addresses) as cluster:
        leaders.topic_id = UUID(int=7)
        leaders.leader, leaders.leader_epoch = 1, 5
        await cluster.topic(TOPIC)
        leaders.leader, leaders.leader_epoch = 0, 4
        assert 1 == (await cluster.topic(TOPIC, fresh=True)).partitions[0].leader
        # What is told of the same leader epoch is news: an ISR changes within one.
        leaders.leader_epoch = 5
        assert 0 == (await cluster.topic(TOPIC, fresh=True)).partitions[0].leader
        leaders.leader, leaders.leader_epoch = 1, 6
        await cluster.topic(TOPIC, fresh=True)
        leaders.leader, leaders.leader_epoch = 0, 4
        # A topic that was made anew counts from the beginning.
        leaders.topic_id = UUID(int=8)
        assert 0 == (await cluster.topic(TOPIC, fresh=True)).partitions[0].leader


class Flaky:
    """Fails so many times with one error, then succeeds."""

    def __init__(self, times: int, error: Exception) -> None:
        self.calls = 0
        self._times = times
        self._error = error

    async def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self._times:
            raise self._error
        return "done"


NOT_LEADER = answer_error(ErrorCode.NOT_LEADER_OR_FOLLOWER, "writing")
REFUSED = answer_error(ErrorCode.INVALID_RECORD, "writing")


class InstantClock(SimClock):
    """Sleeping moves it on at once."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


def cluster_in_time(clock: InstantClock) -> Cluster:
    return Cluster([NOBODY], clock=clock, random=SimRandom(3), backoff=Backoff(first_ms=100, most_ms=400, jitter=0.0))


async def test_what_may_go_away_is_tried_again_with_growing_waits() -> None:
    clock = InstantClock()
    start = clock.monotonic()
    operation = Flaky(4, NOT_LEADER)
    assert "done" == await cluster_in_time(clock).retry(operation, timeout_ms=10_000)
    assert 5 == operation.calls
    assert 1100 == round((clock.monotonic() - start) * 1000), "100, 200, 400 and 400 ms"


async def test_what_will_not_go_away_is_not_tried_again() -> None:
    operation = Flaky(1, REFUSED)
    with pytest.raises(AnswerError, match="INVALID_RECORD"):
        await cluster_in_time(InstantClock()).retry(operation)
    assert 1 == operation.calls


async def test_codes_to_give_up_at_are_raised_at_once() -> None:
    operation = Flaky(1, NOT_LEADER)
    with pytest.raises(RetriableAnswerError):
        await cluster_in_time(InstantClock()).retry(operation, give_up=[ErrorCode.NOT_LEADER_OR_FOLLOWER])
    assert 1 == operation.calls


async def test_time_runs_out_and_the_last_reason_is_told() -> None:
    lost = ConnectionLostError("1.2.3.4:5: the broker closed the connection")
    operation = Flaky(10**9, lost)
    with pytest.raises(ConnectionLostError, match=r"closed the connection \(tried 4 times in 1000 ms\)"):
        # At 0, 100, 300 and 700 ms; the next would be at 1100.
        await cluster_in_time(InstantClock()).retry(operation, timeout_ms=1000)
    assert 4 == operation.calls


def test_backoff_doubles_up_to_its_bound_and_jitters_around_it() -> None:
    backoff = Backoff(first_ms=50, most_ms=1000, jitter=0.2)
    random = SimRandom(1)
    for tries, plain in [(1, 50), (2, 100), (5, 800), (6, 1000), (10**6, 1000)]:
        waits = [backoff.wait_ms(tries, random) for _ in range(200)]
        assert 0.8 * plain <= min(waits) < 0.85 * plain
        assert 1.15 * plain < max(waits) <= 1.2 * plain
