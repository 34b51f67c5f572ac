"""`ottla cluster` on three brokers: what it says of them, elections, and replicas that move."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ottla.client.producer.blocking_producer import Producer
from ottla.testing import BrokerCluster
from tests.broker.cli.serve.test_brokers import serving
from tests.leftovers import children
from tests.unit.cli.command_line import CommandLine
from tests.waiting import PATIENCE_SECONDS, wait_until

HEALTH_SECONDS = 9
"""Less than a connection attempt may take (10 s): nothing waited for the broker that hangs."""
SESSION_MS = 16_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokerCluster]:
    # None of these brokers hangs, so that no session has to end.
    with BrokerCluster(tmp_path / "cluster", {"broker.session.timeout.ms": "60000"}) as made:
        yield made


@pytest.fixture
def bootstrap(cluster: BrokerCluster) -> str:
    return cluster.brokers[0].bootstrap


def test_brokers_and_health(cluster: BrokerCluster, ottla: CommandLine) -> None:
    cluster.create_topic("t", 3)
    cluster.create_topic("single", replicas=1)
    rows = ottla.ok("cluster", "brokers", "--json").json
    assert [0, 1, 2] == [each["id"] for each in rows]
    assert (10, 4, 4, 0) == tuple(
        sum(each[name] for each in rows) for name in ("replicas", "leads", "preferred", "behind")
    )
    assert [True] == [each["controller"] for each in rows if each["controller"]]
    assert "yes" in ottla.ok("cluster", "brokers").out
    assert ottla.ok("cluster", "health").out.startswith("healthy: 3 brokers, 2 topics")
    for broker in cluster.brokers[1:]:
        broker.kill()
    cluster.wait_brokers()
    # The controller notices that brokers are gone after these have noticed it themselves.
    refusing = [
        f"partition t-{each} refuses writes with acks=all: 1 in-sync replica, min.insync.replicas requires 2"
        for each in range(3)
    ]
    wait_until(lambda: refusing == [each for each in problems(ottla) if each.startswith("partition t-")])
    assert 1 == ottla("cluster", "health").status
    cluster.brokers[1].start()
    told = [f"partition t-{each} is under-replicated: 2 of 3 replicas in sync" for each in range(3)]
    wait_until(lambda: set(told) <= set(problems(ottla)))


def problems(ottla: CommandLine) -> list[str]:
    found: list[str] = ottla("cluster", "health", "--json").json["problems"]
    return found


def test_a_broker_that_is_gone_is_unregistered(cluster: BrokerCluster, ottla: CommandLine) -> None:
    refused = ottla("cluster", "unregister", "2", "--yes")
    assert (1, True) == (refused.status, "broker 2 is running" in refused.err), refused
    cluster.brokers[2].stop()
    cluster.wait_brokers()
    assert "unregistered broker 2\n" == ottla.ok("cluster", "unregister", "2", "--yes").out
    again = ottla("cluster", "unregister", "2", "--yes")
    assert (1, True) == (again.status, "BROKER_ID_NOT_REGISTERED" in again.err), again


def test_health_tells_of_lost_logs(cluster: BrokerCluster, ottla: CommandLine) -> None:
    cluster.create_topic("t", configs={"min.insync.replicas": "1"})
    last = cluster.leader_of("t")
    others = cluster.followers_of("t")
    for each in others:
        each.stop()
    cluster.wait_brokers()
    with Producer(bootstrap_servers=last.bootstrap, acks="all") as producer:
        producer.send("t", b"1").get(PATIENCE_SECONDS)
    last.stop()
    shutil.rmtree(last.data / "t-0")
    for each in (last, *others):
        each.start()
    cluster.wait_brokers()
    told = (
        f"t-0 has lost its log on broker {last.id}: no in-sync replica has it. Restore its folder and restart the"
        " broker; or accept the loss with ottla cluster elect --unclean --topic t --partition 0"
    )
    wait_until(lambda: told in problems(ottla))
    assert 0 == ottla("cluster", "elect", "--unclean", "--yes", "--topic", "t", "--partition", "0").status
    cluster.wait_in_sync("t")
    wait_until(lambda: [] == problems(ottla))


def test_election_of_the_preferred(cluster: BrokerCluster, ottla: CommandLine) -> None:
    cluster.create_topic("t", 3)
    cluster.brokers[2].restart()
    cluster.wait_in_sync()
    assert {0, 1} == {cluster.leader_of("t", each).id for each in range(3)}
    assert "elected the leader of 1 partition\n" == ottla.ok("cluster", "elect").out
    assert {0, 1, 2} == {cluster.leader_of("t", each).id for each in range(3)}
    assert "elected the leader of 3 partitions\n" == ottla.ok("cluster", "elect", "--topic", "t").out
    again = ottla.ok("cluster", "elect", "--topic", "t", "--json").json
    assert [{"topic": "t", "partition": each, "error": None} for each in range(3)] == again
    refused = ottla("cluster", "elect", "--topic", "t", "--partition", "7", "--json")
    assert (1, [("t", 7, "UNKNOWN_TOPIC_OR_PARTITION")]) == (
        refused.status,
        [(each["topic"], each["partition"], each["error"]) for each in refused.json],
    )
    assert 1 == ottla("cluster", "elect", "--topic", "t", "--partition", "7").status
    assert 2 == ottla("cluster", "elect", "--partition", "7").status
    assert 2 == ottla("cluster", "elect", "--unclean").status


def test_replicas_move(cluster: BrokerCluster, ottla: CommandLine, tmp_path: Path) -> None:
    cluster.create_topic("t", 4, replicas=1)
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for each in range(400):
            producer.send("t", b"x" * 1000, partition=each % 4).get(PATIENCE_SECONDS)
    generated = ottla.ok(
        "cluster", "reassign", "generate", "--brokers", "0,1", "--topic", "t", "--replication-factor", "2"
    )
    assert "4 partitions would change" in generated.err
    plan = tmp_path / "plan.json"
    plan.write_text(generated.out)
    pending = ottla("cluster", "reassign", "verify", str(plan), "--json")
    assert (1, [f"t-{each}" for each in range(4)]) == (pending.status, sorted(pending.json["pending"]))
    begun = ottla.ok("cluster", "reassign", "execute", str(plan))
    assert begun.out.startswith("started 4 moves;")
    back = begun.err.partition("before: ")[2]
    ottla.ok("cluster", "reassign", "verify", str(plan), "--watch")
    cluster.wait_in_sync("t")
    assert {"moving": [], "bytes_left": 0, "pending": []} == ottla.ok(
        "cluster", "reassign", "verify", str(plan), "--json"
    ).json
    rows = ottla.ok("cluster", "brokers", "--json").json
    assert [(4, 2), (4, 2), (0, 0)] == [(each["replicas"], each["preferred"]) for each in rows]
    # And back again, by what was told.
    document = ottla.ok("cluster", "reassign", "execute", "-", "--json", stdin=back.encode()).json
    assert [("t", each, None) for each in range(4)] == [
        (one["topic"], one["partition"], one["error"]) for one in document["moves"]
    ]
    assert msgspec.json.decode(generated.out) == document["before"]
    ottla.ok("cluster", "reassign", "verify", "--watch")
    # Not every broker has heard of it at once.
    wait_until(lambda: 4 == sum(each["replicas"] for each in ottla.ok("cluster", "brokers", "--json").json))


def test_a_move_is_watched_and_taken_back(cluster: BrokerCluster, ottla: CommandLine) -> None:
    cluster.create_topic("t", replicas=1)
    with Producer(bootstrap_servers=cluster.bootstrap, max_request_size=1 << 20) as producer:
        for _ in range(4):
            producer.send("t", os.urandom(900_000)).get(PATIENCE_SECONDS)
    here = cluster.leader_of("t").id
    away = (here + 1) % 3
    plan = {"partitions": [{"topic": "t", "partition": 0, "replicas": [here, away]}]}
    # After a first answer, the next one would have to wait for a quarter of an hour.
    ottla.ok("cluster", "reassign", "execute", "-", "--throttle", "1k", stdin=msgspec.json.encode(plan))
    moving = ottla("cluster", "reassign", "verify", "--json")
    assert (1, True) == (moving.status, moving.json["bytes_left"] > 1_000_000)
    assert [("t", 0, [away])] == [(each["topic"], each["partition"], each["adding"]) for each in moving.json["moving"]]
    assert "ADDING" in ottla("cluster", "reassign", "verify").out
    assert 2 == ottla("cluster", "reassign", "cancel").status
    cancelled = ottla.ok("cluster", "reassign", "cancel", "--yes")
    assert ("cancelled 1 move\n", "removed the throttle\n") == (cancelled.out, cancelled.err)
    assert "no moves in progress\n" == ottla.ok("cluster", "reassign", "cancel", "--yes").out
    assert [] == ottla.ok("cluster", "reassign", "cancel", "--yes", "--json").json
    assert "done: no moves in progress\n" == ottla.ok("cluster", "reassign", "verify").out


def test_a_broker_that_hangs_is_named_within_seconds(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller, first of the bootstrap list, is stopped but keeps its connections; the other brokers answer."""
    with serving(tmp_path / "data", "--brokers", "3", "--set", f"broker.session.timeout.ms={SESSION_MS}") as served:
        addresses = served.wait_ready().split(",")
        ottla = CommandLine(",".join(addresses), capfd)
        ottla.ok("topics", "create", "t", "-p", "3", "-r", "3")
        wait_until(lambda: ottla("cluster", "health").status == 0)
        controller = ottla.ok("cluster", "describe", "--json").json["controller"]
        ottla.bootstrap = ",".join([addresses[controller], *addresses])
        os.kill(sorted(children(served.pid))[controller], signal.SIGSTOP)
        assert_told_of(ottla, controller, "does not answer")
        # The timeout is known to be short enough; another 3 s each time would make the test as long as a session.
        monkeypatch.setattr("ottla.client.admin.broker_states.TIMEOUT_SECONDS", 1.0)
        assert_shown_as(ottla, controller, "not answering")
        wait_until(lambda: states(ottla)[controller] == "missing")
        assert_told_of(ottla, controller, "is missing")
        assert_shown_as(ottla, controller, "missing")


