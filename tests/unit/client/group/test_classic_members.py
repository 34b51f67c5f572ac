"""Members' own bytes, as the coordinator's code and real clients write them, and broken."""

import pytest

from ottla.client.group.classic_members import UnreadableMemberError, read_assignment, read_subscription
from ottla.coordination.groups.consumer_protocol import write_assignment
from ottla.model.ids import TopicPartition

SUBSCRIPTION = (
    bytes.fromhex("0003 00000002") + b"\0\6events\0\5users" + bytes.fromhex("ffffffff 00000000 ffffffff ffff")
)
ASSIGNMENT = write_assignment({"users": (4,), "events": (1, 0)}, 3)


def test_an_assignment_is_read_in_order() -> None:
    expected = (TopicPartition("events", 0), TopicPartition("events", 1), TopicPartition("users", 4))
    assert expected == read_assignment(ASSIGNMENT)


def test_a_subscription_is_read() -> None:
    assert ("events", "users") == read_subscription(SUBSCRIPTION)


def test_no_bytes_are_nothing() -> None:
    assert ((), ()) == (read_assignment(b""), read_subscription(b""))


@pytest.mark.parametrize("size", range(1, len(ASSIGNMENT) - 4))
def test_an_assignment_that_ends_early_is_unreadable(size: int) -> None:
    with pytest.raises(UnreadableMemberError):
        read_assignment(ASSIGNMENT[:size])


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("0000 7fffffff"),
        bytes.fromhex("0000 00000001 7fff") + b"events",
        bytes.fromhex("0000 00000001 ffff 00000000"),
        bytes.fromhex("0000 00000001 0001 61 7fffffff 00000000"),
    ],
)
def test_lengths_that_lie_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableMemberError):
        read_assignment(data)


@pytest.mark.parametrize("size", range(1, 21))
def test_a_subscription_that_ends_early_is_unreadable(size: int) -> None:
    with pytest.raises(UnreadableMemberError):
        read_subscription(SUBSCRIPTION[:size])
