"""`ottla queues dead-letters` against a real broker: lists, filters, redrives exactly once, purges."""

from collections.abc import Iterable
from pathlib import Path
from uuid import uuid4

import pytest

from ottla.client.producer.blocking_producer import Producer
from ottla.client.values import ConsumerRecord, Header
from ottla.model.dead_letters import DeadLetter, DeadLetterHeaders, Origin, story_headers
from tests.broker.cli.command_scenarios import Scenario
from tests.broker.cli.dead_letter_scenarios import SCENARIOS
from tests.topic_contents import read_committed
from tests.unit.cli.command_line import CommandLine

REDRIVE = ("queues", "dead-letters", "redrive")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario(scenario: Scenario, ottla: CommandLine, tmp_path: Path) -> None:
    scenario(ottla, tmp_path)


def story(topic: str, offset: int, reason: str, *, partition: int = 0, group: str = "billing") -> list[Header]:
    letter = DeadLetter(
        origin=Origin(topic=topic, partition=partition, offset=offset),
        reason=reason,
        exception="shop.Error",
        group=group,
        attempts=6,
    )
    return story_headers(letter, DeadLetterHeaders.SPRING if offset % 2 else DeadLetterHeaders.KIP1191)


@pytest.fixture
def topic(ottla: CommandLine) -> str:
    """A topic with two partitions, with an empty dead-letter topic."""
    name = f"t-{uuid4().hex[:8]}"
    ottla.ok("topics", "create", name, "-p", "2", "--config", "retention.ms=-1")
    ottla.ok("topics", "create", f"dlq.{name}", "-p", "1")
    return name


def die(ottla: CommandLine, topic: str, letters: Iterable[tuple[bytes, list[Header]]]) -> None:
    """Writes dead letters: the value, and the headers."""
    with Producer(bootstrap_servers=ottla.bootstrap) as producer:
        for value, headers in letters:
            producer.send(topic, value, b"k-" + value, headers, timestamp_ms=1_700_000_000_000)


def read(ottla: CommandLine, topic: str) -> list[ConsumerRecord]:
    """The committed records of a topic."""
    return read_committed(ottla.bootstrap, topic)


def test_letters_are_listed_filtered_and_shown(ottla: CommandLine, topic: str) -> None:
    dead = f"dlq.{topic}"
    die(ottla, dead, [(b"%d" % at, [("trace", b"%d" % at), *story(topic, at, f"reason {at}")]) for at in range(4)])
    die(ottla, dead, [(b"4", [])])

    def listed(*filters: str) -> list[int]:
        return [each["offset"] for each in ottla.ok("queues", "dead-letters", "list", dead, *filters, "--json").json]

    assert [0, 1, 2, 3, 4] == listed()
    assert [2] == listed("--reason", "REASON 2")
    assert [0, 1, 2, 3] == listed("--reason", "shop.error")
    assert [3] == listed("--key", "k-3")
    assert [1] == listed("--header", "trace=1")
    assert [0, 1, 2, 3] == listed("--group", "billing")
    assert [0, 1, 2, 3] == listed("--origin", topic)
    assert [0, 1] == listed("--limit", "2")
    assert [] == listed("--until", "2023-01-01T00:00Z")
    assert [0, 1, 2, 3, 4] == listed("--since", "2023-01-01T00:00Z")
    table = ottla.ok("queues", "dead-letters", "list", dead).out
    assert f"0:1     2023-11-14T22:13:20.000Z  {topic}/0/1  billing      6  reason 1  k-1" in table
    shown = ottla.ok("queues", "dead-letters", "show", dead, "0:1", "--json").json
    assert ({"topic": topic, "partition": 0, "offset": 1}, 6, "reason 1", "shop.Error", "k-1", "1") == tuple(
        shown[name] for name in ("origin", "tries", "reason", "exception", "key", "value")
    )
    assert "header trace=1" in ottla.ok("queues", "dead-letters", "show", dead, "0:1").out
    missing = ottla("queues", "dead-letters", "show", dead, "0:99")
    assert (1, f"ottla: dead-letter topic {dead} has no letter 0:99\n") == (missing.status, missing.err)
    topics = ottla.ok("queues", "dead-letters", "list", "--json").json
    assert {"topic": dead, "partitions": 1, "records": 5} in topics


