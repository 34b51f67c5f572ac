"""`ottla queues` against a real broker, and command lines that it refuses."""

import time

import pytest

from ottla.operations.queues import parked
from tests.unit.cli.command_line import CommandLine
from tests.waiting import wait_until

HOUR_MS = 3_600_000


def park(
    ottla: CommandLine, topic: str, *records: str, header: str = f"ottla.delay-ms={HOUR_MS}", id: str = ""
) -> None:
    """Parks records for an hour, in partition 0."""
    headers = f"{header},ottla.delay.id={id}" if id else header
    ottla.ok("produce", topic, "--partition", "0", "--headers", headers, stdin="\n".join(records).encode() + b"\n")


def wait_delivered(ottla: CommandLine, topic: str, count: int) -> list[str]:
    """The values of a topic's records once there are so many."""
    values: list[str] = []

    def are_all() -> bool:
        values[:] = ottla.ok("consume", topic).out.splitlines()
        return len(values) >= count

    wait_until(are_all, lambda: f"{count} values: {values}")
    return values


class TestCreate:
    def test_a_topic_with_its_companions(self, ottla: CommandLine) -> None:
        done = ottla.ok("queues", "create", "made", "--delay", "--half", "--partitions", "3", "--json").json
        assert {
            "topic": "made",
            "queues": ["delay", "half"],
            "dead_letters": "dlq.made",
            "companions": {
                "dlq.made": "dead-letters",
                "made.delayed": "delayed",
                "made.half": "half",
                "made.half-checks": "half-checks",
            },
            "configs": {"ottla.delay.enable": "true", "ottla.half.enable": "true"},
            "created": True,
        } == done
        assert 3 == len(ottla.ok("topics", "describe", "made.delayed", "--json").json["partitions"])

    def test_an_existing_topic_is_configured(self, ottla: CommandLine) -> None:
        ottla.ok("topics", "create", "before", "--partitions", "2")
        arguments = ["--retry", "--group", "g", "--set", "ottla.retry.max.attempts=7"]
        for _ in range(2):
            done = ottla.ok("queues", "create", "before", *arguments, "--json").json
            assert (False, ["retry"], {"before.g.retry", "before.g.redelivery", "dlq.before"}) == (
                done["created"],
                done["queues"],
                {*done["companions"]},
            )
        assert {"ottla.retry.enable": "true", "ottla.retry.max.attempts": "7"} == done["configs"]
        done = ottla.ok("queues", "create", "before", "--ttl", "15m", "--dead-letters", "graves")
        assert [
            "configured topic before with queues: retry, ttl",
            "retry         produce to before.GROUP.retry; the group also reads before.GROUP.redelivery",
            "ttl           records expire by header ottla.ttl-ms, others after 15 m",
            "dead letters  graves",
        ] == done.out.splitlines()

    def test_a_group_that_cannot_have_topics_is_refused_before_anything_is_created(self, ottla: CommandLine) -> None:
        done = ottla("queues", "create", "grouped", "--retry", "--group", "bad group")
        assert "group 'bad group' cannot have retry topics" in done.err
        names = [each["name"] for each in ottla.ok("topics", "list", "--json").json]
        assert not [name for name in names if "grouped" in name]

    def test_a_dry_run_changes_nothing(self, ottla: CommandLine) -> None:
        assert "can be created" in ottla.ok("queues", "create", "dry", "--delay", "--dry-run").out
        assert 1 == ottla("topics", "describe", "dry").status

    def test_refusals(self, ottla: CommandLine) -> None:
        ottla.ok("topics", "create", "taken.delayed")
        done = ottla("queues", "create", "taken", "--delay")
        assert 1 == done.status
        assert "another topic has that name" in done.err
        ottla.ok("topics", "create", "there")
        assert 2 == ottla("queues", "create", "there", "--delay", "--partitions", "3").status
        assert 2 == ottla("queues", "create", "nothing").status
        assert 2 == ottla("queues", "create", "nothing", "--ttl", "soon").status


def test_list(ottla: CommandLine) -> None:
    ottla.ok("queues", "create", "listed", "--delay", "--ttl", "0")
    (found,) = [each for each in ottla.ok("queues", "list", "--json").json if each["topic"] == "listed"]
    assert (["delay", "ttl"], ["dlq.listed", "listed.delayed"]) == (found["queues"], sorted(found["companions"]))
    ottla.ok("configs", "set", "--topic", "listed", "ottla.delay.enable=false", "ottla.ttl.enable=false")
    (line,) = [each for each in ottla.ok("queues", "list").out.splitlines() if each.startswith("listed ")]
    assert ["listed", "disabled", "-", "dlq.listed,", "listed.delayed"] == line.split()


