"""What `ottla groups` must do, whoever's broker it talks to, with groups that librdkafka's consumers are in."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.broker.cli.command_scenarios import Scenario
from tests.unit.cli.command_line import CommandLine
from tests.waiting import wait_until

FIRST_MS: Final = 1_000_000_000_000
"""The timestamp of each partition's first record, 2001-09-09T01:46:40Z; a second lies between two."""
PARTITIONS: Final = 3
RECORDS: Final = 10
"""In each partition."""


def create_topic(ottla: CommandLine, topic: str, *more: str) -> None:
    """Returns once the broker knows the topic; Kafka's says that it is created a moment before."""
    ottla.ok("topics", "create", topic, *more)
    wait_until(lambda: ottla("topics", "describe", topic).status == 0, f"{topic} is known")


def make_topic(ottla: CommandLine, topic: str) -> None:
    """Three partitions of ten records with old timestamps, which are kept nevertheless."""
    create_topic(ottla, topic, "-p", str(PARTITIONS), "--config", "retention.ms=-1")
    producer = Producer({"bootstrap.servers": ottla.bootstrap})
    for number in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(topic, b"%d" % number, partition=partition, timestamp=FIRST_MS + number * 1000)
    assert 0 == producer.flush(30)


@contextmanager
def consuming(ottla: CommandLine, group: str, topic: str, protocol: str) -> Iterator[Consumer]:
    """A member that has all partitions of a topic, and has committed 4 in the first and 10 in the second."""
    consumer = Consumer(
        {
            "bootstrap.servers": ottla.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": f"client-of-{group}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.05) is not None, f"{group} reads {topic}")
        assert PARTITIONS == len(consumer.assignment())
        places = [TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 10)]
        consumer.commit(offsets=places, asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def described(ottla: CommandLine, group: str, *more: str) -> Any:
    return ottla.ok("groups", "describe", group, "--json", *more).json


def committed(ottla: CommandLine, group: str) -> dict[int, int]:
    """What the group has committed, by partition."""
    offsets = described(ottla, group, "--offsets")["offsets"]
    return {each["partition"]: each["committed_offset"] for each in offsets if each["committed_offset"] is not None}


def listed(ottla: CommandLine, *more: str) -> dict[str, tuple[str, str]]:
    found = ottla.ok("groups", "list", "--json", *more).json
    return {each["group"]: (each["state"], each["type"]) for each in found}


def a_classic_group_in_use(ottla: CommandLine, tmp_path: Path) -> None:
    _group_in_use(ottla, "classic")


def a_server_side_group_in_use(ottla: CommandLine, tmp_path: Path) -> None:
    _group_in_use(ottla, "consumer")


def _group_in_use(ottla: CommandLine, protocol: str) -> None:
    group = topic = f"s-used-{protocol}"
    make_topic(ottla, topic)
    with consuming(ottla, group, topic, protocol) as consumer:
        assert ("Stable", protocol) == listed(ottla)[group]
        assert group in listed(ottla, "--state", "stable,empty", "--type", protocol)
        assert group not in listed(ottla, "--state", "Empty")
        other = "consumer" if protocol == "classic" else "classic"
        assert group not in listed(ottla, "--type", other)
        assert group in ottla.ok("groups", "list").out

        found = described(ottla, group)
        assert (group, "Stable", protocol, 1) == tuple(found[key] for key in ("group", "state", "type", "member_count"))
        (member,) = found["members"]
        assert {topic: [0, 1, 2]} == member["assignment"]
        assert ([topic], f"client-of-{group}") == (member["subscription"], member["client_id"])
        assert consumer.memberid() == member["member_id"]
        assert "127.0.0.1" in member["host"]
        if protocol == "consumer":
            assert member["assignment"] == member["target_assignment"]
            assert found["group_epoch"] == member["member_epoch"]
        assert [(0, 4, 10, 6), (1, 10, 10, 0), (2, None, 10, None)] == [
            tuple(each[key] for key in ("partition", "committed_offset", "end_offset", "lag"))
            for each in found["offsets"]
        ]
        assert {member["member_id"]} == {each["member_id"] for each in found["offsets"]}
        assert 6 == found["lag"]
        assert found in ottla.ok("groups", "describe", "--all", "--json").json
        _look_at_views(ottla, group, topic, member["member_id"])

        for arguments, words in (
            (("reset-offsets", group, "--topic", topic, "--to-earliest", "--execute"), "is in use (Stable, 1 member)"),
            (("delete", group, "--yes"), "NON_EMPTY_GROUP"),
            (("delete-offsets", group, "--topic", f"{topic}:0", "--yes"), "GROUP_SUBSCRIBED_TO_TOPIC"),
        ):
            refused = ottla("groups", *arguments)
            assert (1, True) == (refused.status, words in refused.err), refused
            assert "stop " in refused.err, "what to do next"
        assert {0: 4, 1: 10} == committed(ottla, group)
    wait_until(lambda: described(ottla, group, "--state")["state"] == "Empty", "the member has left")
    ottla.ok("groups", "delete", group, "--yes")
    assert group not in listed(ottla)
    ottla.ok("topics", "delete", topic, "--yes")


def _look_at_views(ottla: CommandLine, group: str, topic: str, member: str) -> None:
    offsets = ottla.ok("groups", "describe", group).out
    assert ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "HOST", "CLIENT"] in map(
        str.split, offsets.splitlines()
    )
    assert [topic, "0", "4", "10", "6", member] in [line.split()[:6] for line in offsets.splitlines()]
    assert [topic, "2", "-", "10", "-", member] in [line.split()[:6] for line in offsets.splitlines()]
    members = ottla.ok("groups", "describe", group, "--members").out
    assert (True, False) == (f"{topic}:0,1,2" in members, "COMMITTED" in members)
    state = ottla.ok("groups", "describe", group, "--state").out
    assert (True, False, False) == ("Stable" in state, member in state, "COMMITTED" in state)
    assert {"members", "offsets"} & described(ottla, group, "--state").keys() == set()


