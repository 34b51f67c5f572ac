"""What `ottla transactions` must do, whoever's broker it talks to, with transactions of librdkafka's producers.

A transaction that hangs comes about differently in each broker, so the test hands in how to make one.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from ottla.model.ids import TopicPartition
from tests.broker.cli.command_scenarios import Scenario
from tests.broker.cli.group_scenarios import create_topic
from tests.unit.cli.command_line import CommandLine
from tests.waiting import wait_until

Hang = Callable[[TopicPartition, int], None]
"""Leaves a transaction of one record open in a partition, at the offset given, its end, that no coordinator knows."""


def initialized(ottla: CommandLine, transactional_id: str) -> Producer:
    """A producer that has its id. It is silent, for it may live on a little after its broker."""
    producer = Producer({"bootstrap.servers": ottla.bootstrap, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(30)
    return producer


def transactional(ottla: CommandLine, transactional_id: str) -> Producer:
    """A producer that has begun a transaction."""
    producer = initialized(ottla, transactional_id)
    producer.begin_transaction()
    return producer


def listed(ottla: CommandLine, *more: str) -> dict[str, str]:
    found = ottla.ok("transactions", "list", "--json", *more).json
    return {each["transactional_id"]: each["state"] for each in found}


def wait_for_markers(ottla: CommandLine, transactional_id: str) -> None:
    """A commit is answered before its markers are written: the transaction is in PrepareCommit for a moment."""
    wait_until(lambda: "PrepareCommit" != listed(ottla)[transactional_id])


def producers_of(ottla: CommandLine, topic: str, *more: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ottla.ok("transactions", "describe-producers", "--topic", topic, "--json", *more).json
    return found


def transactions(ottla: CommandLine, tmp_path: Path) -> None:
    create_topic(ottla, "s-txn", "-p", "2")
    # Each open transaction goes to a partition of its own, so that both can be told apart.
    done, under_way = transactional(ottla, "s-done-1"), transactional(ottla, "s-open-1")
    done.produce("s-txn", b"done", partition=0)
    done.commit_transaction(30)
    under_way.produce("s-txn", b"open", partition=1)
    assert 0 == under_way.flush(30)

    wait_for_markers(ottla, "s-done-1")
    assert {"s-done-1": "CompleteCommit", "s-open-1": "Ongoing"}.items() <= listed(ottla).items()
    ongoing = listed(ottla, "--state", "ongoing")
    assert ("Ongoing", False) == (ongoing["s-open-1"], "s-done-1" in ongoing)
    assert {"s-done-1": "CompleteCommit"} == listed(ottla, "--pattern", "s-done-.*")
    assert "s-open-1" in listed(ottla, "--duration", "0")
    assert "s-open-1" not in listed(ottla, "--duration", "1h", "--state", "Ongoing")
    assert "s-open-1" in ottla.ok("transactions", "list").out
    wrong = ottla("transactions", "list", "--pattern", "(")
    assert (1, True) == (wrong.status, "INVALID_REGULAR_EXPRESSION" in wrong.err)

    found = ottla.ok("transactions", "describe", "s-open-1", "--json").json
    assert ("Ongoing", [{"topic": "s-txn", "partition": 1}]) == (found["state"], found["partitions"])
    assert found["timeout_ms"] == 60_000
    assert found["running_ms"] >= 0
    assert {"s-open-1": "Ongoing"} == listed(ottla, "--producer-id", str(found["producer_id"]))
    assert "s-txn:1" in ottla.ok("transactions", "describe", "s-open-1").out
    complete = ottla.ok("transactions", "describe", "s-done-1", "--json").json
    assert ("CompleteCommit", [], None) == tuple(complete[key] for key in ("state", "partitions", "running_ms"))
    missing = ottla("transactions", "describe", "s-nobody")
    assert (1, True) == (missing.status, "`ottla transactions list` shows all ids" in missing.err)

    first, second = producers_of(ottla, "s-txn")
    assert (0, None, complete["producer_id"]) == tuple(
        first[key] for key in ("partition", "start_offset", "producer_id")
    )
    assert (1, 0, found["producer_id"]) == tuple(second[key] for key in ("partition", "start_offset", "producer_id"))
    assert [second] == producers_of(ottla, "s-txn:1") == producers_of(ottla, "s-txn", "--partition", "1")
    broker = ottla.ok("cluster", "describe", "--json").json["brokers"][0]["id"]
    assert [second] == producers_of(ottla, "s-txn:1", "--broker", str(broker))
    nobody = ottla("transactions", "describe-producers", "--topic", "s-txn", "--broker", "77")
    assert (1, True) == (
        nobody.status,
        f"broker 77 is not registered in this cluster; registered: {broker}" in nobody.err,
    )

    hanging = ("transactions", "hanging", "--max-transaction-timeout", "0")
    assert "no hanging transactions in 2 partitions\n" == ottla.ok(*hanging, "--topic", "s-txn").out, (
        "a coordinator knows it"
    )
    under_way.commit_transaction(30)
    wait_for_markers(ottla, "s-open-1")
    assert [None, None] == [each["start_offset"] for each in producers_of(ottla, "s-txn")]
    ottla.ok("topics", "delete", "s-txn", "--yes")


def an_id_without_a_transaction(ottla: CommandLine, tmp_path: Path) -> None:
    """The start of what was never begun is no time at all."""
    initialized(ottla, "s-never")
    found = ottla.ok("transactions", "describe", "s-never", "--json").json
    assert ("Empty", None, None) == tuple(found[key] for key in ("state", "start_ms", "running_ms"))
    assert "none" in ottla.ok("transactions", "describe", "s-never").out


def abort_of_what_is_under_way(ottla: CommandLine, tmp_path: Path) -> None:
    """By the producer's ids, as one does for a broker that is too old to be asked about producers."""
    create_topic(ottla, "s-cut")
    producer = transactional(ottla, "s-cut-1")
    producer.produce("s-cut", b"lost")
    assert 0 == producer.flush(30)
    (held,) = producers_of(ottla, "s-cut")
    ids = ("--producer-id", str(held["producer_id"]), "--producer-epoch", str(held["producer_epoch"]))
    abort = ("transactions", "abort", "-t", "s-cut", "-p", "0", "--yes")
    elsewhere = ottla(*abort, "--start-offset", "5")
    assert (1, True) == (elsewhere.status, "starts at offset 5; open transactions start at 0" in elsewhere.err)
    assert {"topic": "s-cut", "partition": 0, "producer_id": held["producer_id"], "aborted": True} == (
        ottla.ok(*abort, *ids, "--coordinator-epoch", "0", "--json").json
    )
    (held,) = producers_of(ottla, "s-cut")
    assert (None, 0) == (held["start_offset"], held["coordinator_epoch"])
    again = ottla(*abort, "--start-offset", "0")
    assert (1, True) == (again.status, "starts at offset 0; the partition has no open transaction" in again.err)
    producer.abort_transaction(30)
    ottla.ok("topics", "delete", "s-cut", "--yes")


