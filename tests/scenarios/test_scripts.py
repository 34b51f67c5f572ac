"""Plays every script of `groups/`, `consumer_groups/` and `transactions/`, which say what is to happen in full.

They are meant to be read: whoever is new to a protocol finds its life there. `OTTLA_REWRITE=1` writes what happens now
into the scripts: look at the difference before you keep it.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenarios.consumer_group_script import ConsumerGroupScript
from tests.scenarios.group_script import GroupScript
from tests.scenarios.script_blocks import Script, played
from tests.scenarios.transaction_script import TransactionScript

KINDS: dict[str, Callable[[], Script]] = {
    "groups": GroupScript,
    "consumer_groups": ConsumerGroupScript,
    "transactions": TransactionScript,
}
SCRIPTS = sorted(path for kind in KINDS for path in (Path(__file__).parent / kind).glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_script(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    actual = played(text, KINDS[path.parent.name]())
    if os.environ.get("OTTLA_REWRITE") == "1":
        path.write_text(actual, encoding="utf-8")
        return
    assert text == actual


def test_there_are_scripts_of_every_kind() -> None:
    assert {path.parent.name for path in SCRIPTS} == set(KINDS)