def resets(ottla: CommandLine, tmp_path: Path) -> None:
    group = topic = "s-resets"
    make_topic(ottla, topic)
    made = ottla.ok("groups", "reset-offsets", group, "--topic", f"{topic}:0,1", "--to-offset", "4", "--execute")
    assert "group s-resets did not exist" in made.err
    assert {0: 4, 1: 4} == committed(ottla, group)

    dry = ottla.ok("groups", "reset-offsets", group, "--topic", topic, "--to-latest")
    assert "nothing was changed; pass --execute" in dry.err
    assert {0: 4, 1: 4} == committed(ottla, group)

    cases: Sequence[tuple[tuple[str, ...], list[int], bool]] = (
        (("--to-earliest",), [0, 0, 0], False),
        (("--to-offset", "7"), [7, 7, 7], False),
        (("--shift-by", "2"), [9, 9, 9], False),
        (("--shift-by", "-20"), [0, 0, 0], True),
        (("--to-offset", "99"), [10, 10, 10], True),
        (("--to-datetime", "2001-09-09T01:46:45.000"), [5, 5, 5], False),
        (("--to-datetime", "2001-09-09T03:46:44+02:00"), [4, 4, 4], False),
        (("--by-duration", "PT1H"), [10, 10, 10], True),
        (("--by-duration", "2000w"), [0, 0, 0], False),
        (("--to-latest",), [10, 10, 10], False),
        (("--to-current",), [10, 10, 10], False),
    )
    before: list[int | None] = [4, 4, None]
    for arguments, expected, is_noted in cases:
        asked = ("groups", "reset-offsets", group, "--topic", topic, *arguments, "--json")
        for execute in ((), ("--execute",)):
            found = ottla.ok(*asked, *execute).json
            assert (group, bool(execute)) == (found["group"], found["executed"])
            places = [(each["current_offset"], each["new_offset"]) for each in found["partitions"]]
            assert list(zip(before, expected, strict=True)) == places, arguments
            assert [is_noted] * 3 == [each["note"] is not None for each in found["partitions"]], arguments
        before = list(expected)
        assert dict(enumerate(expected)) == committed(ottla, group), arguments
    ottla.ok("groups", "delete", group, "--yes")
    ottla.ok("topics", "delete", topic, "--yes")


