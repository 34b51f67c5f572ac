"""Which replicas are throttled while others are copied from them."""

from ottla.model.ids import TopicPartition
from ottla.operations.reassignment.throttle import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    ThrottleConfigs,
    throttled_replicas,
)

EVENTS = [TopicPartition("events", index) for index in range(3)]
USERS = TopicPartition("users", 10)


def test_present_replicas_are_throttled_as_leaders_and_new_ones_as_followers() -> None:
    present = {EVENTS[0]: (1, 2), EVENTS[1]: (2, 3), EVENTS[2]: (1, 2)}
    plan = {EVENTS[1]: (3, 4, 5), USERS: (2,), EVENTS[0]: (2, 3), EVENTS[2]: (2, 1)}
    assert {
        "events": {LEADER_REPLICAS: "0:1,0:2,1:2,1:3", FOLLOWER_REPLICAS: "0:3,1:4,1:5"},
        "users": {LEADER_REPLICAS: "", FOLLOWER_REPLICAS: "10:2"},
    } == throttled_replicas(present, plan)


def test_a_plan_that_copies_nothing_throttles_nothing() -> None:
    assert {} == throttled_replicas({EVENTS[0]: (1, 2, 3)}, {EVENTS[0]: (3, 1)})


def test_a_throttle_is_set_if_any_part_of_it_is() -> None:
    throttles = [ThrottleConfigs({}, ()), ThrottleConfigs({"broker 1": "9"}, ()), ThrottleConfigs({}, ("events",))]
    assert [False, True, True] == [bool(each) for each in throttles]
