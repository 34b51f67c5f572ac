"""What every command must do, whoever's broker it talks to: the same scenarios run against Ottla and against Kafka."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.unit.cli.command_line import CommandLine

Scenario = Callable[[CommandLine, Path], None]


def topics(ottla: CommandLine, tmp_path: Path) -> None:
    assert (
        "topic s-topics can be created with 3 partitions\n"
        == ottla.ok("topics", "create", "s-topics", "-p", "3", "--dry-run").out
    )
    assert "s-topics" not in [each["name"] for each in ottla.ok("topics", "list", "--json").json]
    created = ottla.ok("topics", "create", "s-topics", "-p", "3", "--config", "retention.ms=100000", "--json").json
    assert ("s-topics", True, 3, 1) == tuple(
        created[key] for key in ("name", "created", "partitions", "replication_factor")
    )
    refused = ottla("topics", "create", "s-topics")
    assert (1, "") == (refused.status, refused.out)
    assert "TOPIC_ALREADY_EXISTS" in refused.err
    assert "topic s-topics exists already\n" == ottla.ok("topics", "create", "s-topics", "--if-not-exists").out

    described = ottla.ok("topics", "describe", "s-topics", "--json").json
    assert {"retention.ms": "100000"} == described["configs"]
    assert [(0, 0, 0)] * 3 == [
        (each["start_offset"], each["end_offset"], each["size_bytes"]) for each in described["partitions"]
    ]
    assert "retention.ms=100000" in ottla.ok("topics", "describe", "s-topics").out

    assert "topic s-topics now has 5 partitions\n" == ottla.ok("topics", "add-partitions", "s-topics", "5").out
    fewer = ottla("topics", "add-partitions", "s-topics", "2")
    assert 1 == fewer.status
    assert "INVALID_PARTITIONS" in fewer.err
    listed = {each["name"]: each["partitions"] for each in ottla.ok("topics", "list", "--json").json}
    assert 5 == listed["s-topics"]

    assert 2 == ottla("topics", "delete", "s-topics").status, "not a terminal, and no --yes"
    assert "s-topics: deleted\n" == ottla.ok("topics", "delete", "s-topics", "--yes").out
    missing = ottla("topics", "delete", "s-topics", "--yes")
    assert 1 == missing.status
    assert "does not exist" in missing.err
    assert 0 == ottla("topics", "delete", "s-topics", "--yes", "--if-exists").status
    unknown = ottla("topics", "describe", "s-topics")
    assert (1, True) == (unknown.status, "`ottla topics list` shows all topics" in unknown.err)


def records(ottla: CommandLine, tmp_path: Path) -> None:
    ottla.ok("topics", "create", "s-records", "-p", "2")
    ottla.ok("produce", "s-records", "--key-separator", ":", "--null-value", "NIL", stdin=b"a:1\nb:2\na:3\nc:NIL\n")
    everything = ottla.ok("consume", "s-records", "--json").json_lines
    assert {("a", "1"), ("b", "2"), ("a", "3"), ("c", None)} == {(each["key"], each["value"]) for each in everything}
    of_a = [each for each in everything if each["key"] == "a"]
    assert (1, ["1", "3"]) == (len({each["partition"] for each in of_a}), [each["value"] for each in of_a])

    lines = [
        b'{"key":"k","value":"v","headers":{"h":"1","n":null},"timestamp":1700000000000,"partition":1}',
        b'{"value":{"base64":"/wA="},"headers":[["x","1"],["x","2"]],"timestamp":1700000000001,"partition":1}',
    ]
    ottla.ok("produce", "s-records", "--format", "json", "--compression", "zstd", stdin=b"\n".join(lines))
    back = ottla.ok("consume", "s-records", "-p", "1", "--from", "-2", "--format", "json").json_lines
    assert [
        ("k", "v", {"h": "1", "n": None}, 1700000000000),
        (None, {"base64": "/wA="}, [["x", "1"], ["x", "2"]], 1700000000001),
    ] == [tuple(each[key] for key in ("key", "value", "headers", "timestamp")) for each in back]
    shown = ottla.ok("consume", "s-records", "-p", "1", "--from", "-2", "-n", "1", "--print", "key,headers,timestamp")
    assert "k\th=1,n=null\t1700000000000\tv\n" == shown.out
    assert "ff00\n" == ottla.ok("consume", "s-records", "-p", "1", "--from", "-1", "--format", "hex").out

    soon = time.time_ns() // 1_000_000 + 60_000
    turns = [at * 7 % 40 for at in range(40)]
    ages = [b'{"value":"%d","timestamp":%d,"partition":%d}\n' % (age, soon + age, age % 2) for age in turns]
    ottla.ok("produce", "s-records", "--format", "json", stdin=b"".join(ages))
    youngest = ottla.ok("consume", "s-records", "--last", "20").out.splitlines()
    assert [str(age) for age in range(20, 40)] == youngest, "the youngest, in order of their age"

    assert 1 == ottla("produce", "s-records", "--partition", "7", stdin=b"x").status
    assert 1 == ottla("consume", "s-records", "--partition", "7").status
    bad = ottla("produce", "s-records", "--format", "json", stdin=b'{"value":"kept"}\nnonsense\n')
    assert (1, True) == (bad.status, "stdin, line 2: it is not JSON" in bad.err)
    assert "kept" in ottla.ok("consume", "s-records").out.splitlines(), "what came before the bad line is sent"
    ottla.ok("topics", "delete", "s-records", "--yes")


def many_records(ottla: CommandLine, tmp_path: Path) -> None:
    ottla.ok("topics", "create", "s-many", "-p", "3")
    source = tmp_path / "numbers"
    source.write_text("".join(f"{number}\n" for number in range(100_000)))
    for codec in ("none", "lz4"):
        made = ottla.ok("produce", "s-many", str(source), "-z", codec, "--batch-size", "64k", "--json").json
        assert 100_000 == made["records"]
        assert len(made["partitions"]) > 1, "records without a key are spread"
    target = tmp_path / "copy"
    assert "200,000 records" in ottla.ok("consume", "s-many", "--output", str(target)).err
    assert sorted(2 * source.read_text().splitlines()) == sorted(target.read_text().splitlines())
    assert 10 == len(ottla.ok("consume", "s-many", "--max", "10").out.splitlines())
    assert 5 == len(ottla.ok("consume", "s-many", "--last", "5").out.splitlines())
    assert "" == ottla.ok("consume", "s-many", "--from", "end").out
    assert "" == ottla.ok("consume", "s-many", "--until", "1h").out
    assert 200_000 == len(
        ottla.ok("consume", "s-many", "--from", "1h", "--isolation-level", "read_uncommitted").out.splitlines()
    )
    ottla.ok("topics", "delete-records", "s-many", "--before", "10", "--partition", "0", "--yes")
    described = ottla.ok("topics", "describe", "s-many", "--json").json["partitions"]
    assert [10, 0, 0] == [each["start_offset"] for each in described]
    assert 199_990 == sum(each["records"] for each in described)
    ottla.ok("topics", "delete-records", "s-many", "--all", "--yes")
    assert "" == ottla.ok("consume", "s-many").out
    ottla.ok("topics", "delete", "s-many", "--yes")


def a_line_too_large(ottla: CommandLine, tmp_path: Path) -> None:
    ottla.ok("topics", "create", "s-large", "--config", "max.message.bytes=1000")
    for more in ((), ("--key", "k")):
        refused = ottla("produce", "s-large", *more, "--batch-size", "10", stdin=b"a\n" + b"b" * 5000 + b"\nc\n")
        assert 1 == refused.status
        assert refused.err.startswith("ottla: stdin, line 2: "), refused.err
        assert "MESSAGE_TOO_LARGE" in refused.err
    ottla.ok("topics", "delete", "s-large", "--yes")


def configs(ottla: CommandLine, tmp_path: Path) -> None:
    ottla.ok("topics", "create", "s-configs")
    assert "retention.ms" not in ottla.ok("configs", "describe", "--topic", "s-configs").out
    assert (
        "topic s-configs: retention.ms=5000\n"
        == ottla.ok("configs", "set", "--topic", "s-configs", "retention.ms=5000").out
    )
    entries = {each["name"]: each for each in ottla.ok("configs", "describe", "--topic", "s-configs", "--json").json}
    assert ("5000", "topic") == (entries["retention.ms"]["value"], entries["retention.ms"]["source"])
    dry = ottla.ok("configs", "set", "--topic", "s-configs", "retention.ms=7", "--dry-run").out
    assert "topic s-configs: retention.ms=7 would be accepted\n" == dry
    assert "5000" in ottla.ok("configs", "describe", "--topic", "s-configs", "retention.ms").out
    wrong = ottla("configs", "set", "--topic", "s-configs", "no.such.config=1")
    assert (1, True) == (wrong.status, "INVALID_CONFIG" in wrong.err)
    ottla.ok("configs", "unset", "--topic", "s-configs", "retention.ms")
    explained = ottla.ok("configs", "describe", "--topic", "s-configs", "retention.ms", "--explain").out
    assert "(default)" in explained
    assert len(explained.splitlines()) > 1
    broker = ottla.ok("cluster", "describe", "--json").json["brokers"][0]["id"]
    assert "log.dirs" in ottla.ok("configs", "describe", "--broker", str(broker)).out
    for owner in (("--topic", "s-configs"), ("--broker", str(broker)), ("--broker", "all")):
        meant = "retention.ms" if owner[0] == "--topic" else "message.max.bytes"
        misspelled = ottla("configs", "unset", *owner, meant[:-1])
        assert (1, True) == (misspelled.status, f"; did you mean {meant}?" in misspelled.err), misspelled
        ottla.ok("configs", "unset", *owner, meant)
    began = time.monotonic()
    for command in (("describe",), ("set", "message.max.bytes=1000000"), ("unset", "message.max.bytes")):
        absent = ottla("configs", command[0], "--broker", "4711", *command[1:])
        wanted = f"broker 4711 is not registered in this cluster; registered: {broker}"
        assert (1, True) == (absent.status, wanted in absent.err), absent
    assert time.monotonic() - began < 20
    everything = ottla.ok("configs", "describe", "--broker", str(broker), "--all", "--json").json
    assert "default" in {each["source"] for each in everything}
    ottla.ok("topics", "delete", "s-configs", "--yes")
    ottla.ok("configs", "set", "--client-metrics", "s-metrics", "metrics=*", "interval.ms=60000")
    listed = ottla.ok("configs", "list", "--json").json
    assert {"type": "client_metrics", "name": "s-metrics"} in listed
    shown = ottla.ok("configs", "describe", "--client-metrics", "s-metrics", "--json").json
    assert [("interval.ms", "60000"), ("metrics", "*")] == [(each["name"], each["value"]) for each in shown]
    ottla.ok("configs", "unset", "--client-metrics", "s-metrics", "metrics", "interval.ms")
    assert {"type": "client_metrics", "name": "s-metrics"} not in ottla.ok("configs", "list", "--json").json


def cluster(ottla: CommandLine, tmp_path: Path) -> None:
    ottla.ok("topics", "create", "s-cluster", "-p", "2")
    described = ottla.ok("cluster", "describe", "--json").json
    host, _, port = ottla.bootstrap.partition(":")
    assert [(host, int(port))] == [(each["host"], each["port"]) for each in described["brokers"]]
    assert described["controller"] == described["brokers"][0]["id"]
    assert described["partitions"] >= 2
    (log_dir,) = described["log_dirs"]
    assert (None, True) == (log_dir["error"], 0 < log_dir["usable_bytes"] <= log_dir["total_bytes"])
    assert described["cluster_id"] in ottla.ok("cluster", "describe").out
    assert {"healthy": True, "problems": []} == ottla.ok("cluster", "health", "--json").json
    assert ottla.ok("cluster", "health").out.startswith("healthy: 1 broker, ")
    found = {each["feature"]: each for each in ottla.ok("cluster", "features", "--json").json["features"]}
    assert {"feature": "group.version", "finalized": 1, "lowest": 0, "highest": 1} == found["group.version"]
    refused = ottla("cluster", "features", "--set", "group.version=0")
    assert (1, True) == (refused.status, "INVALID_UPDATE_VERSION" in refused.err), refused
    tried = ottla.ok("cluster", "features", "--set", "group.version=0", "--downgrade", "--dry-run")
    assert "can set group.version to 0\n" == tried.out
    assert "set group.version to 0\n" == ottla.ok("cluster", "features", "--set", "group.version=0", "--downgrade").out
    assert "set group.version to 1\n" == ottla.ok("cluster", "features", "--set", "group.version=1").out
    assert 2 == ottla("cluster", "features", "--set", "group.version").status
    (dirs,) = ottla.ok("log", "dirs", "--topic", "s-cluster", "--json").json
    assert [("s-cluster", 0), ("s-cluster", 1)] == [(each["topic"], each["partition"]) for each in dirs["replicas"]]
    assert "s-cluster-1" in ottla.ok("log", "dirs").out
    broker, absent = str(described["controller"]), str(tmp_path / "absent")
    refused = ottla("log", "move", "s-cluster", "--broker", broker, "--to", absent)
    assert (1, "", 2) == (refused.status, refused.out, refused.err.count("LOG_DIR_NOT_FOUND")), refused
    ottla.ok("topics", "delete", "s-cluster", "--yes")


def bench(ottla: CommandLine, tmp_path: Path) -> None:
    for more in (("--acks", "1"), ("--acks", "0"), ("-z", "lz4", "-p", "2", "--connections", "2")):
        made = ottla.ok("bench", "produce", "-n", "20000", "--json", *more).json
        assert 20_000 <= made["records"] < 22_000
        assert made["records_per_second"] > 0 < made["p99.9_ms"]
    paced = ottla.ok("bench", "produce", "--rate", "2000", "--batch-size", "1k", "--duration", "1", "--json").json
    # A machine that stalls at the end of that second sends less.
    assert 0 < paced["records"] <= 2500
    counted = ottla.ok("bench", "produce", "-n", "2000", "--rate", "2000", "--batch-size", "1k", "--json").json
    assert (True, True) == (counted["records"] >= 2000, counted["records_per_second"] < 2500)
    read = ottla.ok("bench", "consume", "-n", "20000", "-p", "2", "--connections", "2", "--json").json
    assert 20_000 <= read["records"] < 22_000
    timed = ottla.ok("bench", "latency", "-n", "300", "--rate", "1000", "--json").json
    assert 300 == timed["records"]
    assert 0 < timed["p50_ms"] <= timed["p99_ms"] <= timed["max_ms"]
    assert "records per second" in ottla.ok("bench", "produce", "-n", "1000").out
    assert [] == [each for each in ottla.ok("topics", "list", "--json").json if "bench" in each["name"]]


SCENARIOS: Final[list[Scenario]] = [topics, records, many_records, a_line_too_large, configs, cluster, bench]
