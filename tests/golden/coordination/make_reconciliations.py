"""Makes `reconciliations.jsonl` anew: `python -m tests.golden.coordination.make_reconciliations`.

On each line a member of a server-side group, out of a random generator with a fixed seed, its target and what others
have; and the member after the step that Kafka 4.3.0 lets it take, or null where Kafka fences it. Needs Java and Maven
(see `tests/compat/prepare`).
"""

import json
import random
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.compat.kafka_jars import compile_java, kafka_tool

HERE: Final = Path(__file__).parent
MEMBERS: Final = 800
TOPICS: Final = ("1", "2")
PARTITIONS: Final = 3


def member(dice: random.Random) -> dict[str, Any]:
    """Any state, of two topics with three partitions each. Only one that is giving something up has something to."""
    state = dice.choice([0, 0, 0, 1, 1, 1, 2, 2, 127])
    epoch = dice.randint(3, 5)
    given: dict[str, Any] = {
        "state": state,
        "epoch": epoch,
        "previous": epoch - dice.randint(0, 1),
        "targetEpoch": epoch + dice.randint(0, 2),
        "changed": dice.random() < 0.4,
        "subscribed": [topic for topic in TOPICS if dice.random() < 0.8],
        "assigned": {},
        "revoking": {},
        "others": {},
        "target": {},
        "owned": None if dice.random() < 0.3 else {},
    }
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            holder = dice.choice(["assigned", "assigned", "revoking" if state == 1 else "assigned", "others", "nobody"])
            if holder == "others":
                given["others"].setdefault(topic, []).append(partition)
            elif holder != "nobody":
                given[holder].setdefault(topic, {})[str(partition)] = dice.randint(1, epoch)
            if dice.random() < 0.5:
                given["target"].setdefault(topic, []).append(partition)
            if given["owned"] is not None and dice.random() < 0.3:
                given["owned"].setdefault(topic, []).append(partition)
    return given


def main() -> None:
    """Compiles the program, runs it over all members, and keeps what it printed."""
    dice = random.Random(848)
    members = [json.dumps(member(dice)) for _ in range(MEMBERS)]
    with tempfile.TemporaryDirectory(prefix="ottla-golden-") as folder:
        asked = Path(folder) / "members"
        asked.write_text("\n".join(members) + "\n", encoding="utf-8")
        compile_java(HERE / "Reconciliations.java", Path(folder))
        done = kafka_tool("Reconciliations", str(asked), extra_path=folder)
    (HERE / "reconciliations.jsonl").write_text(done.stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
