"""Plans that spread replicas and leaders evenly over brokers and move as little as possible. Pure.

A plan is written as Kafka's tools write it, so that either can execute what the other has planned:
`{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2, 0]}]}`, the preferred leader first.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ottla.model.errors import InvalidRequestError
from ottla.model.ids import TopicPartition

Placement = Mapping[TopicPartition, Sequence[int]]
"""The replicas of partitions, as broker ids, the preferred leader first."""


class PlanError(InvalidRequestError):
    """A plan that cannot be read or generated."""


class _Partition(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    replicas: list[int]


class _Plan(msgspec.Struct, frozen=True):
    partitions: list[_Partition]
    version: int = 1


def plan_document(placement: Placement) -> Any:
    """A plan as JSON encodes it, in the order of partitions."""
    return _Plan([_Partition(each.topic, each.partition, list(placement[each])) for each in sorted(placement)])


def write_plan(placement: Placement) -> str:
    """A plan as JSON, in one line."""
    return msgspec.json.encode(plan_document(placement)).decode()


def read_plan(text: str | bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas in a plan. Raises PlanError."""
    try:
        plan = msgspec.json.decode(text, type=_Plan)
    except msgspec.DecodeError as error:
        raise PlanError(f"not a valid reassignment plan: {error}") from error
    placement: dict[TopicPartition, tuple[int, ...]] = {}
    for each in plan.partitions:
        partition = TopicPartition(each.topic, each.partition)
        if partition in placement:
            raise PlanError(f"the plan lists {partition} twice")
        if not each.replicas or len(set(each.replicas)) < len(each.replicas):
            raise PlanError(
                f"the plan has invalid replicas {each.replicas} for {partition}: list each broker once, at least one"
            )
        placement[partition] = tuple(each.replicas)
    return placement


def plan_moves(
    present: Placement, racks: Mapping[int, str | None], replication_factor: int | None = None
) -> dict[TopicPartition, tuple[int, ...]]:
    """Where the partitions should be on the brokers of `racks`; only those that change. Raises PlanError.

    Brokers differ by at most one replica and one preferred leader, unless racks forbid it. Replicas that are on one of
    the brokers already stay there if possible.
    """
    factor = replication_factor or max(map(len, present.values()), default=1)
    if factor > len(racks):
        raise PlanError(f"{factor} replicas need {factor} brokers, but only {len(racks)} are given")
    draft = _Draft(racks)
    for partition in sorted(present):
        draft.keep(partition, present[partition], replication_factor or len(present[partition]))
    draft.fill()
    draft.even_replicas()
    draft.even_leaders()
    return {each: made for each in sorted(present) if (made := tuple(draft.replicas[each])) != tuple(present[each])}


class _Draft:
    """A placement being built, and the number of replicas and leaders of each broker."""

    def __init__(self, racks: Mapping[int, str | None]) -> None:
        self.replicas: dict[TopicPartition, list[int]] = {}
        self._racks = racks
        self._wanted: dict[TopicPartition, int] = {}
        self._held: Counter[int] = Counter(dict.fromkeys(racks, 0))
        self._led: Counter[int] = Counter(dict.fromkeys(racks, 0))

    def keep(self, partition: TopicPartition, present: Sequence[int], count: int) -> None:
        """Keeps the replicas that are on the given brokers, at most `count`."""
        kept = [each for each in present if each in self._racks]
        while len(kept) > count:
            # Removes from the rack with the most replicas, from the end of the list: the preferred leader stays.
            in_rack = Counter(self._racks[each] for each in kept)
            kept.remove(max(reversed(kept), key=lambda each: in_rack[self._racks[each]]))
        self.replicas[partition] = kept
        self._wanted[partition] = count
        self._held.update(kept)

    def fill(self) -> None:
        """Adds missing replicas on the brokers and racks that have the fewest."""
        for partition, replicas in self.replicas.items():
            while len(replicas) < self._wanted[partition]:
                in_rack = Counter(self._racks[each] for each in replicas)
                free = [each for each in self._racks if each not in replicas]
                chosen = min(free, key=lambda each: (in_rack[self._racks[each]], self._held[each], each))
                replicas.append(chosen)
                self._held[chosen] += 1

    def even_replicas(self) -> None:
        """Moves single replicas from brokers that have too many to brokers that have too few."""
        while (move := self._best_move()) is not None:
            partition, source, target = move
            replicas = self.replicas[partition]
            replicas[replicas.index(source)] = target
            self._held[source] -= 1
            self._held[target] += 1

    def _best_move(self) -> tuple[TopicPartition, int, int] | None:
        by_load = sorted(self._racks, key=lambda each: (self._held[each], each))
        for source in reversed(by_load):
            for target in by_load:
                if self._held[source] - self._held[target] < 2:
                    break
                for partition, replicas in self.replicas.items():
                    if source in replicas and target not in replicas and self._may_move(replicas, source, target):
                        return partition, source, target
        return None

    def _may_move(self, replicas: Sequence[int], source: int, target: int) -> bool:
        """Whether the partition stays in at least as many racks as before."""
        after = [target if each == source else each for each in replicas]
        return len({self._racks[each] for each in after}) >= len({self._racks[each] for each in replicas})

    def even_leaders(self) -> None:
        """Changes the order of replicas where that makes the number of preferred leaders more even."""
        for replicas in self.replicas.values():
            self._led[replicas[0]] += 1
        while (path := self._leader_path()) is not None:
            for partition, target in path:
                replicas = self.replicas[partition]
                self._led[replicas[0]] -= 1
                self._led[target] += 1
                at = replicas.index(target)
                replicas[0], replicas[at] = replicas[at], replicas[0]

    def _leader_path(self) -> list[tuple[TopicPartition, int]] | None:
        """A chain of leader changes from a broker that leads too many partitions to one that leads too few."""
        for source in sorted(self._led, key=lambda each: (-self._led[each], each)):
            came: dict[int, tuple[TopicPartition, int] | None] = {source: None}
            queue = [source]
            for broker in queue:
                if self._led[source] - self._led[broker] >= 2:
                    return _path(came, broker)
                for partition, replicas in self.replicas.items():
                    if replicas[0] == broker:
                        for each in replicas[1:]:
                            if each not in came:
                                came[each] = (partition, broker)
                                queue.append(each)
        return None


def _path(came: Mapping[int, tuple[TopicPartition, int] | None], end: int) -> list[tuple[TopicPartition, int]]:
    steps: list[tuple[TopicPartition, int]] = []
    while (step := came[end]) is not None:
        steps.append((step[0], end))
        end = step[1]
    return steps[::-1]
