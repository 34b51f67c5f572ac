"""The step that a member of a server-side group takes towards its target, as Kafka's takes it.

Eight hundred members, their targets, and what became of them in Kafka are in `tests/golden/coordination`.
"""

import json
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from ottla.coordination.groups.consumer.group import Member, held
from ottla.coordination.groups.consumer.member_reconciliation import Goal, reconcile
from ottla.coordination.groups.consumer.records import Holdings, MemberState

GOLDEN: Final = Path(__file__).parents[2] / "golden" / "coordination" / "reconciliations.jsonl"
STATES: Final = {state.value: state for state in MemberState}


def topic(number: str) -> UUID:
    return UUID(int=int(number))


def assignment(written: dict[str, list[int]]) -> dict[UUID, tuple[int, ...]]:
    return {topic(number): tuple(partitions) for number, partitions in written.items()}


def holdings(written: dict[str, dict[str, int]]) -> Holdings:
    return {
        topic(number): {int(partition): since for partition, since in epochs.items()}
        for number, epochs in written.items()
    }


def member(written: dict[str, Any]) -> Member:
    return Member(
        member_id="m",
        state=STATES[written["state"]],
        member_epoch=written["epoch"],
        previous_member_epoch=written["previous"],
        assigned=holdings(written["assigned"]),
        revoking=holdings(written["revoking"]),
    )


def golden(state: MemberState) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["state"] == state]


@pytest.mark.parametrize("state", MemberState)
def test_every_step_is_kafkas(state: MemberState) -> None:
    found = golden(state)
    assert found
    for given in found:
        before = member(given)
        owners = dict.fromkeys(held(before), "m")
        owners |= {(topic(t), p): "other" for t, partitions in given["others"].items() for p in partitions}
        goal = Goal(
            target_epoch=given["targetEpoch"],
            target=assignment(given["target"]),
            subscribed_ids={topic(number) for number in given["subscribed"]},
            subscription_changed=given["changed"],
            owners=owners,
        )
        owned = None if given["owned"] is None else assignment(given["owned"])
        expected = None if given["next"] is None else member(given["next"])
        assert expected == reconcile(before, goal, owned), given
