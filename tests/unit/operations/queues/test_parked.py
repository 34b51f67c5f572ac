"""Chosen records, and those of them that were parked before a moment."""

from ottla.model.ids import TopicPartition
from ottla.operations.queues.parked import ChosenRecords

P0, P1 = TopicPartition("orders.delayed", 0), TopicPartition("orders.delayed", 1)


def test_chosen_records_before_an_offset_of_each_partition() -> None:
    chosen = ChosenRecords(b"a", {P0: [2, 5, 9], P1: [0]})
    assert 4 == chosen.total
    assert ChosenRecords(b"a", {P0: [2], P1: [0]}) == chosen.before({P0: 5, P1: 1})
    assert ChosenRecords(b"a", {P0: [2, 5, 9], P1: []}) == chosen.before({P0: 10})
    assert 0 == chosen.before({}).total
