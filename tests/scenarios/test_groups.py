"""Scripts of classic groups in `groups/`, with all that is to happen; `group_script.py` says how to read one.

`OTTLA_REWRITE=1` writes what happens now into the scripts: look at the difference before you keep it.
"""

import os
from pathlib import Path

import pytest

from tests.scenarios.group_script import GroupScript

SCRIPTS = sorted((Path(__file__).parent / "groups").glob("*.txt"))
RULE = "----"


def played(text: str) -> str:
    """The script with what happened in the place of what was expected."""
    script = GroupScript()
    blocks = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n")
        if RULE not in lines:
            # Prose between the blocks.
            blocks.append(block)
            continue
        commands = lines[: lines.index(RULE)]
        happened = [each for line in commands if not line.startswith("#") for each in script.run(line)]
        blocks.append("\n".join([*commands, RULE, *happened]))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    actual = played(text)
    if os.environ.get("OTTLA_REWRITE") == "1":
        path.write_text(actual, encoding="utf-8")
        return
    assert text == actual


def test_there_are_scripts() -> None:
    assert SCRIPTS != []