def an_open_transaction_is_terminated(ottla: CommandLine, tmp_path: Path) -> None:
    """Its producer is fenced, and the transaction aborted everywhere."""
    create_topic(ottla, "s-ended")
    producer = transactional(ottla, "s-ended-1")
    producer.produce("s-ended", b"lost")
    assert 0 == producer.flush(30)
    (held,) = producers_of(ottla, "s-ended")
    ended = ottla.ok("transactions", "terminate", "s-ended-1", "--yes", "--json").json
    assert (held["producer_id"], [{"topic": "s-ended", "partition": 0}]) == (ended["producer_id"], ended["partitions"])
    wait_until(lambda: listed(ottla).get("s-ended-1") not in ("Ongoing", "PrepareAbort"))
    assert [None] == [each["start_offset"] for each in producers_of(ottla, "s-ended")]
    again = ottla("transactions", "terminate", "s-ended-1", "--yes")
    assert (1, True) == (again.status, "has no open transaction" in again.err)
    missing = ottla("transactions", "terminate", "s-nobody", "--yes")
    assert (1, True) == (missing.status, "does not exist" in missing.err)
    ottla.ok("topics", "delete", "s-ended", "--yes")


def a_hanging_transaction(ottla: CommandLine, hang: Hang) -> None:
    """It is found, it holds readers back, and aborting it lets them go on."""
    create_topic(ottla, "s-hangs", "-p", "2")
    ottla.ok("produce", "s-hangs", "--partition", "1", stdin=b"before\n")
    where = TopicPartition("s-hangs", 1)
    hang(where, 1)
    ottla.ok("produce", "s-hangs", "--partition", "1", stdin=b"after\n")
    read = ("consume", "s-hangs")
    assert "before\n" == ottla.ok(*read).out

    hanging = ("transactions", "hanging", "--max-transaction-timeout", "0")
    found = ottla(*hanging, "--json")
    assert 1 == found.status
    (one,) = found.json
    assert ("s-hangs", 1, 1, None) == tuple(
        one[key] for key in ("topic", "partition", "start_offset", "transactional_id")
    )
    assert one["silent_ms"] >= 0
    shown = ottla(*hanging, "--topic", "s-hangs:1")
    assert (1, True) == (shown.status, "ottla transactions abort" in shown.err)
    assert ["s-hangs", "1", str(one["producer_id"])] in [line.split()[:3] for line in shown.out.splitlines()]
    assert 0 == ottla(*hanging, "--topic", "s-hangs", "--partition", "0").status
    assert 0 == ottla("transactions", "hanging", "--topic", "s-hangs").status, "it is not old enough"
    assert 1 == ottla("transactions", "find-hanging", "--topic", "s-hangs", "--max-transaction-timeout", "0").status

    abort = ("transactions", "abort", "--topic", "s-hangs", "--partition", "1", "--start-offset", "1")
    assert 2 == ottla(*abort).status, "not a terminal, and no --yes"
    done = ottla.ok(*abort, "--yes").out
    assert f"s-hangs-1: aborted the transaction of producer {one['producer_id']}\n" == done
    assert "before\nafter\n" == ottla.ok(*read).out
    assert "no hanging transactions in 2 partitions\n" == ottla.ok(*hanging, "--topic", "s-hangs").out
    ottla.ok("topics", "delete", "s-hangs", "--yes")


SCENARIOS: Final[list[Scenario]] = [
    transactions,
    an_id_without_a_transaction,
    abort_of_what_is_under_way,
    an_open_transaction_is_terminated,
]

WRONG_USAGE: Final = (
    ("transactions", "list", "--state", "asleep"),
    ("transactions", "list", "--duration", "long"),
    ("transactions", "describe"),
    ("transactions", "describe-producers"),
    ("transactions", "describe-producers", "--topic", "t:"),
    ("transactions", "hanging", "--partition", "0"),
    ("transactions", "hanging", "--max-transaction-timeout", "-5"),
    ("transactions", "abort", "--topic", "t", "--partition", "0", "--yes"),
    ("transactions", "abort", "--topic", "t", "--partition", "0", "--producer-id", "1", "--yes"),
    ("transactions", "abort", "-t", "t", "-p", "0", "--start-offset", "1", "--producer-id", "1", "--yes"),
    ("transactions", "abort", "-t", "t", "-p", "0", "--start-offset", "1"),
)
"""Command lines that end with 2 before any broker is asked."""
