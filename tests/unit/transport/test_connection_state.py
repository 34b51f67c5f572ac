"""The table of a connection's states: complete, and without dead ends."""

import pytest

from ottla.model.invariants import InvariantViolation
from ottla.transport.connection_state import TRANSITIONS, Event, State, next_state


def test_every_state_can_be_closed_and_none_is_left_after_that() -> None:
    assert set(State) == set(TRANSITIONS)
    assert {State.CLOSED} == {following[Event.CLOSE] for following in TRANSITIONS.values()}
    assert {State.CLOSED} == set(TRANSITIONS[State.CLOSED].values())


def test_draining_ends_with_the_close() -> None:
    assert {State.DRAINING, State.CLOSED} == set(TRANSITIONS[State.DRAINING].values())


def test_every_other_state_leads_back_to_open() -> None:
    for state in set(State) - {State.DRAINING, State.CLOSED}:
        seen, unseen = {state}, [state]
        while unseen:
            for following in TRANSITIONS[unseen.pop()].values():
                if following not in seen:
                    seen.add(following)
                    unseen.append(following)
        assert State.OPEN in seen


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([Event.STARVE, Event.MUTE, Event.UNMUTE, Event.FEED], State.OPEN),
        ([Event.STARVE, Event.MUTE, Event.FEED], State.MUTED),
        ([Event.DEFER, Event.MUTE, Event.RESUME], State.MUTED),
        ([Event.DEFER, Event.MUTE, Event.UNMUTE, Event.RESUME], State.OPEN),
        ([Event.MUTE, Event.DRAIN, Event.MUTE], State.DRAINING),
        ([Event.DRAIN, Event.CLOSE, Event.RESUME], State.CLOSED),
    ],
)
def test_walks(events: list[Event], state: State) -> None:
    at = State.OPEN
    for event in events:
        at = next_state(at, event)
    assert state is at


def test_an_event_that_cannot_happen_is_a_broken_invariant() -> None:
    with pytest.raises(InvariantViolation, match="state MUTED cannot get the event STARVE"):
        next_state(State.MUTED, Event.STARVE)
