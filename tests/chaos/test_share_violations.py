"""Each violation of a share group's promises is found in a history that contains it."""

import pytest

from tests.chaos.checker import Contents
from tests.chaos.history import Event
from tests.chaos.share_violations import DELIVERIES_MAX, share_violations

AT = "plain-0"
CONTENTS: Contents = {AT: [(0, "a")]}


def acquired(t: float, who: str, *, since: float | None = None, count: int = 1) -> Event:
    since = t - 0.5 if since is None else since
    return Event(t=t, who=who, what="acquired", records=((AT, 0, "a"),), counts=(count,), since=since)


def acknowledged(t: float, who: str, how: str, *, is_stored: bool = True) -> list[Event]:
    sent = Event(t=t, who=who, what="acknowledging", at=AT, offsets=(0,), how=how)
    return [sent, Event(t=t + 0.5, who=who, what="acknowledged", at=AT, offsets=(0,), how=how)][: 1 + is_stored]


def start(t: float, offset: int) -> Event:
    return Event(t=t, who="watcher", what="start", at=AT, offset=offset, since=t - 0.1)


RIGHT = {
    "accepted": [acquired(1, "x"), *acknowledged(2, "x", "accept"), start(3, 0), start(4, 1)],
    "released and rejected": [
        acquired(1, "x"),
        *acknowledged(2, "x", "release"),
        acquired(4, "y", count=2),
        *acknowledged(5, "y", "reject", is_stored=False),
    ],
    "delivered as often as it may be": [acquired(1, "x", count=DELIVERIES_MAX)],
    "a leader forgot a delivery": [acquired(1, "x"), acquired(4, "y"), *acknowledged(5, "y", "accept")],
    "fetched before another member accepted": [
        acquired(1, "x"),
        *acknowledged(2, "x", "accept"),
        acquired(4, "y", since=2),
    ],
}
WRONG = {
    "no record lost to a share group": [acquired(1, "x"), *acknowledged(2, "x", "release")],
    "acknowledged records stay done": [acquired(1, "x"), *acknowledged(2, "x", "accept"), acquired(4, "y", count=2)],
    "delivery counts of share groups": [
        acquired(1, "x", count=2),
        *acknowledged(2, "x", "release"),
        acquired(4, "y", count=2),
        *acknowledged(5, "y", "accept"),
    ],
    "one holder of a record": [
        acquired(1, "x"),
        acquired(1.4, "y", since=1.2, count=2),
        *acknowledged(1.6, "x", "accept"),
    ],
    "share start offsets never go back": [
        acquired(1, "x"),
        *acknowledged(2, "x", "accept"),
        start(3, 1),
        start(4, 0),
    ],
    "not done": [
        acquired(1, "x"),
        *acknowledged(2, "x", "accept"),
        Event(t=9, who="watcher", what="undone", error="plain-0"),
    ],
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right(name: str) -> None:
    assert [] == share_violations(RIGHT[name], CONTENTS)


@pytest.mark.parametrize("promise", WRONG)
def test_what_is_wrong(promise: str) -> None:
    assert [promise] == [each.promise for each in share_violations(WRONG[promise], CONTENTS)]
