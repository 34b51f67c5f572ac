"""No record of a queue is delivered, or planned, before it is due."""

import asyncio
from typing import Any

import pytest

from ottla.model.ids import TopicPartition
from ottla.model.queue_names import DUE_MS, RELEASE, dead_letter_topic, half_topic
from ottla.queues.progress_records import Action, Plan, encode
from ottla.records.builder import BatchBuilder
from ottla.records.control import marker_batch, progress_batch
from ottla.records.layout import Marker
from ottla.sim.checkers.never_early import NeverEarly
from ottla.sim.machine import DATA_DIR
from ottla.sim.queue_history import ORDERS, TRANSFERS
from ottla.sim.simulated_world import SimulatedWorld, run
from tests.unit.sim.checkers.histories import PARKED_0, SEGMENT, finish, owe
from tests.unit.sim.crashes import put
from tests.unit.sim.ledgers import begin, write

Headers = list[tuple[str, bytes]]
HALVES = TopicPartition(half_topic(TRANSFERS), 0)


@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_a_record_in_its_sink(delay_ms: int) -> None:
    """Reported once, when it is first seen."""
    expected: list[str] = []

    async def story(world: SimulatedWorld) -> None:
        await begin(world, ORDERS)
        sent_at = world.loop.time()
        owe(world, b"a", parked_in=PARKED_0, sent_at=sent_at, delay_ms=delay_ms)
        await write(world, b"a", ORDERS)
        await write(world, b"nobody owes it", ORDERS)
        early_seconds = sent_at + delay_ms / 1000 - world.loop.time()
        if early_seconds > 0:
            expected.append(f"nothing is delivered early: a is in orders-0, {early_seconds:.3f} s before it can be due")
        checker = NeverEarly()
        checker.look(world)
        seen_at = world.history.queues.seen_at
        assert {b"a": world.loop.time()} == seen_at
        await asyncio.sleep(1)
        finish(checker, world)

    assert expected == run(story, 1, brokers=2).violations
    assert bool(delay_ms) == bool(expected)


def data(offset: int, headers: Headers, **batch: Any) -> bytes:
    builder = BatchBuilder(base_offset=offset, **batch)
    builder.append(0, None, b"value", headers)
    return builder.build()


def released(offset: int, release: int, due_ms: int, producer_id: int = -1) -> bytes:
    """A record that makes another one due, in a transaction if it has a producer."""
    batch = (
        {}
        if producer_id < 0
        else {"transactional": True, "producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    )
    return data(offset, [(RELEASE, b"%d" % release), (DUE_MS, b"%d" % due_ms)], **batch)


def marker(offset: int, kind: Marker, producer_id: int) -> bytes:
    return marker_batch(
        kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=offset
    )


def plan(offset: int, at_ms: int, planned: int = 0, action: Action = Action.DELIVER) -> bytes:
    record = Plan(ORDERS, 0, 1, 0, 0, (planned, 1), action=action)
    batch = progress_batch([encode(record)], at_ms)
    batch[:8] = offset.to_bytes(8, "big")
    return bytes(batch)


PARKED = data(0, [(DUE_MS, b"1000")])
PLANS_IN_TIME = {
    "when due": [PARKED, plan(1, 1000)],
    "released": [PARKED, released(1, 0, 400), plan(2, 400)],
    "released in a transaction": [PARKED, released(1, 0, 400, 7), marker(2, Marker.COMMIT, 7), plan(3, 400)],
    "released later than it is due": [PARKED, released(1, 0, 4000), plan(2, 1000)],
    "planned again by another clock": [PARKED, plan(1, 1000), plan(2, 900)],
}
EARLY_PLANS = {
    "before it is due": ([PARKED, plan(1, 999)], 1),
    "before it is released": ([PARKED, released(1, 0, 400), plan(2, 390)], 10),
    "released in an open transaction": ([PARKED, released(1, 0, 400, 7), plan(2, 400)], 600),
    "released in an aborted transaction": (
        [PARKED, released(1, 0, 400, 7), marker(2, Marker.ABORT, 7), plan(3, 400)],
        600,
    ),
    "released in another transaction": (
        [PARKED, released(1, 0, 400, 7), marker(2, Marker.COMMIT, 8), plan(3, 400)],
        600,
    ),
}


def look_at_plans(world: SimulatedWorld, log: list[bytes], parked_in: TopicPartition = PARKED_0) -> list[str]:
    owe(world, b"a", parked_in=parked_in)
    world.machines[1].disk.make_dirs(f"{DATA_DIR}/{parked_in}")
    put(world.machines[1].disk, f"{DATA_DIR}/{parked_in}/{SEGMENT}", b"".join(log))
    checker = NeverEarly()
    checker.look(world)
    return finish(checker, world)


@pytest.mark.parametrize("name", PLANS_IN_TIME)
def test_plans_in_time(name: str, world: SimulatedWorld) -> None:
    assert [] == look_at_plans(world, PLANS_IN_TIME[name])


@pytest.mark.parametrize("name", EARLY_PLANS)
def test_early_plans(name: str, world: SimulatedWorld) -> None:
    log, early_ms = EARLY_PLANS[name]
    assert [
        "nothing is delivered early: orders.delayed-0 offset 0 was planned"
        f" {early_ms} ms early by the clock of its leader"
    ] == look_at_plans(world, log)


@pytest.mark.parametrize(("action", "violations"), [(Action.DELIVER, 0), (Action.DEAD, 0), (Action.ASK, 1)])
def test_half_messages_are_due_when_their_producer_is_asked(
    action: Action, violations: int, world: SimulatedWorld
) -> None:
    assert violations == len(look_at_plans(world, [PARKED, plan(1, 999, action=action)], HALVES))


def test_a_rejected_half_message_is_never_early() -> None:
    """It is a dead letter when its time to decide is up, whenever its producer is asked."""

    async def story(world: SimulatedWorld) -> None:
        topic = dead_letter_topic(TRANSFERS)
        await begin(world, topic)
        owe(world, b"a", sink=topic, parked_in=PARKED_0, is_half=True)
        await write(world, b"a", topic)
        finish(NeverEarly(), world)
        assert b"a" in world.history.queues.seen_at

    assert [] == run(story, 1, brokers=2).violations