def assert_told_of(ottla: CommandLine, broker: int, words: str) -> None:
    began = time.monotonic()
    done = ottla("cluster", "health", "--json")
    seconds = time.monotonic() - began
    assert (1, "") == (done.status, done.err)
    first = done.json["problems"][0]
    assert (True, True) == (first.startswith(f"broker {broker} "), words in first), first
    assert seconds < HEALTH_SECONDS


def assert_shown_as(ottla: CommandLine, broker: int, state: str) -> None:
    assert {each: state if each == broker else "online" for each in range(3)} == states(ottla)
    assert 0 == ottla("cluster", "describe").status


def states(ottla: CommandLine) -> dict[int, str]:
    return {each["id"]: each["state"] for each in ottla.ok("cluster", "brokers", "--json").json}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("generate", "--brokers", "0,x"), 2, "is not a list of broker ids"),
        (("generate", "--brokers", "0,9"), 1, "the cluster has no broker 9"),
        (("generate", "--brokers", "0", "--topic", "nowhere"), 1, "topic nowhere does not exist"),
        (("execute", "nowhere.json"), 1, "nowhere.json: No such file"),
        (("execute", "-"), 1, "not a valid reassignment plan"),
    ],
)
def test_what_cannot_be_done_is_told(
    cluster: BrokerCluster, ottla: CommandLine, arguments: tuple[str, ...], status: int, words: str
) -> None:
    done = ottla("cluster", "reassign", *arguments)
    assert (status, True) == (done.status, words in done.err), done


def test_a_throttled_move_takes_its_time(cluster: BrokerCluster, ottla: CommandLine, tmp_path: Path) -> None:
    cluster.create_topic("t", replicas=1)
    with Producer(bootstrap_servers=cluster.bootstrap, max_request_size=1 << 20) as producer:
        for _ in range(20):
            producer.send("t", os.urandom(100_000)).get(PATIENCE_SECONDS)
    here = cluster.leader_of("t").id
    plan = tmp_path / "plan.json"
    away = (here + 1) % 3
    plan.write_bytes(msgspec.json.encode({"partitions": [{"topic": "t", "partition": 0, "replicas": [here, away]}]}))
    began = time.monotonic()
    ottla.ok("cluster", "reassign", "execute", str(plan), "--throttle", "512k")
    assert f"0:{here}" in ottla.ok("configs", "describe", "--topic", "t").out
    done = ottla.ok("cluster", "reassign", "verify", str(plan), "--watch")
    # 2 MB at half a MiB a second, of which a second's worth may come at once, and one answer is up to 1 MiB.
    assert time.monotonic() - began > 0.8
    assert "removed the throttle" in done.err
    assert "throttled" not in ottla.ok("configs", "describe", "--topic", "t").out
    cluster.wait_in_sync("t")