def test_a_redrive_sends_each_letter_back_once_whatever_the_filters(ottla: CommandLine, topic: str) -> None:
    dead = f"dlq.{topic}"
    die(
        ottla,
        dead,
        [
            (b"%d" % at, [("trace", b"t"), *story(topic, at, "odd" if at % 2 else "even", partition=1)])
            for at in range(6)
        ],
    )
    dry = ottla.ok(*REDRIVE, dead, "--dry-run")
    assert f"6 letters would be sent to {topic}\n" == dry.out
    assert [] == read(ottla, topic)
    assert {topic: 3} == ottla.ok(*REDRIVE, dead, "--reason", "odd", "--yes", "--json").json["redriven"]
    assert [b"1", b"3", b"5"] == [each.value for each in read(ottla, topic)]
    again = ottla.ok(*REDRIVE, dead, "--yes", "--json").json
    assert ({topic: 3}, 3) == (again["redriven"], again["redriven_earlier"])
    back = read(ottla, topic)
    assert [b"1", b"3", b"5", b"0", b"2", b"4"] == [each.value for each in back]
    assert {(1, b"k-0", 1_700_000_000_000, (("trace", b"t"), ("ottla.redrive.count", b"1")))} == {
        (each.partition, each.key, each.timestamp, tuple(each.headers)) for each in back if each.value == b"0"
    }
    nothing = ottla.ok(*REDRIVE, dead, "--yes")
    assert ("", "no letters to redrive\n") == (nothing.out, nothing.err)
    die(ottla, dead, [(b"6", story(topic, 6, "later"))])
    assert {topic: 1} == ottla.ok(*REDRIVE, dead, "--yes", "--json").json["redriven"]


def test_letters_that_would_go_in_circles_stay(ottla: CommandLine, topic: str) -> None:
    dead = f"dlq.{topic}"
    often = [("ottla.redrive.count", b"3")]
    die(
        ottla,
        dead,
        [
            (b"a", [*often, *story(topic, 0, "")]),
            (b"b", story(dead, 0, "")),
            (b"c", []),
            (b"d", story("gone-" + topic, 0, "")),
            (b"e", story(topic, 0, "")),
        ],
    )
    refused = ottla(*REDRIVE, dead, "--to", dead, "--yes")
    assert (2, f"ottla: cannot redrive {dead} into itself; pass --to with another topic\n") == (
        refused.status,
        refused.err,
    )
    done = ottla.ok(*REDRIVE, dead, "--yes", "--json").json
    assert {topic: 1} == done["redriven"]
    assert {
        "redriven 3 times already; raise --max-redrives to try again": 1,
        "it came from this dead-letter topic itself; pass --to TOPIC": 1,
        "no origin in the headers; pass --to TOPIC": 1,
        f"topic gone-{topic} does not exist": 1,
    } == done["left"]
    ottla.ok(*REDRIVE, dead, "--max-redrives", "9", "--origin", topic, "--yes")
    assert [b"e", b"a"] == [each.value for each in read(ottla, topic)]
    assert b"4" == dict(read(ottla, topic)[1].headers)["ottla.redrive.count"]
    other = f"other-{topic}"
    ottla.ok("topics", "create", other)
    assert {other: 3} == ottla.ok(*REDRIVE, dead, "--to", other, "--yes", "--json").json["redriven"]


def test_letters_that_would_expire_or_were_never_committed_are_left(ottla: CommandLine, topic: str) -> None:
    dead = f"dlq.{topic}"
    ottla.ok("configs", "set", "--topic", topic, "ottla.ttl.ms=60000")
    undecided = "half message: no decision after 15 checks"
    die(ottla, dead, [(b"old", story(topic, 0, "timeout"))])
    die(ottla, dead, [(b"young", [("ottla.ttl-ms", b"9000000000000"), *story(topic, 1, "timeout")])])
    die(ottla, dead, [(b"half", [("ottla.ttl-ms", b"9000000000000"), *story(topic, 2, undecided)])])
    outcome = ottla.ok(*REDRIVE, dead, "--yes", "--json").json
    assert {topic: 1} == outcome["redriven"]
    assert [1, 1] == list(outcome["left"].values())
    words = " ".join(outcome["left"])
    assert "would expire" in words
    assert "never committed" in words
    assert [b"young"] == [record.value for record in read(ottla, topic)]
    assert {topic: 2} == ottla.ok(*REDRIVE, dead, "--force", "--yes", "--json").json["redriven"]
    assert [b"half", b"old", b"young"] == sorted(record.value or b"" for record in read(ottla, topic))


