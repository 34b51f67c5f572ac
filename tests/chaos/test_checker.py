"""Hand-made histories: each that breaks a promise is found out, by that promise's name; a good one is left alone."""

from typing import Any

import pytest

from tests.chaos.checker import PROMISES, Contents, check
from tests.chaos.history import Event
from tests.chaos.recovery import Outage, outage


def events(*lines: tuple[str, str, dict[str, Any]]) -> list[Event]:
    """An event a second."""
    return [Event(t=float(t), who=who, what=what, **more) for t, (who, what, more) in enumerate(lines)]


def sent(
    value: str, who: str = "w", at: str = "p-0", transaction: str | None = None
) -> tuple[str, str, dict[str, Any]]:
    return who, "sent", {"value": value, "at": at, "transaction": transaction}


def acked(value: str, offset: int, who: str = "w", at: str = "p-0") -> tuple[str, str, dict[str, Any]]:
    return who, "acked", {"value": value, "offset": offset, "at": at}


def ended(how: str, transaction: str) -> tuple[str, str, dict[str, Any]]:
    return "w", how, {"transaction": transaction}


def read(*records: tuple[int, str], who: str = "r", group: str | None = None) -> tuple[str, str, dict[str, Any]]:
    return who, "read", {"records": tuple(("p-0", *each) for each in records), "group": group}


def began(who: str = "r", **more: Any) -> tuple[str, str, dict[str, Any]]:
    return who, "began", {"at": "p-0", **more}


A_AND_B = (sent("a"), sent("b"), acked("a", 0), acked("b", 1))

GOOD: list[tuple[list[Event], Contents]] = [
    ([], {}),
    (events(*A_AND_B, read((0, "a")), read((1, "b"))), {"p-0": [(0, "a"), (1, "b")]}),
    # A retry whose first try is there, at an offset that nobody remembers.
    (events(sent("a"), sent("b"), acked("a", -1), acked("b", -1)), {"p-0": [(4, "a"), (5, "b")]}),
    # Sent and never answered: there or not.
    (events(sent("a"), sent("b")), {"p-0": [(0, "b")]}),
    (events(sent("a"), sent("b")), {"p-0": []}),
    # A reader that begins anew may read again.
    (events(*A_AND_B, read((0, "a"), (1, "b")), began(), read((0, "a"))), {"p-0": [(0, "a"), (1, "b")]}),
    # A gap between offsets without a record in it is a marker.
    (
        events(
            sent("a", transaction="1"), ended("committed", "1"), sent("b", transaction="2"), ended("committed", "2"),
            read((0, "a"), (2, "b")),
        ),
        {"p-0": [(0, "a"), (2, "b")]},
    ),
    # A transaction with an unknown end, whole or not there.
    (events(sent("a", transaction="1"), sent("b", transaction="1")), {"p-0": []}),
    (events(sent("a", transaction="1"), sent("b", transaction="1")), {"p-0": [(0, "a"), (1, "b")]}),
    (events(sent("a", transaction="1"), acked("a", 0), ended("aborted", "1")), {"p-0": []}),
    # An end that was asked for before the acknowledgement.
    (events(sent("a"), acked("a", 0), ("r", "end", {"at": "p-0", "offset": 0, "since": 0.5})), {"p-0": [(0, "a")]}),
    (
        events(
            *A_AND_B, began("m", group="g", offset=-1, since=3.5), read((0, "a"), who="m", group="g"),
            ("m", "saved", {"at": "p-0", "offset": 1, "group": "g"}),
            began("n", group="g", offset=1, since=6.5), read((1, "b"), who="n", group="g"),
        ),
        {"p-0": [(0, "a"), (1, "b")]},
    ),
]  # fmt: skip

