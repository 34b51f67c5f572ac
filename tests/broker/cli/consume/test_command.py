"""`ottla consume` against a real broker: transactions, the last records, several topics, groups, templates."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules
from ottla.model.ids import TopicPartition
from ottla.operations import last_records
from ottla.operations.last_records import STEP_OFFSETS_MIN
from tests.broker.cli.transaction_scenarios import initialized
from tests.processes import Program
from tests.unit.cli.command_line import CommandLine


def write_transactions(ottla: CommandLine, topic: str, *transactions: tuple[list[bytes], bool]) -> None:
    """Transactions of one producer into partition 0, each committed or aborted."""
    producer = initialized(ottla, f"writes-{topic}")
    for values, is_committed in transactions:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        assert 0 == producer.flush(30)
        producer.commit_transaction(30) if is_committed else producer.abort_transaction(30)


def test_last_counts_only_records_that_a_reader_sees(ottla: CommandLine) -> None:
    """Each transaction ends with a marker, and an aborted one is not seen."""
    ottla.ok("topics", "create", "c-last")
    lost = [b"lost-%d" % number for number in range(5 * STEP_OFFSETS_MIN)]
    kept = [([b"kept-%d" % number], True) for number in range(4)]
    write_transactions(ottla, "c-last", *kept, (lost, False), ([], True))
    assert "kept-2\nkept-3\n" == ottla.ok("consume", "c-last", "--last", "2").out
    assert 4 == len(ottla.ok("consume", "c-last", "--last", "50").out.splitlines())
    assert "lost-499\n" == (ottla.ok("consume", "c-last", "--last", "1", "--isolation-level", "read_uncommitted").out)


def test_last_is_over_all_partitions_of_each_topic_by_timestamp(ottla: CommandLine) -> None:
    soon = time.time_ns() // 1_000_000 + 60_000
    for topic in ("c-last-a", "c-last-b"):
        ottla.ok("topics", "create", topic, "-p", "3")
        lines = [
            b'{"value":"%s-%d","timestamp":%d,"partition":%d}\n'
            % (topic[-1:].encode(), number, soon + number, number % 3)
            for number in range(30)
        ]
        ottla.ok("produce", topic, "--format", "json", stdin=b"".join(lines))
    out = ottla.ok("consume", "c-last-b", "c-last-a", "--last", "4").out
    assert [*(f"b-{number}" for number in range(26, 30)), *(f"a-{number}" for number in range(26, 30))] == out.split()


def test_last_reads_backwards_in_growing_steps(ottla: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    class Watched(RangeFetch):
        def __init__(self, cluster: Any, ranges: dict[TopicPartition, OffsetRange], rules: RangeRules) -> None:
            asked.extend((each.start, each.end or -1) for each in ranges.values())
            super().__init__(cluster, ranges, rules)

    monkeypatch.setattr(last_records, "RangeFetch", Watched)
    ottla.ok("topics", "create", "c-steps")
    ottla.ok("produce", "c-steps", stdin=b"".join(b"%d\n" % number for number in range(50_000)))
    lost = [b"lost"] * 300
    write_transactions(ottla, "c-steps", (lost, False))
    assert "49997\n49998\n49999\n" == ottla.ok("consume", "c-steps", "--last", "3").out
    assert [(50_201, 50_301), (49_801, 50_201)] == asked


def test_aborted_and_open_transactions_are_left_out_and_the_open_one_is_mentioned(ottla: CommandLine) -> None:
    ottla.ok("topics", "create", "c-open")
    write_transactions(ottla, "c-open", ([b"committed"], True), ([b"aborted"], False))
    producer = initialized(ottla, "opens-c-open")
    producer.begin_transaction()
    producer.produce("c-open", b"open", partition=0)
    assert 0 == producer.flush(30)
    done = ottla.ok("consume", "c-open")
    assert "committed\n" == done.out
    assert "c-open-0: an open transaction hides 1 offset from 4 on" in done.err
    everything = ottla.ok("consume", "c-open", "--isolation-level", "read_uncommitted")
    assert ("committed\naborted\nopen\n", "") == (everything.out, everything.err)
    producer.abort_transaction(30)


def test_fields_are_printed_in_the_order_given_and_times_as_asked_for(ottla: CommandLine) -> None:
    ottla.ok("topics", "create", "c-fields")
    ottla.ok("produce", "c-fields", "--format", "json", stdin=b'{"key":"k","value":"v","timestamp":1700000000123}')
    consume = ("consume", "c-fields")
    assert "1700000000123\t0\tv\n" == ottla.ok(*consume, "--print", "timestamp,offset").out
    assert "v\tc-fields\tk\n" == ottla.ok(*consume, "--print", "value,topic,key").out
    iso = ottla.ok(*consume, "--print", "timestamp", "--time-format", "iso").out
    assert "2023-11-14T22:13:20.123Z\tv\n" == iso
    assert "c-fields 0 0 k v\n" == ottla.ok(*consume, "--format", r"%t %p %o %k %s\n").out


def test_topics_by_pattern(ottla: CommandLine) -> None:
    for topic in ("c-p-1", "c-p-2", "c-p-22"):
        ottla.ok("topics", "create", topic)
        ottla.ok("produce", topic, stdin=topic.encode())
    assert {"c-p-1", "c-p-2"} == set(ottla.ok("consume", "--pattern", "c-p-.").out.split())
    assert {"c-p-2", "c-p-22"} == set(ottla.ok("consume", "c-p-2", "c-p-22").out.split())
    none = ottla("consume", "--pattern", "c-q-.*")
    assert (1, "ottla: no topic matches 'c-q-.*'; `ottla topics list` shows all topics\n") == (none.status, none.err)


def test_a_group_goes_on_where_it_stopped(ottla: CommandLine) -> None:
    ottla.ok("topics", "create", "c-group", "-p", "2")
    ottla.ok("produce", "c-group", stdin=b"".join(b"%d\n" % number for number in range(10)))
    consume = ("consume", "c-group", "--group", "c-reads")
    first = ottla.ok(*consume, "--max", "4").out.split()
    assert 4 == len(first)
    second = ottla.ok(*consume).out.split()
    assert {str(number) for number in range(10)} == {*first, *second}
    assert 10 == len(first) + len(second), "what was printed is committed, and nothing else"
    assert "" == ottla.ok(*consume).out
    assert 0 == ottla.ok("groups", "describe", "c-reads", "--json").json["lag"]
    assert "" == ottla.ok("consume", "c-group", "--group", "c-late", "--from", "end").out
    assert 10 == len(ottla.ok("consume", "--pattern", "c-grou.", "--group", "c-pattern").out.split())


def test_a_group_ends_behind_markers_and_aborted_records(ottla: CommandLine) -> None:
    ottla.ok("topics", "create", "c-group-txn")
    write_transactions(ottla, "c-group-txn", ([b"kept"], True), ([b"lost"], False))
    assert "kept\n" == ottla.ok("consume", "c-group-txn", "--group", "c-txn").out
    assert 0 == ottla.ok("groups", "describe", "c-txn", "--json").json["lag"]


@pytest.mark.parametrize(("how", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_group_member_commits_what_it_printed(
    start: Callable[..., Program], ottla: CommandLine, how: signal.Signals, status: int
) -> None:
    topic, group = f"c-{how.name}", f"c-stopped-by-{how.name}"
    ottla.ok("topics", "create", topic)
    ottla.ok("produce", topic, stdin=b"one\ntwo\n")
    following = start("consume", topic, "--group", group, "--follow")
    assert ["one", "two"] == [following.next_line(), following.next_line()]
    assert status == following.stop(how)
    found = ottla.ok("groups", "describe", group, "--json").json
    assert (0, 0) == (found["lag"], found["member_count"])


def test_last_and_follow_go_together(start: Callable[..., Program], ottla: CommandLine) -> None:
    ottla.ok("topics", "create", "c-tail")
    ottla.ok("produce", "c-tail", stdin=b"one\ntwo\n")
    following = start("consume", "c-tail", "--last", "1", "--follow")
    assert "two" == following.next_line()
    ottla.ok("produce", "c-tail", stdin=b"three\n")
    assert "three" == following.next_line()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("t", "--pattern", "t"),
        ("--pattern", "("),
        ("t", "--group", "g", "--last", "1"),
        ("t", "--group", "g", "--partition", "0"),
        ("t", "--group", "g", "--from", "5"),
        ("t", "--format", "xml"),
        ("t", "--format", "%x"),
        ("t", "--time-format", "stardate"),
        ("t", "--json", "--time-format", "iso"),
        ("t", "--isolation-level", "serializable"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    done = CommandLine("127.0.0.1:1", capfd)("consume", *arguments)
    assert (2, False) == (done.status, "Traceback" in done.err), done


def test_output_file_has_exact_bytes(ottla: CommandLine, tmp_path: Any) -> None:
    ottla.ok("topics", "create", "c-file")
    ottla.ok("produce", "c-file", "--format", "base64", stdin=b"G1szMW0KAA==")
    target = tmp_path / "out"
    ottla.ok("consume", "c-file", "--format", "raw", "--output", os.fspath(target))
    assert b"\x1b[31m\n\x00" == target.read_bytes()


def test_two_members_share_the_partitions_and_print_each_record_once(
    start: Callable[..., Program], ottla: CommandLine
) -> None:
    ottla.ok("topics", "create", "c-shared", "-p", "2")
    for index in ("0", "1"):
        ottla.ok("produce", "c-shared", "--partition", index, stdin=b"before-%s\n" % index.encode())
    following = start("consume", "c-shared", "--group", "c-sharing", "--follow")
    assert {"before-0", "before-1"} == {following.next_line(), following.next_line()}
    joined = ottla.ok("consume", "c-shared", "--group", "c-sharing")
    assert ("", "") == (joined.out, joined.err), "it had a partition, whose records were printed and committed"
    ottla.ok("produce", "c-shared", "--partition", "1", stdin=b"after\n")
    assert "after" == following.next_line()
    assert (130, []) == (following.stop(signal.SIGINT), following.remaining_lines())
