"""What a queue owes arrives, where it belongs, and at once if it was released."""

from typing import Any
from uuid import UUID

import pytest

from ottla.metadata.records import PartitionRecord, TopicRecord, encode, partition_key, topic_key
from ottla.model.ids import BrokerId, LeaderEpoch, TopicPartition
from ottla.model.queue_names import dead_letter_topic
from ottla.records.murmur2 import partition_for_key
from ottla.sim.checkers.owed_arrive import GROWN_SECONDS, RELEASED_SECONDS, OwedArrive, ReleasedArrive
from ottla.sim.queue_history import OFFERS, ORDERS, TRANSFERS
from ottla.sim.simulated_world import SimulatedWorld
from tests.unit.sim.checkers.histories import ORDERS_0, ORDERS_1, arrival, finish, owe

DEAD = TopicPartition(dead_letter_topic(ORDERS), 0)
KEY = b"k"
BY_KEY = TopicPartition(ORDERS, 2)


def grow(world: SimulatedWorld) -> None:
    """The topic has three partitions since 5 s; the key belongs to the last one."""
    assert BY_KEY.partition == partition_for_key(KEY, 3)
    brokers = (BrokerId(1),)
    partition = encode(PartitionRecord(replicas=brokers, isr=brokers, leader=brokers[0], leader_epoch=LeaderEpoch(0)))
    keys = [partition_key(ORDERS, index) for index in range(3)]
    world.ensemble.make([(topic_key(ORDERS), encode(TopicRecord(id=UUID(int=1)))), *((key, partition) for key in keys)])
    world.history.queues.grew_at = (5.0, 6.0)
    world.healed_at = 20.0


@pytest.mark.parametrize(
    ("facts", "place"),
    [
        ({}, ORDERS_0),
        ({"outcome": "unknown"}, None),
        ({"cancelled_at": 1.0}, None),
        ({"may_be_cancelled": True}, None),
        ({"sink": TRANSFERS, "is_half": True}, TopicPartition(dead_letter_topic(TRANSFERS), 0)),
    ],
)
def test_what_is_owed_arrives(facts: dict[str, Any], place: TopicPartition | None, world: SimulatedWorld) -> None:
    owe(world, b"a", **facts)
    assert [] == finish(OwedArrive(), world, arrivals=[] if place is None else [arrival(b"a", 0, place)])


def test_a_clock_that_is_far_behind_makes_dead_letters(world: SimulatedWorld) -> None:
    world.machines[0].clock.jump(-4_000_000)
    owe(world, b"a")
    assert [] == finish(OwedArrive(), world, arrivals=[arrival(b"a", 0, DEAD)])


@pytest.mark.parametrize(
    ("place", "violation"),
    [
        (None, "a, acknowledged in orders-0, is lost"),
        (DEAD, "a of orders-0 is in dlq.orders-0, not in orders [0]"),
        (ORDERS_1, "a of orders-0 is in orders-1, not in orders [0]"),
    ],
)
def test_what_is_owed_is_lost_or_elsewhere(place: TopicPartition | None, violation: str, world: SimulatedWorld) -> None:
    owe(world, b"a")
    assert [f"what is owed arrives: {violation}"] == finish(
        OwedArrive(), world, arrivals=[] if place is None else [arrival(b"a", 0, place)]
    )


LATE_MS = int(1000 * (20 + GROWN_SECONDS)) + 1
"""Due when every broker knows the new partition."""


