"""A consumer's options: what a type checker knows is what there is."""

from dataclasses import fields
from typing import get_type_hints

from ottla.client.consumer.options import ConsumerConfig, ConsumerOptions
from ottla.client.group.assignors.range_assignor import RangeAssignor


def test_what_a_type_checker_knows_is_what_there_is() -> None:
    hints = get_type_hints(ConsumerConfig)
    assert get_type_hints(ConsumerOptions) == {each.name: hints[each.name] for each in fields(ConsumerConfig)}


def test_assignors_by_name_by_class_and_as_they_are() -> None:
    own = RangeAssignor()
    config = ConsumerConfig(partition_assignment_strategy=["sticky", RangeAssignor, own])
    made = config.assignors()
    assert ["sticky", "range", "range"] == [each.name for each in made]
    assert own is made[2]