BAD: list[tuple[str, list[Event], Contents]] = [
    ("lost write", events(*A_AND_B), {"p-0": [(0, "a")]}),
    ("lost write", events(*A_AND_B), {}),
    ("lost write", events(sent("a"), acked("a", -1)), {"p-0": []}),
    ("lost write", events(sent("a"), acked("a", 0)), {"p-0": [(3, "a")]}),
    (
        "lost write",
        events(sent("a", transaction="1"), acked("a", 0), ended("committed", "1")),
        {"p-0": []},
    ),
    ("duplicate", events(sent("a")), {"p-0": [(0, "a"), (1, "a")]}),
    ("invented record", events(sent("a", at="p-1")), {"p-0": [(0, "a")]}),
    ("reordered", events(sent("a"), sent("b")), {"p-0": [(0, "b"), (1, "a")]}),
    ("aborted read", events(sent("a", transaction="1"), ended("aborted", "1"), read((0, "a"))), {"p-0": []}),
    ("aborted read", events(sent("a", transaction="1"), ended("aborted", "1")), {"p-0": [(0, "a")]}),
    (
        "torn transaction",
        events(sent("a", transaction="1"), sent("b", transaction="1", at="p-1"), ended("committed", "1")),
        {"p-0": [(0, "a")]},
    ),
    (
        "torn transaction",
        events(sent("a", transaction="1"), sent("b", transaction="1"), ended("unsure", "1")),
        {"p-0": [(0, "a")]},
    ),
    ("non-monotonic poll", events(*A_AND_B, read((1, "b")), read((0, "a"))), {"p-0": [(0, "a"), (1, "b")]}),
    ("non-monotonic poll", events(*A_AND_B, read((0, "a")), read((0, "a"))), {"p-0": [(0, "a"), (1, "b")]}),
    (
        "non-monotonic poll",
        events(*A_AND_B, sent("c"), read((0, "a")), read((2, "c"))),
        {"p-0": [(0, "a"), (1, "b"), (2, "c")]},
    ),
    (
        "stale end",
        events(sent("a"), acked("a", 0), ("r", "end", {"at": "p-0", "offset": 0, "since": 1.5})),
        {"p-0": [(0, "a")]},
    ),
    (
        "stale end",
        events(
            ("r", "end", {"at": "p-0", "offset": 5, "since": 0.0}),
            ("q", "end", {"at": "p-0", "offset": 4, "since": 0.5}),
        ),
        {},
    ),
    (
        "lost group offset",
        events(("m", "saved", {"at": "p-0", "offset": 7, "group": "g"}), began("n", group="g", offset=5, since=0.5)),
        {},
    ),
    (
        "lost group offset",
        events(("m", "saved", {"at": "p-0", "offset": 7, "group": "g"}), began("n", group="g", offset=-1, since=0.5)),
        {},
    ),
    (
        "unread by a group",
        events(*A_AND_B, began("m", group="g", offset=-1, since=0.0), read((0, "a"), who="m", group="g")),
        {"p-0": [(0, "a"), (1, "b")]},
    ),
    ("inconsistent offsets", events(sent("a"), sent("b"), read((0, "a")), read((0, "b"), who="q")), {"p-0": []}),
    ("inconsistent offsets", events(sent("a"), sent("b"), read((0, "a"))), {"p-0": [(0, "b")]}),
    ("copied wrongly", [], {"plain-0": [(0, "a"), (1, "b")], "copies-0": [(0, "a copied by 1"), (1, "a copied by 2")]}),
    ("copied wrongly", [], {"plain-0": [(0, "a"), (1, "b")], "copies-0": [(0, "b copied by 1")]}),
    ("copied wrongly", [], {"plain-0": [(0, "a")], "copies-0": [(0, "a copied by 1"), (2, "a copied by 2")]}),
    ("failed write", events(sent("a"), ("w", "failed", {"at": "p-0", "value": "a", "error": "too late"})), {}),
]


@pytest.mark.parametrize(("history", "contents"), GOOD)
def test_good_histories(history: list[Event], contents: Contents) -> None:
    assert [] == check(history, contents)


@pytest.mark.parametrize(("promise", "history", "contents"), BAD)
def test_bad_histories(promise: str, history: list[Event], contents: Contents) -> None:
    assert promise in {each.promise for each in check(history, contents)}


def test_every_promise_has_a_bad_history() -> None:
    assert PROMISES.keys() == {promise for promise, _, _ in BAD}


def test_an_outage_is_the_longest_silence_of_a_partition_or_of_a_client() -> None:
    history = events(
        sent("a"), acked("a", 0), acked("x", 0, at="p-1"), sent("t", transaction="1"), acked("t", 5), acked("b", 1),
        acked("c", 2, who="v"), acked("d", 1, at="p-1"), acked("e", 3), acked("f", 2, at="p-1"),
    )  # fmt: skip
    assert Outage(cluster=5.0, clients=5.0) == outage(history, 1.5, 9.5)
    assert Outage(cluster=2.0, clients=3.0) == outage([each for each in history if each.at != "p-1"], 3.0, 9.0)
    assert Outage(cluster=4.0, clients=4.0) == outage([], 3.0, 7.0)
