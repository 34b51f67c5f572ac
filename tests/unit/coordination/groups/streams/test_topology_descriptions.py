"""When members are asked for the description of their topology, and which descriptions are kept."""

import pytest

from ottla.coordination.groups.streams import topology_descriptions
from ottla.coordination.groups.streams.requests import Refusal
from ottla.coordination.groups.streams.topology_descriptions import (
    BACKOFF_MS_MAX,
    FIRST_BACKOFF_MS,
    TopologyDescriptions,
)
from ottla.model.error_codes import ErrorCode

G = "group"
ROOM = 25


def test_one_member_is_asked_and_another_one_later() -> None:
    """At intervals that double, up to an hour."""
    found = TopologyDescriptions()
    now_ms = 0
    assert found.ask(G, 0, now_ms)
    for each in range(10):
        wait_ms = min(FIRST_BACKOFF_MS * 2**each, BACKOFF_MS_MAX)
        assert (False, True) == (found.ask(G, 0, now_ms + wait_ms - 1), found.ask(G, 0, now_ms + wait_ms))
        now_ms += wait_ms


def test_a_description_that_was_sent_is_not_asked_for() -> None:
    found = TopologyDescriptions()
    found.put(G, 0, "first", 10, ROOM)
    assert (False, "first", None) == (found.ask(G, 0, 10**9), found.get(G, 0), found.get(G, 1))
    # Another topology has another description.
    assert (True, None) == (found.ask(G, 1, 0), found.get(G, 0))
    found.put(G, 1, "second", 10, ROOM)
    found.forget(G)
    assert (None, True) == (found.get(G, 1), found.ask(G, 1, 0))
    found.forget("unknown")


def test_what_is_too_large_is_refused_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology_descriptions, "DESCRIPTION_SIZE_MAX", 10)
    found = TopologyDescriptions()
    with pytest.raises(Refusal) as refused:
        found.put(G, 0, "large", 11, ROOM)
    assert ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED is refused.value.code
    assert (False, None) == (found.ask(G, 0, 10**9), found.get(G, 0))
    for each in "ab":
        found.put(each, 0, each, 10, ROOM)
        found.put(each, 0, each, 10, ROOM)
    with pytest.raises(Refusal, match="descriptions take 20 of 25 bytes"):
        found.put("c", 0, "c", 10, ROOM)
    assert found.ask("c", 0, 0), "there may be room again"
    found.forget("a")
    found.put("c", 0, "c", 10, ROOM)
    assert [None, "b", "c"] == [found.get(each, 0) for each in "abc"]


def test_with_less_room_than_a_description_may_take_a_large_one_is_refused_for_good() -> None:
    found = TopologyDescriptions()
    with pytest.raises(Refusal, match="has a size of 26 bytes; at most 25 are kept"):
        found.put(G, 0, "large", 26, ROOM)
    assert not found.ask(G, 0, 10**9)


def test_a_clock_that_is_set_moves_the_next_question() -> None:
    found = TopologyDescriptions()
    assert found.ask(G, 0, 0)
    found.shift(1_000_000)
    assert (False, True) == (
        found.ask(G, 0, 1_000_000 + FIRST_BACKOFF_MS - 1),
        found.ask(G, 0, 1_000_000 + FIRST_BACKOFF_MS),
    )
