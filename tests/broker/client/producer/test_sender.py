"""The sender's turns with a clock that the test moves: nothing that is due is slept over.

Each of these once made a producer wait for minutes with everything at hand, and only when two things fell together.
"""

import asyncio
from typing import Any

from ottla.client.network.cluster import Cluster
from ottla.client.producer.batching.partition_queue_state import PartitionQueue
from ottla.client.producer.batching.producer_batch import Identity, ProducerBatch
from ottla.client.producer.core import ProducerCore
from ottla.client.producer.options import producer_config
from ottla.client.producer.sender import _Link
from ottla.env.real_clock import RealClock
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.transport.addresses import Address

PARTITION = TopicPartition("t", 0)
LEADER = 1
IDENTITY = Identity(9, 0)


class SteppingClock(RealClock):
    """Shows `now`, and a step more each time that somebody looks."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.step = 0.0

    def monotonic(self) -> float:
        """Later than the last time by a step."""
        shown, self.now = self.now, self.now + self.step
        return shown


def core_with(clock: SteppingClock, **options: Any) -> ProducerCore:
    config = producer_config("AsyncProducer", bootstrap_servers="127.0.0.1:1", **options)
    core = ProducerCore(config, is_async=True, cluster=Cluster([Address("127.0.0.1", 1)], clock=clock))
    core.sender.start()
    return core


def appended(core: ProducerCore, now: float) -> PartitionQueue:
    """A queue with one record, whose leader is known."""
    queue = core.accumulator.queue(PARTITION)
    queue.leader, queue.leader_epoch = LEADER, 0
    assert core.accumulator.append(queue, 0, None, b"x", (), now) is not None
    return queue


def sent(core: ProducerCore, queue: PartitionQueue) -> ProducerBatch:
    (request,) = core.accumulator.drain(1e9, {LEADER: 1})
    ((_, batch),) = request.batches
    return batch


async def test_a_linger_that_ends_within_the_turn_is_followed_by_another_turn() -> None:
    clock = SteppingClock()
    core = core_with(clock, linger_ms=10, enable_idempotence=False)
    appended(core, clock.now - 0.009)
    # The linger ends a millisecond after the turn looked at the clock, and a second before it sets its timer.
    clock.step = 1.0
    core.sender._take_turn()
    timer = core.sender._timer
    assert timer is not None
    assert timer.when() <= asyncio.get_running_loop().time() + 0.01
    await core.close(0)


async def test_a_retry_that_comes_due_within_the_turn_is_followed_by_another_turn() -> None:
    clock = SteppingClock()
    core = core_with(clock, linger_ms=0, enable_idempotence=False, retry_backoff_ms=100)
    queue = appended(core, clock.now)
    core.accumulator.refused(queue, sent(core, queue), ErrorCode.NOT_LEADER_OR_FOLLOWER, None, clock.now)
    (batch,) = queue.batches
    clock.now = batch.retry_at - 0.001
    clock.step = 1.0
    core.sender._take_turn()
    timer = core.sender._timer
    assert timer is not None
    assert timer.when() <= asyncio.get_running_loop().time() + 0.01
    await core.close(0)


async def test_what_a_new_epoch_makes_ready_has_its_broker_called_in_the_same_turn() -> None:
    """Draining takes the epoch, and the connection is gone: without a call nobody would take another turn."""
    clock = SteppingClock()
    core = core_with(clock, linger_ms=0)
    core.accumulator.adopt(IDENTITY)
    queue = appended(core, clock.now)
    core.accumulator.refused(queue, sent(core, queue), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None, clock.now)
    assert queue.wants_new_epoch
    clock.now = queue.batches[0].retry_at + 1
    core.sender._take_turn()
    assert Identity(9, 1) == core.accumulator.identity
    link = core.sender._links.get(LEADER)
    assert link is not None
    assert link.task is not None
    await core.close(0)


async def test_a_broker_that_cannot_be_reached_is_tried_again_when_its_time_comes() -> None:
    clock = SteppingClock()
    core = core_with(clock, linger_ms=0, enable_idempotence=False)
    appended(core, clock.now)
    link = core.sender._links[LEADER] = _Link()
    link.retry_at = clock.now + 0.001
    clock.step = 1.0
    core.sender._take_turn()
    timer = core.sender._timer
    assert timer is not None
    assert timer.when() <= asyncio.get_running_loop().time() + 0.01
    await core.close(0)
