"""Placement: even, no broker twice, racks spread; whatever the numbers and the dice."""

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.placement import place
from ottla.metadata.image import BrokerImage
from ottla.model.errors import MisuseError
from ottla.model.ids import BrokerId
from ottla.sim.random import SimRandom
from tests.unit.controller.images import brokers


def cluster(racks: Iterable[str | None]) -> list[BrokerImage]:
    """A broker in each of these racks; their ids have gaps, as real ones may."""
    return [BrokerImage(id=BrokerId(index * 3 + 1), host="h", port=1, rack=rack) for index, rack in enumerate(racks)]


def spread(counts: Counter[BrokerId], of: list[BrokerImage]) -> int:
    """By how much the most and the least loaded broker differ."""
    loads = [counts[broker.id] for broker in of]
    return max(loads) - min(loads)


@st.composite
def sizes(draw: st.DrawFn, brokers_max: int = 12) -> tuple[int, int, int, int]:
    """Brokers, replication factor, partitions, seed."""
    count = draw(st.integers(1, brokers_max))
    return count, draw(st.integers(1, count)), draw(st.integers(1, 40)), draw(st.integers(0, 1000))


@given(sizes())
def test_leaders_and_replicas_are_even_within_one(size: tuple[int, int, int, int]) -> None:
    count, factor, partitions, seed = size
    alive = cluster([None] * count)
    placed = place(alive, partition_count=partitions, replication_factor=factor, random=SimRandom(seed))
    assert [factor] * partitions == [len(set(replicas)) for replicas in placed]
    assert {broker.id for broker in alive} >= {broker for replicas in placed for broker in replicas}
    # After every single partition, not only in the end.
    for end in range(1, partitions + 1):
        assert spread(Counter(replicas[0] for replicas in placed[:end]), alive) <= 1
        assert spread(Counter(broker for replicas in placed[:end] for broker in replicas), alive) <= 1


@given(st.integers(1, 4), st.integers(1, 4), sizes(brokers_max=16))
def test_racks_of_one_size_are_even_and_spread(racks: int, per_rack: int, size: tuple[int, int, int, int]) -> None:
    _, factor, partitions, seed = size
    factor = min(factor, racks * per_rack)
    alive = cluster([f"r{index % racks}" for index in range(racks * per_rack)])
    rack_of = {broker.id: broker.rack for broker in alive}
    placed = place(alive, partition_count=partitions, replication_factor=factor, random=SimRandom(seed))
    for replicas in placed:
        assert factor == len(set(replicas))
        used = Counter(rack_of[broker] for broker in replicas)
        assert min(factor, racks) == len(used)
        assert max(used.values()) - min(used.values()) <= 1
    assert spread(Counter(replicas[0] for replicas in placed), alive) <= 1
    assert spread(Counter(broker for replicas in placed for broker in replicas), alive) <= 1


@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=10), sizes(brokers_max=10))
def test_racks_of_any_size_are_spread_and_leaders_even(
    racks: list[str | None], size: tuple[int, int, int, int]
) -> None:
    _, factor, partitions, seed = size
    factor = min(factor, len(racks))
    alive = cluster(racks)
    rack_of = {broker.id: broker.rack for broker in alive}
    placed = place(alive, partition_count=partitions, replication_factor=factor, random=SimRandom(seed))
    for replicas in placed:
        assert factor == len(set(replicas))
        assert min(factor, len(set(racks))) == len({rack_of[broker] for broker in replicas})
    assert spread(Counter(replicas[0] for replicas in placed), alive) <= 1


@given(sizes(), st.integers(1, 20))
def test_added_partitions_keep_leaders_even(size: tuple[int, int, int, int], added: int) -> None:
    count, factor, partitions, seed = size
    alive = cluster([None] * count)
    random = SimRandom(seed)
    before = place(alive, partition_count=partitions, replication_factor=factor, random=random)
    more = place(alive, partition_count=added, replication_factor=factor, random=random, existing=before)
    assert added == len(more)
    assert [factor] * added == [len(set(replicas)) for replicas in more]
    assert spread(Counter(replicas[0] for replicas in before + more), alive) <= 1


def test_the_other_replicas_of_one_broker_are_everywhere() -> None:
    """So that the load of a broker that dies falls on all others."""
    alive = cluster([None] * 6)
    placed = place(alive, partition_count=120, replication_factor=2, random=SimRandom(1))
    neighbours = {replicas[1] for replicas in placed if replicas[0] == alive[0].id}
    assert {broker.id for broker in alive[1:]} == neighbours


def test_a_new_broker_gets_the_added_partitions() -> None:
    alive = cluster([None] * 2)
    existing = [brokers(1)] * 4
    placed = place(alive, partition_count=6, replication_factor=1, random=SimRandom(1), existing=existing)
    assert [brokers(4)] * 4 == placed[:4]
    assert {brokers(1), brokers(4)} == set(placed[4:])


def test_one_seed_gives_one_placement() -> None:
    alive = cluster(["a", "b", "a", "b", None])

    def once(seed: int) -> list[tuple[BrokerId, ...]]:
        return place(alive, partition_count=20, replication_factor=3, random=SimRandom(seed))

    assert once(7) == once(7)
    assert once(7) != once(8)


@pytest.mark.parametrize("factor", [0, 3])
def test_impossible_factors_are_misuse(factor: int) -> None:
    with pytest.raises(MisuseError, match=f"{factor} replicas on 2 brokers"):
        place(cluster([None] * 2), partition_count=1, replication_factor=factor, random=SimRandom(1))
