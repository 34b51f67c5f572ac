"""Subscriptions and assignments of classic consumers: every version byte by byte, and malformed ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.consumer_protocol import (
    Assignment,
    ConsumerProtocolError,
    Subscription,
    read_assignment,
    read_subscription,
    read_topics,
    version_of,
    write_assignment,
    write_subscription,
)

TOPICS = bytes.fromhex("00000002 0001 61 0002 6262")
NO_USER_DATA = bytes.fromhex("ffffffff")
OWNED = bytes.fromhex("00000001 0001 61 00000002 00000000 00000003")
GENERATION = bytes.fromhex("00000007")
RACK = bytes.fromhex("0002 7231")
SUBSCRIPTION_3 = bytes.fromhex("0003") + TOPICS + NO_USER_DATA + OWNED + GENERATION + RACK
ASSIGNMENT_1 = bytes.fromhex("0001") + OWNED + NO_USER_DATA

FULL = Subscription(topics=("a", "bb"), owned={"a": (0, 3)}, generation=7, rack_id="r1")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (bytes.fromhex("0000") + TOPICS + NO_USER_DATA, Subscription(topics=("a", "bb"), owned={})),
        (bytes.fromhex("0001") + TOPICS + NO_USER_DATA + OWNED, Subscription(topics=("a", "bb"), owned={"a": (0, 3)})),
        (
            bytes.fromhex("0002") + TOPICS + NO_USER_DATA + OWNED + GENERATION,
            Subscription(topics=("a", "bb"), owned={"a": (0, 3)}, generation=7),
        ),
        (SUBSCRIPTION_3, FULL),
        (bytes.fromhex("0009") + SUBSCRIPTION_3[2:] + b"fields of a newer version", FULL),
        (bytes.fromhex("ffff") + TOPICS + NO_USER_DATA, Subscription(topics=("a", "bb"), owned={})),
        (bytes.fromhex("0000 00000000 00000002 6869"), Subscription(topics=(), user_data=b"hi", owned={})),
    ],
    ids=["version 0", "version 1", "version 2", "version 3", "newer version", "negative version", "user data"],
)
def test_subscriptions_are_read_in_every_version(data: bytes, expected: Subscription) -> None:
    assert expected == read_subscription(data)
    assert expected.topics == read_topics(data)


def test_subscriptions_are_written_in_version_3() -> None:
    assert SUBSCRIPTION_3 == write_subscription(FULL)


def test_assignments_are_written_in_the_version_of_the_subscription() -> None:
    assert ASSIGNMENT_1 == write_assignment({"a": (0, 3)}, 1)
    assert [0, 3, 3] == [version_of(write_assignment({}, version)) for version in (-1, 4, 3)]


def test_assignments_are_read_in_any_version() -> None:
    for version in (0, 3, 5, -1):
        data = version.to_bytes(2, signed=True) + ASSIGNMENT_1[2:]
        assert Assignment(partitions={"a": (0, 3)}) == read_assignment(data)
    assert Assignment(partitions={}) == read_assignment(b"")
    assert Assignment(partitions={}, user_data=b"x") == read_assignment(bytes.fromhex("0000 00000000 00000001 78"))


def test_null_arrays_are_empty() -> None:
    null = bytes.fromhex("ffffffff")
    assert Subscription(topics=(), owned={}) == read_subscription(bytes.fromhex("0001") + null + NO_USER_DATA + null)
    assert Assignment(partitions={"a": ()}) == read_assignment(
        bytes.fromhex("0000 00000001 0001 61") + null + NO_USER_DATA
    )


def test_a_topic_that_is_listed_twice_has_the_partitions_of_both() -> None:
    data = bytes.fromhex("0000 00000002 0001 61 00000001 00000001 0001 61 00000001 00000005") + NO_USER_DATA
    assert {"a": (1, 5)} == read_assignment(data).partitions


def test_topics_can_be_read_where_later_fields_are_missing() -> None:
    """Some clients announce version 1 and send version 0."""
    data = bytes.fromhex("0001") + TOPICS + NO_USER_DATA
    assert ("a", "bb") == read_topics(data) == read_topics(bytes.fromhex("0000") + TOPICS)
    with pytest.raises(ConsumerProtocolError):
        read_subscription(data)


def test_null_topics_are_not_the_same_as_no_topics() -> None:
    """A coordinator that took them for none would let the group's offsets expire."""
    with pytest.raises(ConsumerProtocolError, match="topics are null"):
        read_topics(bytes.fromhex("0000 ffffffff ffffffff"))


@pytest.mark.parametrize("size", range(len(SUBSCRIPTION_3)))
def test_a_subscription_that_ends_too_early_is_malformed(size: int) -> None:
    with pytest.raises(ConsumerProtocolError):
        read_subscription(SUBSCRIPTION_3[:size])


@pytest.mark.parametrize("size", range(1, len(ASSIGNMENT_1)))
def test_an_assignment_that_ends_too_early_is_malformed(size: int) -> None:
    with pytest.raises(ConsumerProtocolError):
        read_assignment(ASSIGNMENT_1[:size])


@pytest.mark.parametrize(
    "body",
    ["7fffffff 0001 61", "fffffffe", "00000001 ffff", "00000001 fffe", "00000001 0001 ff ffffffff"],
    ids=["count that lies", "negative count", "null text", "negative length", "text that is not UTF-8"],
)
def test_malformed_subscriptions(body: str) -> None:
    with pytest.raises(ConsumerProtocolError):
        read_subscription(bytes.fromhex("0000" + body))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_malformed(data: bytes) -> None:
    for read in (read_subscription, read_assignment, read_topics):
        try:
            read(data)
        except ConsumerProtocolError:
            continue


NAMES = st.text(max_size=5)
PARTITIONS = st.dictionaries(NAMES, st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple), max_size=4)


@given(
    st.builds(
        Subscription,
        topics=st.lists(NAMES, max_size=4).map(tuple),
        user_data=st.none() | st.binary(max_size=5),
        owned=PARTITIONS,
        generation=st.integers(-1, 2**31 - 1),
        rack_id=st.none() | NAMES,
    )
)
def test_what_is_written_is_read(subscription: Subscription) -> None:
    assert subscription == read_subscription(write_subscription(subscription))
    assert subscription.owned == read_assignment(write_assignment(subscription.owned)).partitions