def resets_by_file(ottla: CommandLine, tmp_path: Path) -> None:
    group = topic = "s-reset-file"
    make_topic(ottla, topic)
    file = tmp_path / "offsets.csv"
    file.write_text(f"{topic},0,3\n\n{topic},2,8\n")
    reset = ("groups", "reset-offsets", group)
    ottla.ok(*reset, "--from-file", str(file), "--execute")
    assert {0: 3, 2: 8} == committed(ottla, group)
    ottla.ok(*reset, "--from-file", "-", "--execute", stdin=f"other,{topic},0,9\n{group},{topic},1,6\n".encode())
    assert {0: 3, 1: 6, 2: 8} == committed(ottla, group)
    exported = ottla.ok(*reset, "--all-topics", "--to-current", "--export").out
    assert f"{topic},0,3\n{topic},1,6\n{topic},2,8\n" == exported
    ottla.ok(*reset, "--all-topics", "--to-latest", "--execute")
    assert {0: 10, 1: 10, 2: 10} == committed(ottla, group)
    ottla.ok(*reset, "--from-file", "-", "--execute", stdin=exported.encode())
    assert {0: 3, 1: 6, 2: 8} == committed(ottla, group)
    ottla.ok("groups", "reset-offsets", f"{group}-copy", "--from-group", group, "--execute")
    assert {0: 3, 1: 6, 2: 8} == committed(ottla, f"{group}-copy")
    ottla.ok("groups", "delete", f"{group}-copy", "--yes")
    missing = ottla(*reset, "--from-group", "s-no-such-group")
    assert (1, True) == (missing.status, "s-no-such-group" in missing.err)

    assert f"{group}: deleted the offsets of 1 partition\n" == (
        ottla.ok("groups", "delete-offsets", group, "--topic", f"{topic}:1", "--yes").out
    )
    assert {0: 3, 2: 8} == committed(ottla, group)
    shifted = ottla(*reset, "--topic", topic, "--shift-by", "1")
    assert (1, True) == (shifted.status, f"{topic}-1: no committed offset to shift" in shifted.err)
    idle = ottla.ok("groups", "describe", group)
    assert "has no active members" in idle.err
    assert [topic, "0", "3", "10", "7", "-", "-", "-"] in map(str.split, idle.out.splitlines())
    ottla.ok("groups", "delete", group, "--yes")
    ottla.ok("topics", "delete", topic, "--yes")


def groups_that_are_not_there(ottla: CommandLine, tmp_path: Path) -> None:
    for arguments in (("describe", "s-none"), ("delete", "s-none", "--yes")):
        refused = ottla("groups", *arguments)
        assert 1 == refused.status
        assert "GROUP_ID_NOT_FOUND" in refused.err
        assert "`ottla groups list` shows all" in refused.err
    assert "s-none: does not exist\n" == ottla.ok("groups", "delete", "s-none", "--yes", "--if-exists").out
    empty = ottla("groups", "reset-offsets", "s-none", "--all-topics", "--to-latest")
    assert (1, True) == (empty.status, "has no committed offsets; pass --topic" in empty.err)
    create_topic(ottla, "s-none")
    missing = ottla("groups", "reset-offsets", "s-none", "--topic", "s-nowhere", "--to-latest")
    assert (1, True) == (missing.status, "`ottla topics list` shows all topics" in missing.err)
    beyond = ottla("groups", "reset-offsets", "s-none", "--topic", "s-none:0,7", "--to-latest")
    assert (1, True) == (beyond.status, "has no partition 7" in beyond.err)
    forgotten = ottla("groups", "delete-offsets", "s-none", "--topic", "s-none", "--yes")
    assert (1, True) == (forgotten.status, "GROUP_ID_NOT_FOUND" in forgotten.err)
    ottla.ok("topics", "delete", "s-none", "--yes")


SCENARIOS: Final[list[Scenario]] = [
    a_classic_group_in_use,
    a_server_side_group_in_use,
    resets,
    resets_by_file,
    groups_that_are_not_there,
]

WRONG_USAGE: Final = (
    ("groups", "list", "--state", "asleep"),
    ("groups", "list", "--type", "book"),
    ("groups", "describe"),
    ("groups", "describe", "g", "--all"),
    ("groups", "reset-offsets", "g", "--to-latest"),
    ("groups", "reset-offsets", "g", "--topic", "t"),
    ("groups", "reset-offsets", "g", "--topic", "t", "--to-latest", "--to-earliest"),
    ("groups", "reset-offsets", "g", "--topic", "t", "--all-topics", "--to-latest"),
    ("groups", "reset-offsets", "g", "--topic", "t:x", "--to-latest"),
    ("groups", "reset-offsets", "g", "--topic", "t", "--to-offset", "-1"),
    ("groups", "reset-offsets", "g", "--topic", "t", "--to-datetime", "yesterday"),
    ("groups", "reset-offsets", "g", "--topic", "t", "--by-duration", "P"),
    ("groups", "reset-offsets", "g", "--topic", "t", "--to-latest", "--execute", "--dry-run"),
    ("groups", "reset-offsets", "g", "--from-file", "-"),
    ("groups", "reset-offsets", "g", "--from-group", "h", "--all-topics"),
    ("groups", "delete", "g"),
    ("groups", "delete-offsets", "g", "--yes"),
    ("groups", "delete-offsets", "g", "--topic", "t"),
)
"""Command lines that end with 2 before any broker is asked."""