class TestParked:
    def test_described_and_peeked(self, ottla: CommandLine) -> None:
        ottla.ok("queues", "create", "parked", "--delay", "--partitions", "2")
        park(ottla, "parked.delayed", "later", "later still")
        park(ottla, "parked.delayed", "soon", header="ottla.delay-ms=600000", id="first")
        before = time.time_ns() // 1_000_000
        (found,) = ottla.ok("queues", "describe", "parked", "--json").json
        assert ("parked.delayed", "parked", "delayed", 3, 0, 0) == tuple(
            found[name] for name in ("queue", "topic", "kind", "parked", "due", "late_ms")
        )
        assert 0 < found["next_due_ms"] - before <= 600_000
        assert [("within 10 m", 1), ("within 1 h", 2)] == [
            (each["due"], each["records"]) for each in found["histogram"] if each["records"]
        ]
        assert [3, 0] == [each["parked"] for each in found["partitions"]]
        text = ottla.ok("queues", "describe", "parked.delayed").out
        assert "parked    3 records" in text
        assert f"within 1 h         2  {'#' * 40}" in text

        peeked = ottla.ok("queues", "peek", "parked", "--json").json
        assert ["soon", "later", "later still"] == [each["value"] for each in peeked]
        assert ["ottla.delay-ms", "ottla.delay.id", "ottla.due-ms"] == [name for name, _ in peeked[0]["headers"]]
        done = ottla.ok("queues", "peek", "parked", "--limit", "1")
        assert ["parked.delayed", f"0:{peeked[0]['offset']}"] == done.out.splitlines()[1].split()[:2]
        assert "3 records in all" in done.err
        assert [] == ottla.ok("queues", "peek", "parked", "--partition", "1", "--json").json

    def test_the_first_of_many(self, ottla: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(parked, "SORTED_AT_ONCE", 10)
        ottla.ok("queues", "create", "many", "--delay", "--partitions", "2")
        at_ms = time.time_ns() // 1_000_000 + HOUR_MS
        for partition, id in (("0", ""), ("1", ",ottla.delay.id=same")):
            for late_ms in (0, 2, 1):
                # Records of both partitions are due at the same time, at the same offsets.
                headers = f"ottla.deliver-at-ms={at_ms + late_ms}{id}"
                values = "".join(f"{late_ms}-{number}\n" for number in range(20)).encode()
                ottla.ok("produce", "many.delayed", "--partition", partition, "--headers", headers, stdin=values)
        expected = [(0, f"0-{number}") for number in range(20)] + [(1, f"0-{number}") for number in range(5)]
        done = ottla.ok("queues", "peek", "many", "--limit", "25", "--json").json
        assert expected == [(each["partition"], each["value"]) for each in done]
        assert "120 records in all" in ottla.ok("queues", "peek", "many", "--limit", "3").err
        (found,) = ottla.ok("queues", "describe", "many", "--json").json
        assert (120, at_ms, [60, 60]) == (
            found["parked"],
            found["next_due_ms"],
            [each["parked"] for each in found["partitions"]],
        )
        written = min(each["timestamp_ms"] for each in ottla.ok("queues", "peek", "many", "-n", "999", "--json").json)
        assert written == found["oldest_ms"]

    def test_cancelled_by_id_and_by_place(self, ottla: CommandLine) -> None:
        ottla.ok("queues", "create", "cancelled", "--delay")
        for id in ("a", "b", ""):
            park(ottla, "cancelled.delayed", f"record {id}", id=id)
        done = ottla.ok("queues", "cancel", "cancelled", "a", "--yes")
        assert "cancelled: 1 parked record of cancelled with id a" in done.out
        offsets = {each["value"]: each["offset"] for each in ottla.ok("queues", "peek", "cancelled", "--json").json}
        assert {"record b", "record "} == {*offsets}
        place = f"0:{offsets['record b']}"
        done = ottla.ok("queues", "cancel", "cancelled", "--at", place, "--yes", "--json")
        records = [{"partition": 0, "offset": offsets["record b"]}]
        assert {"topic": "cancelled", "id": "b", "records": records} == done.json
        assert ["record "] == [each["value"] for each in ottla.ok("queues", "peek", "cancelled", "--json").json]
        done = ottla.ok("queues", "cancel", "cancelled", "--at", f"0:{offsets['record ']}", "--yes")
        assert "cancelled: 1 parked record of cancelled\n" == done.out
        assert [] == ottla.ok("queues", "peek", "cancelled", "--json").json
        for choice, words in (
            (["a"], "no parked record with id a"),
            (["--at", place], f"no parked record at {place}"),
        ):
            done = ottla("queues", "cancel", "cancelled", *choice, "--yes")
            assert 0 != done.status
            assert words in done.err

    def test_delivered_now(self, ottla: CommandLine) -> None:
        ottla.ok("queues", "create", "hurried", "--delay")
        park(ottla, "hurried.delayed", "one", "two", id="a")
        park(ottla, "hurried.delayed", "other", id="b")
        ottla.ok("queues", "deliver-now", "hurried", "a", "--yes")
        assert ["one", "two"] == wait_delivered(ottla, "hurried", 2)
        assert ["other"] == [each["value"] for each in ottla.ok("queues", "peek", "hurried", "--json").json]
        park(ottla, "hurried.delayed", "nameless")
        offset = ottla.ok("queues", "peek", "hurried", "--json").json[-1]["offset"]
        ottla.ok("queues", "deliver-now", "hurried", "--at", f"0:{offset}", "--yes")
        assert ["one", "two", "nameless"] == wait_delivered(ottla, "hurried", 3)

    def test_rescheduled(self, ottla: CommandLine) -> None:
        ottla.ok("queues", "create", "moved", "--delay")
        park(ottla, "moved.delayed", "one", id="a")
        (before,) = ottla.ok("queues", "peek", "moved", "--json").json
        place = f"0:{before['offset']}"
        done = ottla.ok("queues", "reschedule", "moved", "--at", place, "--due", "30d", "--yes", "--json").json
        (after,) = ottla.ok("queues", "peek", "moved", "--json").json
        assert ("one", done["due_ms"]) == (after["value"], after["due_ms"])
        assert ["ottla.delay.id", "a"] in after["headers"]
        gone = ottla("queues", "reschedule", "moved", "--at", place, "--due", "1s", "--yes")
        assert (2, True) == (gone.status, f"no parked record at {place}" in gone.err)
        ottla.ok("queues", "reschedule", "moved", "--at", f"0:{after['offset']}", "--due", "1s", "--yes")
        assert ["one"] == wait_delivered(ottla, "moved", 1)

    def test_retried_now(self, ottla: CommandLine) -> None:
        ottla.ok("queues", "create", "back", "--retry", "--group", "g", "--set", "ottla.retry.backoff.ms=300000")
        queue = "back.g.retry"
        park(ottla, queue, "one", "two", "three", "four", header="colour=red")
        offsets = {each["value"]: each["offset"] for each in ottla.ok("queues", "peek", queue, "--json").json}
        ottla.ok("queues", "cancel", queue, "--at", f"0:{offsets['one']}", "--yes")
        done = ottla.ok("queues", "retry-now", queue, "--at", f"0:{offsets['three']}", "--yes")
        assert f"due now: 1 parked record of {queue}\n" == done.out
        assert ["three"] == wait_delivered(ottla, "back.g.redelivery", 1)
        done = ottla.ok("queues", "retry-now", queue, "--all", "--yes", "--json")
        assert {offsets["two"], offsets["four"]} == {each["offset"] for each in done.json["records"]}
        assert ["three", "two", "four"] == wait_delivered(ottla, "back.g.redelivery", 3)
        assert 1 == ottla("queues", "retry-now", queue, "--all", "--yes").status
        ottla.ok("queues", "create", "late", "--delay")
        done = ottla("queues", "retry-now", "late.delayed", "--all", "--yes")
        assert 2 == done.status
        assert "late.delayed is not a queue of records that were handed back" in done.err

    def test_nothing_to_look_at(self, ottla: CommandLine) -> None:
        ottla.ok("topics", "create", "plain")
        done = ottla("queues", "describe", "plain")
        assert 2 == done.status
        assert "topic plain has no queue that parks records" in done.err
        ottla.ok("queues", "create", "lettered", "--delay")
        done = ottla("queues", "peek", "dlq.lettered")
        assert 2 == done.status
        assert "holds no parked records" in done.err
        assert 1 == ottla("queues", "describe", "missing").status


@pytest.mark.parametrize(
    "arguments",
    [
        ["cancel", "t", "--yes"],
        ["cancel", "t", "id", "--at", "0:1", "--yes"],
        ["cancel", "t", "--at", "0", "--yes"],
        ["cancel", "t", "id"],
        ["deliver-now", "t", "--yes"],
        ["reschedule", "t", "--at", "0:1", "--due", "soon", "--yes"],
        ["retry-now", "t.g.retry", "--yes"],
        ["retry-now", "t.g.retry", "--all", "--at", "0:1", "--yes"],
        ["peek", "t", "--limit", "0"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2(arguments: list[str], ottla: CommandLine) -> None:
    assert 2 == ottla("queues", *arguments).status
