"""The form that all scripts share: blocks of commands, each with all that is to happen.

A script is a text of blocks with an empty line between them: commands, a line `----`, what happened. A line that begins
with `#` is a comment; a block without `----` is prose. What the commands mean is each script's own: `group_script.py`,
`consumer_group_script.py` and `transaction_script.py` have the tables. `test_scripts.py` plays them.
"""

from typing import Final, Protocol

RULE: Final = "----"
UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Script(Protocol):
    """One run of a script."""

    def run(self, line: str) -> list[str]:
        """Carries a command out, and says what happened."""


def played(text: str, script: Script) -> str:
    """The text with what happened in the place of what was expected."""
    blocks = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n")
        if RULE not in lines:
            blocks.append(block)
            continue
        commands = lines[: lines.index(RULE)]
        happened = [each for line in commands if not line.startswith("#") for each in script.run(line)]
        blocks.append("\n".join([*commands, RULE, *happened]))
    return "\n\n".join(blocks) + "\n"


def milliseconds(span: str) -> int:
    """`3s` and its like."""
    unit = span.lstrip("0123456789")
    return int(span[: len(span) - len(unit)]) * UNITS[unit]


def options(words: list[str]) -> dict[str, str]:
    """`instance=i old` as names with values; a word alone has an empty one."""
    return dict(word.partition("=")[::2] for word in words)
