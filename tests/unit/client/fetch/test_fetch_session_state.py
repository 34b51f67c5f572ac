"""What a session's requests name, and what becomes of it when a broker lies."""

import pytest

from ottla.client.fetch import fetch_session_state
from ottla.client.fetch.fetch_session_state import FetchSessionState, SessionRequest
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.fetch_frames import NO_SESSION, Wanted
from ottla.protocol.fields import BrokenAnswerError
from tests.state.test_client_fetch_sessions import answer

A, B, C = (Wanted(TopicPartition("t", index), 0, 1000, 3) for index in range(3))


def begun(*wanted: Wanted) -> FetchSessionState:
    """A session 7 of these partitions."""
    session = FetchSessionState()
    assert SessionRequest((0, 0), wanted) == session.ask(wanted)
    session.read(answer(ErrorCode.NONE, 7, [("t", each.partition.partition) for each in wanted]))
    return session


def test_only_changes_are_named() -> None:
    session = begun(A, B)
    assert SessionRequest((7, 1), [], []) == session.ask([A, B])
    assert [] == session.read(answer(ErrorCode.NONE, 7, []))
    moved = B._replace(offset=5)
    assert SessionRequest((7, 2), [moved, C], [A.partition]) == session.ask([moved, C])
    (found,) = session.read(answer(ErrorCode.NONE, 7, [("t", 2)]))
    assert C.partition == found.partition
    assert SessionRequest((7, 3), [A], [C.partition]) == session.ask([A, moved])
    assert 1 == session.begun


def test_epochs_begin_again_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """0 would end the session, and begin another."""
    monkeypatch.setattr(fetch_session_state, "EPOCH_MAX", 2)
    session = begun(A)
    epochs = []
    for _ in range(4):
        epochs.append(session.ask([A]).session)
        session.read(answer(ErrorCode.NONE, 7, []))
    assert [(7, 1), (7, 2), (7, 1), (7, 2)] == epochs


def test_a_new_leader_epoch_and_another_limit_are_changes() -> None:
    session = begun(A)
    for changed in (A._replace(leader_epoch=4), A._replace(bytes_max=2000)):
        assert [changed] == session.ask([changed]).wanted
        session.read(answer(ErrorCode.NONE, 7, []))


@pytest.mark.parametrize(
    ("code", "following"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, (0, 0)),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, (7, 0)),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, (7, 0)),
    ],
)
def test_a_session_that_is_refused_begins_anew(code: ErrorCode, following: tuple[int, int]) -> None:
    """One that the broker still has is ended with that."""
    session = begun(A, B)
    session.ask([A, B])
    assert [] == session.read(answer(code, 0, []))
    assert SessionRequest(following, [A, B]) == session.ask([A, B])


def test_a_lost_answer_begins_anew_and_ends_the_old_session() -> None:
    session = begun(A)
    session.ask([A, B])
    session.on_lost()
    assert SessionRequest((7, 0), [A, B]) == session.ask([A, B])


def test_a_broker_without_room_is_asked_for_all_each_time() -> None:
    session = FetchSessionState()
    for _ in range(3):
        assert SessionRequest((0, 0), [A]) == session.ask([A])
        assert 1 == len(session.read(answer(ErrorCode.NONE, 0, [("t", 0)])))
    assert 3 == session.begun


def test_a_broker_that_ends_the_session_in_its_answer_is_asked_for_all_again() -> None:
    session = begun(A)
    session.ask([A])
    assert 1 == len(session.read(answer(ErrorCode.NONE, 0, [("t", 0)])))
    assert SessionRequest((0, 0), [A]) == session.ask([A])


def test_an_answer_about_something_else_is_refused() -> None:
    session = begun(A)
    session.ask([A])
    with pytest.raises(BrokenAnswerError, match="returned t-2, which was not requested"):
        session.read(answer(ErrorCode.NONE, 7, [("t", 2)]))
    assert SessionRequest((7, 0), [A]) == session.ask([A])


def test_one_that_does_not_last_asks_for_itself() -> None:
    session = FetchSessionState(is_lasting=False)
    for _ in range(2):
        assert SessionRequest(NO_SESSION, [A]) == session.ask([A])
        assert 1 == len(session.read(answer(ErrorCode.NONE, 0, [("t", 0)])))