@pytest.mark.parametrize(
    ("facts", "place", "violations"),
    [
        ({"acked_at": 4.0, "delay_ms": LATE_MS}, BY_KEY, []),
        (
            {"acked_at": 4.0, "delay_ms": LATE_MS},
            ORDERS_0,
            ["what is owed arrives: a of orders-0 is in orders-0, not in orders [2]"],
        ),
        ({"acked_at": 4.0, "delay_ms": LATE_MS - 1}, ORDERS_0, []),
        ({"acked_at": 5.0, "delay_ms": LATE_MS}, ORDERS_0, []),
        ({"acked_at": 5.0, "delay_ms": LATE_MS}, BY_KEY, []),
        ({"acked_at": 4.0, "delay_ms": LATE_MS, "key": None}, ORDERS_0, []),
        (
            {"acked_at": 4.0, "delay_ms": LATE_MS, "key": None},
            BY_KEY,
            ["what is owed arrives: a of orders-0 is in orders-2, not in orders [0]"],
        ),
    ],
)
def test_records_that_were_parked_before_the_topic_grew_go_by_their_key(
    facts: dict[str, Any], place: TopicPartition, violations: list[str], world: SimulatedWorld
) -> None:
    grow(world)
    owe(world, b"a", **{"key": KEY, **facts})
    assert violations == finish(OwedArrive(), world, arrivals=[arrival(b"a", 0, place)])


@pytest.mark.parametrize("arrived", [0, 2])
def test_all_or_nothing_of_a_transaction_arrives(arrived: int, world: SimulatedWorld) -> None:
    for name in (b"a", b"b"):
        owe(world, name, transaction="t", outcome="unknown")
    assert [] == finish(OwedArrive(), world, arrivals=[arrival(b"a"), arrival(b"b", 1)][:arrived])


def test_half_of_a_transaction_arrives(world: SimulatedWorld) -> None:
    for name in (b"a", b"b"):
        owe(world, name, transaction="t", outcome="unknown")
    assert ["what is owed arrives: 1 of 2 delayed records of transaction t arrived"] == finish(
        OwedArrive(), world, arrivals=[arrival(b"b")]
    )


def offer(world: SimulatedWorld, expiry_ms: int) -> None:
    world.history.queues.expiry_ms[b"offer"] = expiry_ms
    world.history.queues.offers_acked[b"offer"] = (TopicPartition(OFFERS, 0), 4)


def test_an_expired_record_is_gone_and_another_one_is_there(world: SimulatedWorld) -> None:
    offer(world, 1000)
    assert [] == finish(OwedArrive(), world, read_ms=1000)
    assert [] == finish(OwedArrive(), world, read_ms=999, everything={TopicPartition(OFFERS, 0): [(4, b"offer")]})


def test_a_record_is_gone_before_it_expires(world: SimulatedWorld) -> None:
    offer(world, 1000)
    assert ["what is owed arrives: offer has not expired, but offers-0 4 has None"] == finish(
        OwedArrive(), world, read_ms=999
    )


def release(world: SimulatedWorld, seen_at: float | None, **facts: Any) -> None:
    """A record that is due after an hour is released at 10 s; the cluster is healthy since 20 s."""
    world.whole_at = 20.0
    owe(world, b"a", **{"delay_ms": 3_600_000, "released_at": 9.0, "release_acked_at": 10.0, **facts})
    if seen_at is not None:
        world.history.queues.seen_at[b"a"] = seen_at


@pytest.mark.parametrize(
    ("seen_at", "facts"),
    [
        (20 + RELEASED_SECONDS, {}),
        (3600.0, {"release_acked_at": None}),
        (None, {"cancelled_at": 5.0}),
        (60.0, {"delay_ms": 30_000}),
    ],
)
def test_released_records_arrive_soon(seen_at: float | None, facts: dict[str, Any], world: SimulatedWorld) -> None:
    release(world, seen_at, **facts)
    assert [] == finish(ReleasedArrive(), world)


def test_nothing_is_said_of_released_records_if_a_clock_was_wrong(world: SimulatedWorld) -> None:
    world.machines[0].clock.jump(501)
    release(world, 100.0)
    assert [] == finish(ReleasedArrive(), world)


@pytest.mark.parametrize("seen_at", [20 + RELEASED_SECONDS + 0.5, None])
def test_a_released_record_is_late(seen_at: float | None, world: SimulatedWorld) -> None:
    release(world, seen_at)
    assert [f"released records arrive: a was released at 10.000 s, and was first seen at {seen_at} s"] == finish(
        ReleasedArrive(), world
    )
