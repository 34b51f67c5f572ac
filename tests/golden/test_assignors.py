"""The assignors share out as Java's do, case by case; the cases are in `assignors`, made by `assignor_cases.py`."""

from typing import Any

import pytest

from ottla.client.group.classic_protocol import read_subscription
from tests.golden import assignor_cases


@pytest.mark.parametrize("name", assignor_cases.ASSIGNORS)
def test_assignments_are_java_s(name: str) -> None:
    cases = [case for case in assignor_cases.load() if case["assignor"] == name]
    groups = assignor_cases.GROUPS + assignor_cases.RACK_GROUPS * (name in assignor_cases.RACK_AWARE)
    assert groups * assignor_cases.ROUNDS == len(cases)
    wrong = [case for case in cases if case["assignment"] != assigned(case)]
    assert [] == wrong


def assigned(case: dict[str, Any]) -> dict[str, list[str]]:
    members = {
        member_id: read_subscription(bytes.fromhex(each["subscription"]), each["instance"])
        for member_id, each in case["members"].items()
    }
    counts = assignor_cases.subscribed_counts(case, members)
    found = assignor_cases.assign(case, counts, members)
    return {
        member_id: sorted(f"{each.topic}:{each.partition}" for each in partitions)
        for member_id, partitions in found.items()
    }


def test_cases_of_moving_partitions_are_among_them() -> None:
    """Or the cooperative assignor could as well not hold anything back."""
    held_back = 0
    for case in assignor_cases.load():
        if case["assignor"] == "cooperative-sticky":
            subscriptions = [
                read_subscription(bytes.fromhex(each["subscription"])) for each in case["members"].values()
            ]
            topics = {topic for subscription in subscriptions for topic in subscription.topics}
            total = sum(count for topic, count in case["topics"].items() if topic in topics)
            held_back += total > sum(map(len, case["assignment"].values()))
    assert held_back > 20


@pytest.mark.parametrize("name", assignor_cases.RACK_AWARE)
def test_cases_that_racks_decide_are_among_them(name: str) -> None:
    """Or an assignor that does not look at racks would pass as well."""
    decided = 0
    for case in assignor_cases.load():
        if case["assignor"] == name and "racks" in case:
            without = {key: value for key, value in case.items() if key != "racks"}
            decided += case["assignment"] != assigned(without)
    assert decided > 100
