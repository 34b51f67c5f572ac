"""Fetch sessions, case by case: making, continuing, closing, refusing, forgetting, evicting, and what is news."""

import pytest

from ottla.broker.requests.fetch_sessions import EVICTION_SECONDS, FetchPlan, FetchSessions, SessionPartition
from ottla.model.error_codes import ErrorCode
from ottla.sim.random import SimRandom
from tests.unit.broker.fetch_requests import fetch_request

ID = bytes(range(16))
A0, A1, B0 = ("a", 0, 10), ("a", 1, 11), ("b", 0, 12)


def sessions(slots_max: int = 3) -> FetchSessions:
    return FetchSessions(SimRandom(1), slots_max)


def keys(plan: FetchPlan) -> list[tuple[str | bytes, int, int]]:
    return [(each.topic, each.index, each.fetch_offset) for each in plan.partitions]


def test_a_session_grows_changes_and_forgets() -> None:
    known = sessions()
    first = known.plan(fetch_request(0, 0, [A0, A1]), 0.0)
    assert (True, [A0, A1], ErrorCode.NONE) == (first.is_full, keys(first), first.error)
    assert first.session_id > 0
    second = known.plan(fetch_request(first.session_id, 1, [("a", 1, 50), B0]), 1.0)
    assert (False, first.session_id) == (second.is_full, second.session_id)
    assert [A0, ("a", 1, 50), B0] == keys(second)
    third = known.plan(fetch_request(first.session_id, 2, [], [("a", 0), ("nobody", 9)]), 2.0)
    assert [("a", 1, 50), B0] == keys(third)


def test_before_sessions_and_without_one() -> None:
    known = sessions()
    for request in (fetch_request(0, -1, [A0], version=4), fetch_request(0, -1, [A0])):
        plan = known.plan(request, 0.0)
        assert (None, 0, True, [A0]) == (plan.session, plan.session_id, plan.is_full, keys(plan))
    assert 0 == len(known)


def test_closing_ends_the_session_and_is_answered_in_full() -> None:
    known = sessions()
    made = known.plan(fetch_request(0, 0, [A0]), 0.0).session_id
    plan = known.plan(fetch_request(made, -1, [B0]), 0.0)
    assert (0, True, [B0], 0) == (plan.session_id, plan.is_full, keys(plan), len(known))
    assert ErrorCode.FETCH_SESSION_ID_NOT_FOUND == known.plan(fetch_request(made, 1), 0.0).error


def test_a_full_fetch_replaces_the_session_that_it_names() -> None:
    known = sessions()
    made = known.plan(fetch_request(0, 0, [A0]), 0.0).session_id
    again = known.plan(fetch_request(made, 0, [B0]), 0.0)
    assert 1 == len(known)
    assert again.session_id not in (0, made)
    assert [B0] == keys(known.plan(fetch_request(again.session_id, 1), 0.0))


