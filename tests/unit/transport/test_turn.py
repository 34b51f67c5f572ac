"""The turn: its stages in order, whatever adds to what, and an end for every turn that was begun."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from ottla.transport.turn import Turn

pytestmark = pytest.mark.both_loops


class Noting:
    """Ends its turn by noting a word, and doing something else if told to."""

    def __init__(self, notes: list[str], word: str, then: Callable[[], None] = lambda: None) -> None:
        self._notes = notes
        self._word = word
        self._then = then

    def end_turn(self) -> None:
        self._notes.append(self._word)
        self._then()


async def test_appends_come_before_wakes_and_those_before_connections() -> None:
    turn, notes = Turn(), list[str]()
    turn.join(Noting(notes, "connection"))
    turn.add_wake(lambda: notes.append("wake"))
    turn.add_append(lambda: notes.append("append"))
    assert [] == notes
    await asyncio.sleep(0)
    assert ["append", "wake", "connection"] == notes


async def test_what_is_added_on_the_way_is_done_in_the_same_turn() -> None:
    turn, notes = Turn(), list[str]()

    def wake() -> None:
        notes.append("wake")
        turn.add_append(lambda: notes.append("append of the wake"))
        turn.join(Noting(notes, "woken connection"))
        turn.finish()  # From within: left to the outer call.

    turn.join(Noting(notes, "connection", lambda: turn.add_wake(lambda: notes.append("last wake"))))
    turn.add_wake(wake)
    turn.finish()
    assert ["wake", "append of the wake", "connection", "woken connection", "last wake"] == notes


async def test_a_failure_is_reported_and_the_rest_goes_on() -> None:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    turn, notes = Turn(), list[str]()

    def fail() -> None:
        raise RuntimeError("on purpose")

    turn.add_append(fail)
    turn.add_append(lambda: notes.append("append"))
    turn.join(Noting(notes, "connection", fail))
    turn.join(Noting(notes, "other connection"))
    turn.finish()
    assert ["append", "connection", "other connection"] == notes
    assert ["unexpected failure: on purpose"] * 2 == complaints
    turn.add_wake(lambda: notes.append("next turn"))
    await asyncio.sleep(0)
    assert "next turn" == notes[-1]


async def test_events_of_one_round_share_a_turn() -> None:
    turn, notes = Turn(), list[str]()
    for _ in range(50):
        for name in ("a", "b", "c"):
            turn.begin_event()
            turn.join(Noting(notes, name))
            turn.end_event()
        assert [] == notes
        await asyncio.sleep(0)
        assert ["a", "b", "c"] == notes
        notes.clear()


async def test_events_that_come_alone_soon_do_not_wait_and_learn_of_others_again() -> None:
    turn, notes = Turn(), list[str]()

    def event(name: str) -> None:
        turn.begin_event()
        turn.join(Noting(notes, name))
        turn.end_event()

    waited = []
    for _ in range(40):
        event("alone")
        waited.append(not notes)
        await asyncio.sleep(0)
        assert ["alone"] == notes
        notes.clear()
    assert waited[0]
    assert not waited[-1]
    rounds = 0
    while rounds < 1000:
        rounds += 1
        event("a")
        event("b")
        shared = notes == []
        await asyncio.sleep(0)
        assert ["a", "b"] == notes
        notes.clear()
        if shared:
            break
    assert shared


async def test_what_is_added_between_events_is_done_without_one() -> None:
    turn, notes = Turn(), list[str]()
    for _ in range(30):
        turn.begin_event()
        turn.end_event()
        await asyncio.sleep(0)
    for word in ("timer", "another"):
        turn.add_wake(partial(notes.append, word))
        await asyncio.sleep(0)
        assert word == notes[-1]
