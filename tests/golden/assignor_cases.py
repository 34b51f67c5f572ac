"""Cases for the assignors and what Java's make of them: `python -m tests.golden.assignor_cases` makes the file anew.

Groups live on for a few rounds: members come and go, topics grow, subscriptions change, some members missed a round and
claim what they had before. What each round's assignor said is what members claim in the next one. In some groups
brokers and members have racks.
"""

import gzip
import json
import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ottla.client.group.assignors.assignor import Assignor, MemberSubscription, RackAwareAssignor
from ottla.client.group.assignors.range_assignor import RangeAssignor
from ottla.client.group.assignors.roundrobin_assignor import RoundRobinAssignor
from ottla.client.group.assignors.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from ottla.client.group.classic_protocol import write_subscription
from ottla.model.ids import TopicPartition
from tests.compat.kafka_jars import KAFKA_VERSION, SHORT_LIVED_JVM, compile_java, java_command

CASES: Final = Path(__file__).with_name("assignors") / "cases.json.gz"
ASSIGNORS: Final = {
    kind().name: kind for kind in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
RACK_AWARE: Final = tuple(name for name, kind in ASSIGNORS.items() if isinstance(kind(), RackAwareAssignor))
GROUPS: Final = 60
RACK_GROUPS: Final = 100
"""Further groups of each assignor that minds racks."""
RACKS: Final = ("north", "south", "west", None)
"""Where brokers are; one does not say."""
MEMBER_RACKS: Final = ("north", "south", "west", "nowhere", None)
ROUNDS: Final = 4
JAVA_TIMEOUT_S: Final = 120


def load() -> list[dict[str, Any]]:
    """The cases: assignor, topics with their partition counts, members, and Java's answer."""
    cases: list[dict[str, Any]] = json.loads(gzip.decompress(CASES.read_bytes()))["cases"]
    return cases


def cases(seed: int) -> Iterator[dict[str, Any]]:
    """Groups of every assignor, with what members would send."""
    rng = random.Random(seed)
    for name in ASSIGNORS:
        for group in range(GROUPS):
            yield from _group_life(rng, name, group)
    for name in RACK_AWARE:
        for group in range(RACK_GROUPS):
            yield from _group_life(rng, name, group, racks=_RackLottery(rng))


class _RackLottery:
    """Says where members and replicas are, always the same of the same one."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        # Some groups are all in one rack, or in none; some topics have all racks everywhere.
        self._homes = rng.choice([MEMBER_RACKS, MEMBER_RACKS[:3], MEMBER_RACKS[:1]])
        self._replicas = rng.choice([1, 2, 3])
        self._members: dict[str, str | None] = {}
        self._topics: dict[str, list[list[str | None]]] = {}

    def member(self, member_id: str) -> str | None:
        """The member's rack."""
        return self._members.setdefault(member_id, self._rng.choice(self._homes))

    def topic(self, topic: str, count: int) -> list[list[str | None]]:
        """The racks of each partition's replicas."""
        known = self._topics.setdefault(topic, [])
        while len(known) < count:
            known.append(self._rng.sample(RACKS, self._replicas))
        return known[:count]


def _group_life(
    rng: random.Random, name: str, group: int, racks: _RackLottery | None = None
) -> Iterator[dict[str, Any]]:
    topics = {f"topic-{rng.randrange(1000)}": rng.randrange(1, 8) for _ in range(rng.randrange(1, 6))}
    if racks is not None and rng.random() < 0.5:
        # Topics of one size, whose like partitions belong together.
        topics = dict.fromkeys(topics, 4)
    is_even = group % 2 == 0
    members: dict[str, Assignor] = {}
    wanted: dict[str, tuple[str, ...]] = {}
    instances: dict[str, str] = {}
    had: dict[str, tuple[TopicPartition, ...]] = {}
    since: dict[str, int] = {}
    for generation in range(1, ROUNDS + 1):
        for _ in range(rng.randrange(1, 5) if generation == 1 else rng.randrange(3)):
            member_id = f"member-{rng.randrange(10_000)}-{rng.randbytes(4).hex()}"
            members[member_id] = ASSIGNORS[name]()
            wanted[member_id] = _wanted(rng, topics, is_even)
            if rng.random() < 0.25:
                instances[member_id] = f"instance-{rng.randrange(1000)}"
        if len(members) > 1 and rng.random() < 0.5:
            del members[rng.choice(sorted(members))]
        if rng.random() < 0.3:
            topics[rng.choice(sorted(topics))] += rng.randrange(1, 4)
        if rng.random() < 0.2:
            topics[f"topic-{rng.randrange(1000)}"] = rng.randrange(1, 5)
        if is_even:
            wanted = dict.fromkeys(wanted, tuple(sorted(topics)))
        elif rng.random() < 0.3:
            wanted[rng.choice(sorted(members))] = _wanted(rng, topics, is_even)
        subscriptions = {}
        for member_id, assignor in members.items():
            cooperative = assignor.is_cooperative
            subscription = MemberSubscription(
                topics=wanted[member_id],
                owned=tuple(sorted(had.get(member_id, ()))) if cooperative else (),
                generation=since.get(member_id) if cooperative else None,
                instance_id=instances.get(member_id),
                rack_id=None if racks is None else racks.member(member_id),
                user_data=assignor.user_data(wanted[member_id]),
            )
            subscriptions[member_id] = subscription
        placed = {} if racks is None else {topic: racks.topic(topic, count) for topic, count in topics.items()}
        case = {
            "assignor": name,
            "topics": dict(topics),
            **({"racks": placed} if placed else {}),
            "members": {
                member_id: {"instance": each.instance_id, "subscription": write_subscription(each).hex()}
                for member_id, each in subscriptions.items()
            },
        }
        yield case
        assigned = assign(case, _existing(topics, wanted, members), subscriptions)
        for member_id, assignor in members.items():
            # Some do not hear of what they were given, and claim what they had before.
            if rng.random() < 0.85:
                had[member_id], since[member_id] = tuple(assigned[member_id]), generation
                assignor.on_assignment(assigned[member_id], generation)


def _wanted(rng: random.Random, topics: dict[str, int], is_even: bool) -> tuple[str, ...]:
    count = len(topics) if is_even else rng.randrange(1, len(topics) + 1)
    return tuple(sorted(rng.sample(sorted(topics), count)))


def _existing(topics: dict[str, int], wanted: dict[str, tuple[str, ...]], members: Any) -> dict[str, int]:
    subscribed = {topic for member_id in members for topic in wanted[member_id]}
    return {topic: count for topic, count in topics.items() if topic in subscribed}


def assign(
    case: dict[str, Any], counts: dict[str, int], members: dict[str, MemberSubscription]
) -> dict[str, list[TopicPartition]]:
    """What our assignor makes of a case."""
    assignor = ASSIGNORS[case["assignor"]]()
    if "racks" not in case or not isinstance(assignor, RackAwareAssignor):
        return assignor.assign(counts, members)
    racks = {
        TopicPartition(topic, index): frozenset(filter(None, some))
        for topic, placed in case["racks"].items()
        for index, some in enumerate(placed)
    }
    return assignor.assign_near(counts, members, racks)


def subscribed_counts(case: dict[str, Any], members: dict[str, MemberSubscription]) -> dict[str, int]:
    """What an assignor is told: the topics that somebody wants."""
    wanted = {topic for member in members.values() for topic in member.topics}
    return {topic: count for topic, count in case["topics"].items() if topic in wanted}


def ask_java(asked: list[dict[str, Any]]) -> list[dict[str, list[str]]]:
    """What Kafka's own assignors answer, as `topic:partition` by member."""
    from ottla.client.group.classic_protocol import read_subscription

    lines = []
    for case in asked:
        known = {
            member_id: read_subscription(bytes.fromhex(each["subscription"]))
            for member_id, each in case["members"].items()
        }
        topics = " ".join(
            f"{topic}={';'.join(','.join(rack or '-' for rack in some) for some in _placed(case, topic))}"
            for topic in subscribed_counts(case, known)
        )
        members = " ".join(
            f"{member_id}={each['instance'] or '-'}={each['subscription']}"
            for member_id, each in case["members"].items()
        )
        lines.append(f"{case['assignor']}\t{topics}\t{members}\n")
    with tempfile.TemporaryDirectory(prefix="ottla-golden-java-") as folder:
        compile_java(Path(__file__).with_name("AssignorCases.java"), Path(folder))
        command = java_command("AssignorCases", jvm_options=SHORT_LIVED_JVM, extra_path=folder)
        done = subprocess.run(
            command, input="".join(lines), capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=True
        )
    answers = []
    for line in done.stdout.splitlines():
        pairs = (member.split("=") for member in line.split(" "))
        answers.append({member_id: sorted(filter(None, listed.split(","))) for member_id, listed in pairs})
    return answers


def _placed(case: dict[str, Any], topic: str) -> list[list[str | None]]:
    placed: list[list[str | None]] = case.get("racks", {}).get(topic) or [[None]] * case["topics"][topic]
    return placed


def main() -> None:
    """Asks Java about all cases and writes them down."""
    asked = list(cases(seed=7))
    found = [{**case, "assignment": answer} for case, answer in zip(asked, ask_java(asked), strict=True)]
    text = json.dumps({"kafka": KAFKA_VERSION, "cases": found})
    CASES.parent.mkdir(exist_ok=True)
    CASES.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(found)} cases in {CASES.stat().st_size} bytes")


if __name__ == "__main__":
    main()
