"""Share sessions of a broker: epochs, owners, and how many there may be."""

from uuid import UUID

import pytest

from ottla.coordination.share_partitions.share_sessions import SessionKey, SessionRefusedError, ShareSessions
from ottla.model.error_codes import ErrorCode

KEY, OTHER = SessionKey("g", "m"), SessionKey("g", "n")
PLACE = (UUID(int=1), 0)
EPOCH_MAX = 2**31 - 1


def test_the_epoch_after_the_last_is_one() -> None:
    sessions = ShareSessions()
    session, _ = sessions.open(KEY, "connection", "user", [PLACE], 10)
    session.epoch = EPOCH_MAX
    sessions.proceed(KEY, "user", EPOCH_MAX)
    assert 1 == session.epoch


@pytest.mark.parametrize("epoch", [1, 3, EPOCH_MAX, 0])
def test_another_epoch_than_the_next_is_refused(epoch: int) -> None:
    sessions = ShareSessions()
    session, _ = sessions.open(KEY, "connection", "user", [PLACE], 10)
    sessions.proceed(KEY, "user", 1)
    with pytest.raises(SessionRefusedError, match=f"epoch is 2, not {epoch}") as refused:
        sessions.proceed(KEY, "user", epoch)
    assert (ErrorCode.INVALID_SHARE_SESSION_EPOCH, 2) == (refused.value.code, session.epoch)


def test_the_session_of_another_user_is_not_found_and_not_replaced() -> None:
    sessions = ShareSessions()
    session, _ = sessions.open(KEY, "connection", "user", [PLACE], 10)
    for attempt in (
        lambda: sessions.proceed(KEY, "stranger", 1),
        lambda: sessions.open(KEY, "connection", "stranger", [], 10),
    ):
        with pytest.raises(SessionRefusedError) as refused:
            attempt()
        assert ErrorCode.SHARE_SESSION_NOT_FOUND is refused.value.code
    assert session is sessions.get(KEY, "user")


def test_a_session_that_is_replaced_makes_room_for_none() -> None:
    sessions = ShareSessions()
    first, _ = sessions.open(KEY, "connection", "user", [PLACE], 1)
    second, replaced = sessions.open(KEY, "connection", "user", [PLACE], 1)
    assert (first, 1) == (replaced, len(sessions))
    with pytest.raises(SessionRefusedError) as refused:
        sessions.open(OTHER, "connection", "user", [PLACE], 1)
    assert ErrorCode.SHARE_SESSION_LIMIT_REACHED is refused.value.code
    sessions.end(first)
    assert [second] == sessions.of_connection("connection")
    sessions.end(second)
    assert ([], False) == (sessions.of_connection("connection"), sessions.has_group("g"))
