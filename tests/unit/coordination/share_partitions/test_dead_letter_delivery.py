"""The dead letters that a share-partition owes: what is settled, what is tried again, and what is left."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from ottla.coordination.share_partitions.dead_letter_delivery import DeadLetterDelivery, DeadLettersDelayedError
from ottla.coordination.share_partitions.share_counts import ShareCounts
from ottla.coordination.share_partitions.share_partition_state import DeadLetters, DeadReason, Span
from ottla.coordination.share_state.records import ShareKey
from ottla.env.real_clock import RealClock
from ottla.replication.partition import Partition
from ottla.sim.clock import SimClock
from tests.unit.replication.rig import PartitionRig
from tests.waiting import settle

KEY = ShareKey("g", UUID(int=1), 0)


def letters(first: int, last: int) -> DeadLetters:
    return DeadLetters(first, last, 1, DeadReason.REJECTED)


async def test_what_is_left_when_it_stops_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A group, a topic or the offsets of a group may be gone for good: then so are the dead letters."""
    is_down = asyncio.Event()
    settled: list[Span] = []

    async def write(key: ShareKey, partition: Partition, owed: Sequence[DeadLetters]) -> int:
        if owed[0].first == 0:
            return 2
        is_down.set()
        raise DeadLettersDelayedError("no leader")

    rig = await PartitionRig.make()
    delivery = DeadLetterDelivery(
        KEY,
        rig.partition,
        write,
        clock=RealClock(),
        counts=ShareCounts(),
        is_wanted=lambda: True,
        on_settled=settled.append,
        on_idle=lambda: None,
    )
    delivery.add([letters(0, 4), letters(7, 7)])
    await is_down.wait()
    assert [Span(0, 1)] == settled
    await delivery.close()
    assert delivery.is_idle
    assert "share group g: stopped before 4 dead letters of partition t-0, from offset 2 on" in caplog.text


async def test_waits_grow_up_to_a_limit_and_begin_again_after_a_success() -> None:
    clock = SimClock()
    tried: list[float] = []
    settled: list[Span] = []
    outcomes = iter([False] * 7 + [True, False, True])

    async def write(key: ShareKey, partition: Partition, owed: Sequence[DeadLetters]) -> int:
        tried.append(clock.monotonic())
        if not next(outcomes):
            raise DeadLettersDelayedError("no leader")
        return 1

    rig = await PartitionRig.make()
    counts = ShareCounts()
    delivery = DeadLetterDelivery(
        KEY,
        rig.partition,
        write,
        clock=clock,
        counts=counts,
        is_wanted=lambda: True,
        on_settled=settled.append,
        on_idle=lambda: None,
    )
    delivery.add([letters(0, 1)])
    while not delivery.is_idle:
        await settle()
        clock.advance(1)
    assert [0, 1, 3, 7, 15, 31, 61, 91, 91, 92] == tried
    assert ([Span(0, 0), Span(1, 1)], 8) == (settled, counts.dead_letter_retries)
