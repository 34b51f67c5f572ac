"""What members tell each other: every version is read, lies are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.group.assignors.assignor import MemberSubscription
from ottla.client.group.classic_protocol import read_assignment, read_subscription, write_assignment, write_subscription
from ottla.model.ids import TopicPartition
from ottla.protocol.consumer_protocol import ConsumerProtocolError

NAMES = st.text(min_size=1, max_size=10)
PARTITIONS = st.lists(st.builds(TopicPartition, NAMES, st.integers(0, 1000)), max_size=6, unique=True).map(
    lambda partitions: tuple(sorted(partitions))
)


@given(
    st.builds(
        MemberSubscription,
        topics=st.lists(NAMES, max_size=5).map(tuple),
        owned=PARTITIONS,
        generation=st.none() | st.integers(0, 2**31 - 1),
        rack_id=st.none() | NAMES,
        user_data=st.none() | st.binary(max_size=20),
    )
)
def test_subscriptions_round_trip(subscription: MemberSubscription) -> None:
    assert subscription == read_subscription(write_subscription(subscription))


@given(PARTITIONS)
def test_assignments_round_trip(partitions: tuple[TopicPartition, ...]) -> None:
    assert partitions == read_assignment(write_assignment(partitions))


def test_old_versions_have_fewer_fields() -> None:
    topics = b"\0\0\0\1\0\1t\0\0\0\1u"
    owned = b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\5"
    partition = (TopicPartition("t", 5),)
    assert MemberSubscription(topics=("t",), user_data=b"u") == read_subscription(b"\0\0" + topics)
    assert MemberSubscription(topics=("t",), user_data=b"u", owned=partition) == read_subscription(
        b"\0\1" + topics + owned
    )
    assert MemberSubscription(topics=("t",), user_data=b"u", owned=partition, generation=9) == read_subscription(
        b"\0\2" + topics + owned + b"\0\0\0\x09"
    )


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (read_subscription, read_assignment):
        try:
            read(data)
        except ConsumerProtocolError:
            continue


def test_a_lying_count_is_refused_at_once() -> None:
    with pytest.raises(ConsumerProtocolError, match="malformed consumer protocol assignment"):
        read_assignment(b"\0\3\x7f\xff\xff\xff")
