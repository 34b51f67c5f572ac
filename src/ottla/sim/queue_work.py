"""The part of a run that uses queues: topics, workloads, the wait until everything is due, and what has arrived."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final

from ottla.client.admin.values import NewPartitions, NewTopic
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import delayed_topic
from ottla.records.decode import decode_records
from ottla.sim.checkers.never_early import batches_of
from ottla.sim.machine import Machine
from ottla.sim.queue_history import JOBS, OFFERS, ORDERS, SINKS, TRANSFERS, Arrival, name_of
from ottla.sim.simulated_world import SimulatedWorld
from ottla.sim.workloads.delaying import LONG_DELAY_MS, delay, delay_in_transactions
from ottla.sim.workloads.expiring import TTL_CONFIGS, browse, check_unexpired, offer
from ottla.sim.workloads.halving import HALF_CONFIGS, answer, prepare
from ottla.sim.workloads.instructing import instruct, instruct_in_transactions
from ottla.sim.workloads.refusing import REFUSING_CONFIGS, send_refused
from ottla.sim.workloads.retrying import RETRY_CONFIGS, hand_back, work

QUEUE_WORKS: Final = (
    "delay", "delay in transactions", "grow", "retry", "expire", "halve", "instruct", "instruct in transactions",
)  # fmt: skip
PARTITIONS: Final = 2
GROWN_PARTITIONS: Final = 3
LATE_SECONDS: Final = 60.0
"""So long after it is due, a record must have arrived in a healed cluster."""
SETTLE_SECONDS: Final = 3.0
"""Time for what should not arrive."""


class QueueWork:
    """The queues of one run; `works` is what clients do with them."""

    def __init__(self, world: SimulatedWorld, works: Iterable[str]) -> None:
        self._world = world
        self._works = list(works)

    def topics(self) -> list[NewTopic]:
        """The topics to create."""
        refusing = REFUSING_CONFIGS if "refuse" in self._works else {}
        return [
            NewTopic(ORDERS, PARTITIONS, 3, topic_configs={"ottla.delay.enable": "true", **refusing}),
            NewTopic(JOBS, PARTITIONS, 3, topic_configs=RETRY_CONFIGS),
            NewTopic(OFFERS, PARTITIONS, 3, topic_configs=TTL_CONFIGS),
            *([NewTopic(TRANSFERS, PARTITIONS, 3, topic_configs=HALF_CONFIGS)] if "halve" in self._works else []),
        ]

    def begin(self) -> None:
        """Starts the clients."""
        world = self._world
        world.history.note(f"queues: {', '.join(self._works)}")

        def begin(
            name: str, program: Callable[..., Coroutine[Any, Any, None]], *args: Any, mortal: bool = True
        ) -> None:
            world.begin(name, partial(program, world, name, PARTITIONS, *args), may_be_killed=mortal)

        if "delay" in self._works:
            for number in (1, 2):
                begin(f"delayer-{number}", delay, 0.15)
        if "refuse" in self._works:
            begin("refused", send_refused, 0.3)
        if "delay in transactions" in self._works:
            begin("scheduler", delay_in_transactions, 0.5)
        if "retry" in self._works:
            begin("retrier", hand_back, 0.4)
            begin("worker", work, mortal=False)
        if "expire" in self._works:
            begin("offerer", offer, 0.3)
            begin("browser", browse, mortal=False)
        if "halve" in self._works:
            begin("preparer", prepare, 0.4)
            begin("answerer", answer, mortal=False)
        if "instruct" in self._works:
            begin("operator", instruct, 0.4)
        if "instruct in transactions" in self._works:
            begin("transactional operator", instruct_in_transactions, 0.6)
        if "grow" in self._works:
            world.run_beside(self._grow())

    async def _grow(self) -> None:
        """Adds a partition to the delayed topic once, at some time."""
        world = self._world
        await asyncio.sleep(3 + 10 * world.random.fork().random())
        asked_at = world.loop.time()
        while world.history.queues.grew_at is None and not world.is_over:
            _, task = world.spawn("grower", self._ask_growth(asked_at))
            await asyncio.wait([task])
            await asyncio.sleep(1)

    async def _ask_growth(self, asked_at: float) -> None:
        world = self._world
        admin = world.client("grower").admin()
        try:
            if world.partitions_of(ORDERS) < GROWN_PARTITIONS:
                await admin.create_partitions({ORDERS: NewPartitions(GROWN_PARTITIONS)})
            world.history.queues.grew_at = (asked_at, world.loop.time())
            world.history.note(f"{ORDERS} has grown")
        except OttlaError as error:
            world.history.note(f"{ORDERS} cannot grow: {type(error).__name__}")
        await admin.close()

    async def settle(self) -> None:
        """Waits until everything is due and has arrived, at most as long as a healed cluster may take."""
        world, owed = self._world, self._world.history.queues.owed.values()
        ahead_ms = max(machine.clock.leads_ms()[1] for machine in world.machines)
        if ahead_ms > 1_000:
            # A broker whose clock was ahead has stamped due times that are far away by now.
            for machine in world.machines:
                machine.clock.jump(ahead_ms)
        last_due = max((each.sent_at + LONG_DELAY_MS / 1000 for each in owed), default=0.0)
        seconds = LATE_SECONDS + max(0.0, last_due - world.loop.time())
        await world.wait_until(lambda: not self._missing() and self._is_decided(), seconds)
        await asyncio.sleep(SETTLE_SECONDS)

    def _missing(self) -> bool:
        arrived = {
            name_of(where.topic, bytes(record.value or b""), record.headers)
            for where, leader in self._sinks().items()
            for batch in batches_of(leader, where)
            if not batch.is_control
            for record in decode_records(batch)
        }
        return any(each.must_arrive and each.name not in arrived for each in self._world.history.queues.owed.values())

    def _is_decided(self) -> bool:
        return all(
            partition.last_stable_offset == partition.high_watermark
            for machine in self._world.machines
            if machine.broker is not None
            for partition in machine.broker.partitions
            if partition.leader is not None and partition.topic == delayed_topic(ORDERS)
        )

    def _sinks(self) -> dict[TopicPartition, Machine]:
        """The partitions that queues deliver to, and the machine of each leader."""
        world = self._world
        machines = {each.id: each for each in world.machines}
        return {
            TopicPartition(topic.name, index): machines[partition.leader]
            for topic in world.truth().topics.values()
            if topic.name in SINKS
            for index, partition in enumerate(topic.partitions)
            if partition.leader in machines
        }

    async def read_back(self) -> tuple[list[Arrival], dict[TopicPartition, list[tuple[int, bytes]]]]:
        """What a new consumer finds in the sinks, and of the topic with TTLs."""
        world = self._world
        offers = [TopicPartition(OFFERS, index) for index in range(PARTITIONS)]
        partitions = [*sorted(self._sinks()), *offers]
        consumer = world.client("queue auditor").consumer(auto_offset_reset="none")
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        began_at = world.loop.time()
        ends = await consumer.end_offsets(partitions)
        arrivals: list[Arrival] = []
        unexpired: dict[TopicPartition, list[tuple[int, bytes]]] = {each: [] for each in offers}
        while any([await consumer.position(each) < ends[each] for each in partitions]):
            for where, records in (await consumer.poll(timeout_ms=1000)).items():
                for record in records:
                    if where in unexpired:
                        check_unexpired(world, record.value, began_at, "the auditor")
                        unexpired[where].append((record.offset, record.value))
                    else:
                        name = name_of(where.topic, record.value, record.headers)
                        arrivals.append(Arrival(name, where, record.offset, tuple(record.headers)))
        await consumer.close()
        return sorted(arrivals, key=lambda each: (each.partition, each.offset)), unexpired