@pytest.mark.parametrize(
    ("session_offset", "epoch", "version", "expected"),
    [
        (1, 1, 7, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, 7, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 2**31 - 1, 7, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, -2, 7, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 1, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        (0, 1, 7, ErrorCode.NONE),
    ],
)
def test_refusals_change_nothing(session_offset: int, epoch: int, version: int, expected: ErrorCode) -> None:
    known = sessions()
    made = known.plan(fetch_request(0, 0, [A0]), 0.0).session_id
    wrong = known.plan(fetch_request(made + session_offset, epoch, version=version), 0.0)
    assert expected == wrong.error
    if expected:
        assert ([], None, 0) == (wrong.partitions, wrong.session, wrong.session_id)
        assert ErrorCode.NONE == known.plan(fetch_request(made, 1), 0.0).error


def test_a_session_by_id_is_continued_by_id_only() -> None:
    known = sessions()
    made = known.plan(fetch_request(0, 0, [(ID, 3, 7)], version=13), 0.0).session_id
    assert ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR == known.plan(fetch_request(made, 1), 0.0).error
    assert [(ID, 3, 7)] == keys(known.plan(fetch_request(made, 1, version=13), 0.0))
    assert [] == keys(known.plan(fetch_request(made, 2, [], [(ID, 3)], version=13), 0.0))


def test_epochs_wrap_past_zero() -> None:
    known = sessions()
    plan = known.plan(fetch_request(0, 0, [A0]), 0.0)
    assert plan.session is not None
    plan.session.epoch = 2**31 - 1
    assert ErrorCode.NONE == known.plan(fetch_request(plan.session_id, 2**31 - 1), 0.0).error
    assert ErrorCode.NONE == known.plan(fetch_request(plan.session_id, 1), 0.0).error


def test_a_session_that_wants_nothing_any_more_ends() -> None:
    known = sessions()
    made = known.plan(fetch_request(0, 0, [A0]), 0.0).session_id
    plan = known.plan(fetch_request(made, 1, [], [("a", 0)]), 0.0)
    assert ([], 0, ErrorCode.NONE, 0) == (plan.partitions, plan.session_id, plan.error, len(known))
    assert 0 == known.plan(fetch_request(0, 0), 0.0).session_id


def test_only_what_was_unused_for_long_makes_room() -> None:
    known = sessions(2)
    first = known.plan(fetch_request(0, 0, [A0]), 0.0).session_id
    second = known.plan(fetch_request(0, 0, [A0]), 1.0).session_id
    known.plan(fetch_request(first, 1), 50.0)
    refused = known.plan(fetch_request(0, 0, [B0]), 1.0 + EVICTION_SECONDS - 0.1)
    assert (0, None, [B0], True) == (refused.session_id, refused.session, keys(refused), refused.is_full)
    taken = known.plan(fetch_request(0, 0, [B0]), 1.0 + EVICTION_SECONDS)
    assert (2, 1) == (len(known), known.evicted)
    assert taken.session_id > 0
    assert ErrorCode.FETCH_SESSION_ID_NOT_FOUND == known.plan(fetch_request(second, 1), 121.0).error
    assert ErrorCode.NONE == known.plan(fetch_request(first, 2), 121.0).error


def test_without_slots_there_are_no_sessions() -> None:
    known = sessions(0)
    assert 0 == known.plan(fetch_request(0, 0, [A0]), 0.0).session_id


def test_those_who_got_records_go_to_the_end() -> None:
    known = sessions()
    plan = known.plan(fetch_request(0, 0, [A0, A1, B0]), 0.0)
    assert plan.session is not None
    plan.session.rotate([("a", 0), ("gone", 4)])
    assert [A1, B0, A0] == keys(known.plan(fetch_request(plan.session_id, 1), 0.0))


def test_what_is_news() -> None:
    partition = SessionPartition(("a", 0, -1, 5, -1, -1, 100))
    told = [
        partition.has_news(0, 10, 0, 0),
        partition.has_news(0, 10, 0, 0),
        partition.has_news(0, 11, 0, 0),
        partition.has_news(0, 11, 2, 0),
        partition.has_news(0, 11, 2, 77),
        partition.has_news(0, 11, 2, 0),
        partition.has_news(6, 11, 2, 0),
        partition.has_news(6, 11, 2, 0),
        partition.has_news(0, 11, 2, 0),
        partition.has_news(0, 11, 2, 0),
    ]
    assert [True, False, True, True, True, False, True, True, True, False] == told


def test_all_sessions_together_remember_a_bounded_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.requests.fetch_sessions.PARTITIONS_MAX", 3)
    known = sessions()
    first = known.plan(fetch_request(0, 0, [A0, A1]), 0.0)
    assert first.session_id > 0
    assert 0 == known.plan(fetch_request(0, 0, [A0, A1]), 1.0).session_id, "there is no room for two more"
    assert known.plan(fetch_request(first.session_id, 1, [B0]), 2.0).session is not None
    # The fourth is one too many: the session goes, and its room with it.
    grown = known.plan(fetch_request(first.session_id, 2, [("b", 1, 0)]), 3.0)
    assert ErrorCode.FETCH_SESSION_ID_NOT_FOUND == grown.error
    assert known.plan(fetch_request(0, 0, [A0, A1, B0]), 4.0).session_id > 0
    assert 0 == known.plan(fetch_request(0, 0, [A0]), 4.0 + EVICTION_SECONDS - 1).session_id
    assert known.plan(fetch_request(0, 0, [A0]), 4.0 + EVICTION_SECONDS).session_id > 0
    assert 1 == len(known)
    assert 0 == known.plan(fetch_request(0, 0, [A0, A1, B0, ("b", 1, 0)]), 4.0 + 2 * EVICTION_SECONDS).session_id
    assert 1 == len(known), "and nobody is evicted for what cannot be remembered"


def test_a_session_is_its_owners_alone() -> None:
    """Another client that guesses its id neither learns what is fetched, nor changes it, nor ends it."""
    known = sessions()
    made = known.plan(fetch_request(0, 0, [A0]), 0.0, "alice").session_id
    assert ErrorCode.FETCH_SESSION_ID_NOT_FOUND == known.plan(fetch_request(made, 1, []), 0.0, "mallory").error
    for epoch in (0, -1):
        known.plan(fetch_request(made, epoch, []), 0.0, "mallory")
    continued = known.plan(fetch_request(made, 1, []), 0.0, "alice")
    assert (made, ErrorCode.NONE, 1) == (continued.session_id, continued.error, len(continued.partitions))
