"""Makes `target_assignments.jsonl` anew: `python -m tests.golden.coordination.make_target_assignments`.

On each line a group out of a random generator with a fixed seed, half of them with equal subscriptions, and the targets
that the range and the uniform assignor of Kafka 4.3.0 give it. Needs Java and Maven (see `tests/compat/prepare`).
"""

import json
import random
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.compat.kafka_jars import compile_java, kafka_tool

HERE: Final = Path(__file__).parent
GROUPS: Final = 300


def group(dice: random.Random, *, alike: bool) -> dict[str, Any]:
    """Up to eight members and five topics; what a member had, it was subscribed to."""
    counts = {str(number): dice.randint(1, 12) for number in range(1, dice.randint(1, 5) + 1)}
    members: dict[str, Any] = {}
    for index in range(dice.randint(1, 8)):
        topics = list(counts) if alike else sorted(dice.sample(list(counts), dice.randint(0, len(counts))))
        instance = f"i{9 - index}" if dice.random() < 0.3 else None
        members[f"m{index}"] = {"instance": instance, "topics": topics, "last": {}}
    for topic, count in counts.items():
        subscribers = [member for member in members.values() if topic in member["topics"]]
        for partition in range(count):
            owner = dice.choice([None, *subscribers])
            if owner is not None:
                owner["last"].setdefault(topic, []).append(partition)
    return {"counts": counts, "members": members}


def main() -> None:
    """Compiles the program, runs it over all groups, and keeps what it printed."""
    dice = random.Random(848)
    groups = [json.dumps(group(dice, alike=index % 2 == 0)) for index in range(GROUPS)]
    with tempfile.TemporaryDirectory(prefix="ottla-golden-") as folder:
        asked = Path(folder) / "groups"
        asked.write_text("\n".join(groups) + "\n", encoding="utf-8")
        compile_java(HERE / "TargetAssignments.java", Path(folder))
        done = kafka_tool("TargetAssignments", str(asked), extra_path=folder)
    (HERE / "target_assignments.jsonl").write_text(done.stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