def test_only_dead_letter_topics_are_purged(ottla: CommandLine, topic: str) -> None:
    die(ottla, topic, [(b"precious", [])])
    refused = ottla("queues", "dead-letters", "purge", topic, "--all", "--yes")
    assert refused.status != 0
    assert "is not a dead-letter topic" in refused.err
    assert [b"precious"] == [record.value for record in read(ottla, topic)]


def test_letters_of_a_group_go_to_its_redelivery_topic(ottla: CommandLine, topic: str) -> None:
    dead, redelivery = f"dlq.{topic}", f"{topic}.billing.redelivery"
    ottla.ok("topics", "create", redelivery, "-p", "2")
    die(ottla, dead, [(b"a", story(topic, 0, "", partition=1)), (b"b", story(topic, 2, "", group="other"))])
    done = ottla.ok(*REDRIVE, dead, "--to-group", "--yes", "--json").json
    assert ({redelivery: 1}, {f"topic {topic}.other.redelivery does not exist": 1}) == (done["redriven"], done["left"])
    assert [(1, b"a")] == [(each.partition, each.value) for each in read(ottla, redelivery)]


def test_a_letter_that_the_topic_refuses_is_left_and_the_others_go(ottla: CommandLine, topic: str) -> None:
    dead = f"dlq.{topic}"
    ottla.ok("configs", "set", "--topic", topic, "max.message.bytes=1000")
    values = [b"a", b"b" * 5000, b"c"]
    die(ottla, dead, [(value, story(topic, at, "")) for at, value in enumerate(values)])
    done = ottla.ok(*REDRIVE, dead, "--yes", "--json").json
    assert {topic: 2} == done["redriven"]
    ((reason, count),) = done["left"].items()
    assert (1, True) == (count, "MESSAGE_TOO_LARGE" in reason)
    assert [b"a", b"c"] == [each.value for each in read(ottla, topic)]
    ottla.ok("configs", "set", "--topic", topic, "max.message.bytes=100000")
    ottla.ok(*REDRIVE, dead, "--yes")
    assert values == sorted(each.value for each in read(ottla, topic))


def test_a_rate_is_kept(ottla: CommandLine, topic: str) -> None:
    import time

    dead = f"dlq.{topic}"
    die(ottla, dead, [(b"%d" % at, story(topic, at, "")) for at in range(6)])
    start = time.monotonic()
    ottla.ok(*REDRIVE, dead, "--rate", "10", "--yes")
    assert time.monotonic() - start >= 0.5
    assert 6 == len(read(ottla, topic))


def test_purging_deletes_from_the_start(ottla: CommandLine, topic: str) -> None:
    dead = f"dlq.{topic}"
    purge = ("queues", "dead-letters", "purge", dead)
    die(ottla, dead, [(b"%d" % at, story(topic, at, "odd" if at > 2 else "low")) for at in range(6)])
    ottla.ok(*REDRIVE, dead, "--reason", "low", "--yes")
    dry = ottla.ok(*purge, "--redriven", "--dry-run", "--json").json
    assert [{"partition": 0, "start_offset": 0, "new_start_offset": 3, "offsets": 3}] == dry["partitions"]
    ottla.ok(*purge, "--redriven", "--yes")
    assert [b"3", b"4", b"5"] == [each.value for each in read(ottla, dead)]
    ottla.ok(*purge, "--until", "2023-01-01T00:00Z", "--yes")
    assert 3 == len(read(ottla, dead))
    ottla.ok(*purge, "--all", "--yes")
    assert [] == read(ottla, dead)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("list", "--reason", "x"), "filters need the name of a dead-letter topic"),
        (("list", "t", "--header", "x"), "'x' is not NAME=VALUE"),
        (("list", "t", "--since", "yesterday"), "'yesterday' is not a valid time"),
        (("show", "t", "1"), "'1' is not PARTITION:OFFSET"),
        (("redrive", "t", "--to", "a", "--to-group"), "pass either --to or --to-group"),
        (("redrive", "t"), "pass --yes"),
        (("purge", "t"), "pass one of --redriven, --until TIME and --all"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], words: str, ottla: CommandLine) -> None:
    done = ottla("queues", "dead-letters", *arguments)
    assert (2, True) == (done.status, words in done.err), done.err
