"""Which records have to wait, because an earlier one of their key is in retry."""

from ottla.client.consumer.key_order_state import KeyOrderState
from ottla.model.ids import TopicPartition

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def test_only_later_records_of_the_same_key_and_partition_wait() -> None:
    state = KeyOrderState()
    assert (False, False) == (bool(state), state.on_delivered(P, b"a", 5))
    state.on_handed_back(P, b"a", 5)
    assert [True, False, False, False] == [
        state.on_delivered(P, b"a", 6),
        state.on_delivered(P, b"b", 6),
        state.on_delivered(Q, b"a", 6),
        state.on_delivered(P, b"a", 4),
    ]


def test_a_record_that_returned_frees_the_next_one_and_may_go_again() -> None:
    state = KeyOrderState()
    for offset in (5, 6, 7):
        state.on_handed_back(P, b"a", offset)
    assert not state.on_delivered(P, b"a", 5)
    state.on_handed_back(P, b"a", 5)
    assert state.on_delivered(P, b"a", 6)
    state.on_handed_back(P, b"a", 6)
    assert [False, False, False] == [state.on_delivered(P, b"a", offset) for offset in (5, 6, 7)]
    assert not state


def test_partitions_that_move_are_forgotten() -> None:
    state = KeyOrderState()
    state.on_handed_back(P, b"a", 5)
    state.on_handed_back(Q, b"a", 5)
    state.forget([P])
    assert (False, True) == (state.on_delivered(P, b"a", 6), state.on_delivered(Q, b"a", 6))
