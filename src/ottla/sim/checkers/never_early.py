"""No record of a queue is delivered before it is due.

Seen from two sides. From outside: when a record appears in the log of its sink, no broker's clock can have been at its
due time before. By the log of the queue: each plan has the time of the leader that made it, by its own clock, and names
only records that are due by then; that is exact even if clocks differ or are set.
"""

from typing import Final

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import DUE_MS, RELEASE, dead_letter_topic, half_topic
from ottla.queues.progress_records import Action, Plan, decode
from ottla.records.batch import Batch
from ottla.records.control import read_marker, read_progress
from ottla.records.decode import decode_records
from ottla.records.layout import Marker
from ottla.sim.checkers import Contents
from ottla.sim.disk_copies import places, segments
from ottla.sim.machine import DATA_DIR, Machine
from ottla.sim.queue_history import SINKS, TRANSFERS, name_of
from ottla.sim.simulated_world import SimulatedWorld

PLANS_SECONDS: Final = 1.0
"""Logs of queues are read from beginning to end, so not at every look."""


class NeverEarly:
    """Looks at every copy of a sink whenever it has grown, and at the logs of queues now and then."""

    name = "nothing is delivered early"

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._ends: dict[tuple[int, TopicPartition], int] = {}
        self._next_plans = 0.0
        self._plans: set[tuple[TopicPartition, int]] = set()
        self._planned: set[tuple[TopicPartition, int]] = set()
        """Records whose first plan was checked. If a sink refuses it, there is another, perhaps by another clock."""

    def look(self, world: SimulatedWorld) -> None:
        """What has arrived since the last look."""
        owed = world.history.queues.owed
        if not owed:
            return
        for machine in world.machines:
            for partition in [] if machine.broker is None else list(machine.broker.partitions):
                where = TopicPartition(partition.topic, partition.index)
                end = int(partition.end_offset)
                if where.topic in SINKS and self._ends.get((machine.id, where)) != end:
                    self._ends[machine.id, where] = end
                    self._look_at(world, machine, where)
        if world.loop.time() >= self._next_plans:
            for where in {each.parked_in: None for each in owed.values()}:
                for machine in world.machines:
                    self._look_at_plans(world, machine, where)
            self._next_plans = world.loop.time() + PLANS_SECONDS

    def _look_at(self, world: SimulatedWorld, machine: Machine, where: TopicPartition) -> None:
        owed, clocks = world.history.queues.owed, [each.clock for each in world.machines]
        for batch in batches_of(machine, where):
            for record in [] if batch.is_control else decode_records(batch):
                name = name_of(where.topic, bytes(record.value or b""), record.headers)
                if name in self._seen or name not in owed or where.topic != owed[name].sink:
                    continue
                self._seen.add(name)
                world.history.queues.seen_at[name] = world.loop.time()
                if owed[name].sink == dead_letter_topic(TRANSFERS):
                    continue
                due = owed[name].due_from(clocks)
                world.history.check(
                    world.loop.time() >= due,
                    self.name,
                    f"{name.decode()} is in {where}, {due - world.loop.time():.3f} s before it can be due",
                )

    def _look_at_plans(self, world: SimulatedWorld, machine: Machine, where: TopicPartition) -> None:
        due_ms: dict[int, int] = {}
        held: dict[int, list[tuple[int, int]]] = {}
        """Releases of open transactions by producer id: (offset, due)."""
        for batch in batches_of(machine, where):
            if not batch.is_control:
                for record in decode_records(batch):
                    headers = dict(record.headers)
                    due, release = headers.get(DUE_MS), headers.get(RELEASE)
                    if due is None:
                        continue
                    if release is None:
                        due_ms[record.offset] = int(due)
                    elif batch.is_transactional:
                        held.setdefault(batch.producer_id, []).append((int(release), int(due)))
                    else:
                        _release(due_ms, [(int(release), int(due))])
                continue
            if (marker := read_marker(batch)) is not None:
                released = held.pop(batch.producer_id, [])
                _release(due_ms, released if marker[0] is Marker.COMMIT else [])
                continue
            for offset, value in read_progress(batch):
                if (where, offset) in self._plans:
                    continue
                self._plans.add((where, offset))
                plan = decode(value)
                if not isinstance(plan, Plan) or (
                    where.topic == half_topic(TRANSFERS) and plan.action is not Action.ASK
                ):
                    continue  # Half messages are due when their producer is asked, and delivered when it decides.
                for each in plan.offsets():
                    if (where, each) in self._planned:
                        continue
                    self._planned.add((where, each))
                    early_ms = due_ms.get(each, 0) - batch.max_timestamp
                    world.history.check(
                        early_ms <= 0,
                        self.name,
                        f"{where} offset {each} was planned {early_ms} ms early by the clock of its leader",
                    )

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """One more look."""
        self._next_plans = 0.0
        self.look(world)


def _release(due_ms: dict[int, int], released: list[tuple[int, int]]) -> None:
    for offset, due in released:
        due_ms[offset] = min(due, due_ms.get(offset, due))


def batches_of(machine: Machine, where: TopicPartition) -> list[Batch]:
    """The valid batches of a replica's log, in order; empty if the log does not exist."""
    folder = f"{DATA_DIR}/{where}"
    found: list[Batch] = []
    for path in segments(machine.disk, folder) if machine.disk.is_dir(folder) else ():
        content = machine.disk.read(path)
        for place in places(machine.disk, path):
            batch = Batch(content[place.position : place.position + place.size_bytes])
            try:
                batch.check()
            except OttlaError:
                continue
            found.append(batch)
    return found
