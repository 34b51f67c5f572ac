"""Where a letter is sent back to, why it is left, and what becomes of its headers."""

from typing import Any

import pytest

from ottla.client.values import Header
from ottla.model import dead_letters, queue_names
from ottla.model.dead_letters import DeadLetter, Origin
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import NO_DECISION, REDRIVE_COUNT, REPEATED_ID
from ottla.operations.dead_letters.letters import Letter, LetterFilter
from ottla.operations.dead_letters.redrive import (
    RedriveRules,
    redrive_count,
    redrive_group,
    redriven_headers,
    wanted_target,
)
from ottla.records.record import Record

DLQ = "dlq.orders"


def rules(**changes: Any) -> RedriveRules:
    return RedriveRules(**{"topic": DLQ, "chosen": LetterFilter(), **changes})


def letter(
    topic: str | None = "orders", *, group: str | None = None, reason: str = "broken", count: bytes | None = None
) -> Letter:
    """A letter from a topic; None for one whose headers do not say where it came from."""
    origin = None if topic is None else Origin(topic=topic, partition=0, offset=1)
    story = None if origin is None else DeadLetter(origin=origin, reason=reason, group=group)
    headers = () if count is None else ((REDRIVE_COUNT, count),)
    return Letter(partition=TopicPartition(DLQ, 0), record=Record(0, 0, None, None, headers), story=story)


@pytest.mark.parametrize(
    ("chosen", "changes", "target"),
    [
        (letter(), {}, "orders"),
        (letter(group="billing"), {}, "orders"),
        (letter(group="billing"), {"to_group": True}, "orders.billing.redelivery"),
        (letter(), {"to": "repaired"}, "repaired"),
        (letter(None), {"to": "repaired"}, "repaired"),
        (letter(), {"to": "repaired", "to_group": True}, "repaired"),
        (letter(count=b"2"), {}, "orders"),
        (letter(count=b"3"), {"redrives_max": 4}, "orders"),
        (letter(reason=NO_DECISION), {"is_forced": True}, "orders"),
        (letter(reason=NO_DECISION), {"to": "repaired"}, "repaired"),
    ],
)
def test_letters_that_are_sent(chosen: Letter, changes: dict[str, Any], target: str) -> None:
    assert (target, None) == wanted_target(chosen, rules(**changes))


HALF = "a half message that its producer never committed; pass --to TOPIC, or --force to deliver it"


@pytest.mark.parametrize(
    ("chosen", "changes", "reason"),
    [
        (letter(None), {}, "no origin in the headers; pass --to TOPIC"),
        (letter(), {"to_group": True}, "no group in the headers; omit --to-group, or pass --to TOPIC"),
        (letter(DLQ), {}, "it came from this dead-letter topic itself; pass --to TOPIC"),
        (letter(count=b"3"), {}, "redriven 3 times already; raise --max-redrives to try again"),
        (letter(count=b"3"), {"to": "repaired"}, "redriven 3 times already; raise --max-redrives to try again"),
        (letter(reason=f"{NO_DECISION} for an hour"), {}, HALF),
        (letter(reason=f"{REPEATED_ID} a"), {}, HALF),
    ],
)
def test_letters_that_are_left(chosen: Letter, changes: dict[str, Any], reason: str) -> None:
    assert (None, reason) == wanted_target(chosen, rules(**changes))


@pytest.mark.parametrize(
    ("headers", "count"),
    [
        ([], 0),
        ([(REDRIVE_COUNT, b"2"), (REDRIVE_COUNT, b"7")], 7),
        ([(REDRIVE_COUNT, b"2"), (REDRIVE_COUNT, None)], 2),
        ([(REDRIVE_COUNT, b"-1")], 0),
        ([(REDRIVE_COUNT, b"many")], 0),
        ([(REDRIVE_COUNT, b"")], 0),
        ([(REDRIVE_COUNT, b"9" * 9)], 999_999_999),
        ([(REDRIVE_COUNT, b"9" * 10)], 0),
    ],
)
def test_how_often_a_record_was_redriven(headers: list[Header], count: int) -> None:
    assert count == redrive_count(headers)


def test_a_record_keeps_its_own_headers_and_loses_the_story_of_its_death() -> None:
    own: list[Header] = [
        ("trace", b"t"),
        ("trace", None),
        (queue_names.RETRY_BEHIND, b"true"),
        (queue_names.TTL_MS, b"9"),
    ]
    story: list[Header] = [
        (dead_letters.TOPIC, b"orders"),
        (dead_letters.SPRING_TOPIC, b"orders"),
        (queue_names.DUE_MS, b"1"),
        (queue_names.RETRY_ATTEMPT, b"5"),
        (queue_names.RETRY_REASON, b"broken"),
    ]
    assert [*own, (REDRIVE_COUNT, b"1")] == redriven_headers([*own[:2], *story, *own[2:]])
    assert [*own, (REDRIVE_COUNT, b"3")] == redriven_headers([(REDRIVE_COUNT, b"2"), *story, *own])


def test_a_topic_is_not_redriven_into_itself() -> None:
    rules(to="orders").check()
    with pytest.raises(MisuseError, match=f"cannot redrive {DLQ} into itself; pass --to with another topic"):
        rules(to=DLQ).check()


def test_the_group_of_a_topic() -> None:
    assert "ottla-redrive-dlq.orders" == redrive_group(DLQ)
