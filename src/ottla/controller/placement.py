"""Chooses the brokers of the replicas of new partitions. Pure: randomness comes in through the port.

The first replica of each partition is the preferred leader. Brokers form a ring in which adjacent ones are in different
racks; each partition takes the next stretch of it, so that after any number of partitions neither leaders nor replicas
differ by more than one between two brokers. After a full round, in which every broker led once, the ring is shuffled,
so that the other replicas of one broker's partitions are spread over the cluster. If racks differ in size, or
partitions exist already, even distribution and racks conflict: then each replica goes to the rack with the fewest
replicas of its partition, and there to the broker with the fewest of the topic.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import gcd
from typing import TypeVar

from ottla.env.ports import Random
from ottla.metadata.image import BrokerImage
from ottla.model.errors import MisuseError
from ottla.model.ids import BrokerId

T = TypeVar("T")


def place(
    brokers: Iterable[BrokerImage],
    *,
    partition_count: int,
    replication_factor: int,
    random: Random,
    existing: Sequence[Sequence[BrokerId]] = (),
) -> list[tuple[BrokerId, ...]]:
    """The replicas of this many new partitions, beside the topic's `existing` ones.

    Never a broker twice in a partition, and on as many racks as possible. Brokers without a rack count as one rack.
    """
    racks = _racks(brokers)
    broker_count = sum(map(len, racks))
    if not 1 <= replication_factor <= broker_count:
        raise MisuseError(f"{replication_factor} replicas on {broker_count} brokers: the caller must check this")
    if existing or len({len(rack) for rack in racks}) > 1:
        return _place_evenly(racks, partition_count, replication_factor, random, existing)
    return _place_in_rounds(racks, partition_count, replication_factor, random)


def _racks(brokers: Iterable[BrokerImage]) -> list[list[BrokerId]]:
    racks: dict[str | None, list[BrokerId]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        racks.setdefault(broker.rack, []).append(broker.id)
    return list(racks.values())


def _place_in_rounds(
    racks: list[list[BrokerId]], partition_count: int, replication_factor: int, random: Random
) -> list[tuple[BrokerId, ...]]:
    broker_count = sum(map(len, racks))
    # After this many stretches the same positions of the ring repeat; then the next broker of each stretch leads.
    stretches = broker_count // gcd(broker_count, replication_factor)
    placed: list[tuple[BrokerId, ...]] = []
    while len(placed) < partition_count:
        ring = _ring(racks, random)
        for turn in range(min(broker_count, partition_count - len(placed))):
            start = turn * replication_factor
            stretch = [ring[(start + step) % broker_count] for step in range(replication_factor)]
            first = turn // stretches
            placed.append((*stretch[first:], *stretch[:first]))
    return placed


def _place_evenly(
    racks: list[list[BrokerId]],
    partition_count: int,
    replication_factor: int,
    random: Random,
    existing: Sequence[Sequence[BrokerId]],
) -> list[tuple[BrokerId, ...]]:
    rack_of = {broker: index for index, rack in enumerate(racks) for broker in rack}
    leaders = Counter(replicas[0] for replicas in existing)
    load = Counter(broker for replicas in existing for broker in replicas)
    placed = []
    for _ in range(partition_count):
        # `min` takes the first of equals, so the ring's order decides between them.
        ring = _ring(racks, random)
        chosen = [min(ring, key=lambda broker: (leaders[broker], load[broker]))]
        used = Counter({rack_of[chosen[0]]: 1})
        while len(chosen) < replication_factor:
            broker = min(
                (broker for broker in ring if broker not in chosen),
                key=lambda broker: (used[rack_of[broker]], load[broker]),
            )
            chosen.append(broker)
            used[rack_of[broker]] += 1
        leaders[chosen[0]] += 1
        load.update(chosen)
        placed.append(tuple(chosen))
    return placed


def _ring(racks: list[list[BrokerId]], random: Random) -> list[BrokerId]:
    """All brokers, alternating racks, otherwise in random order."""
    shuffled = [_shuffled(rack, random) for rack in _shuffled(racks, random)]
    longest = max(map(len, shuffled))
    return [rack[place] for place in range(longest) for rack in shuffled if place < len(rack)]


def _shuffled(items: Sequence[T], random: Random) -> list[T]:
    shuffled = list(items)
    for last in range(len(shuffled) - 1, 0, -1):
        other = random.randrange(last + 1)
        shuffled[last], shuffled[other] = shuffled[other], shuffled[last]
    return shuffled
