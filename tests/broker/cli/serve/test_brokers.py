"""`ottla serve --brokers N`: what each broker is told; processes started, restarted, stopped; growing and shrinking."""

import os
import signal
import socket
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.configs.listener_config import Endpoint
from ottla.broker.supervisor import Restarts
from ottla.cli.serve import metadata_option
from ottla.cli.serve.brokers import broker_ids, broker_settings, http_of
from ottla.cli.serve.command import configuration
from ottla.cli.serve.metadata_option import check_metadata_option
from ottla.cli.serve.options import parser
from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import NewTopic
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.producer.blocking_producer import Producer
from ottla.model.errors import InvalidConfigError, MisuseError
from ottla.protocol.apis import ApiKey
from ottla.testing.free_ports import consecutive_free_ports
from tests.leftovers import children
from tests.processes import OTTLA, Program
from tests.waiting import PATIENCE_SECONDS, wait_until
from tests.wire.exchange import RawConnection

QUICK = ["offsets.topic.num.partitions=1", "group.initial.rebalance.delay.ms=0"]


def serving(data: Path, *options: str, listen: str = "127.0.0.1:0") -> Program:
    settings = [part for setting in QUICK for part in ("--set", setting)]
    command = [*OTTLA, "serve", "--data", data, "--listen", listen, *options, *settings]
    return Program(command, Path(f"{data}-serve"))


def cluster_addresses(admin: Admin) -> list[str]:
    return [str(each.address) for each in sorted(admin.describe_cluster().brokers, key=lambda broker: broker.id)]


# What each is told


def test_ids_ports_and_folders_count_up() -> None:
    first = BrokerConfig.parse(
        {
            "node.id": "4",
            "log.dirs": "/a,/b",
            "listeners": "PLAINTEXT://[::1]:9092",
            "advertised.listeners": "PLAINTEXT://example:19092",
        }
    )
    assert range(4, 7) == broker_ids(first, 3)
    assert {
        "node.id": "6",
        "log.dirs": "/a/brokers/6,/b/brokers/6",
        "listeners": "PLAINTEXT://[::1]:9094",
        "advertised.listeners": "PLAINTEXT://example:19094",
    } == broker_settings(first, 2, None)
    assert "log.dirs" not in broker_settings(first, 0, None)
    assert (None, ("h", 9646), ("h", 0)) == (http_of(None, 2), http_of(("h", 9644), 2), http_of(("h", 0), 2))


def test_a_free_port_stays_the_same() -> None:
    first = BrokerConfig.parse({"log.dirs": "/a", "listeners": "PLAINTEXT://127.0.0.1:0"})
    assert "PLAINTEXT://127.0.0.1:0" == broker_settings(first, 1, None)["listeners"]
    assert "PLAINTEXT://127.0.0.1:777" == broker_settings(first, 1, "example:777")["listeners"]


def test_numbers_that_make_no_sense() -> None:
    first = BrokerConfig.parse({"log.dirs": "/a", "listeners": "PLAINTEXT://127.0.0.1:65535"})
    for count in (0, -1, 65):
        with pytest.raises(InvalidConfigError, match="from 1 to 64"):
            broker_ids(first, count)
    with pytest.raises(InvalidConfigError, match="65536 is not a valid port"):
        broker_settings(first, 1, None)


def test_listeners_of_several_brokers_need_room_between_their_ports() -> None:
    settings = {"log.dirs": "/a", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENT:PLAINTEXT"}
    wide = BrokerConfig.parse({**settings, "listeners": "PLAINTEXT://:9092,CLIENT://:9095"})
    assert range(3) == broker_ids(wide, 3)
    for other in (9093, 9094, 9091):
        close = BrokerConfig.parse({**settings, "listeners": f"PLAINTEXT://:9092,CLIENT://:{other}"})
        with pytest.raises(
            InvalidConfigError, match=rf"--brokers 3: .*ports {min(9092, other)} and {max(9092, other)} collide"
        ):
            broker_ids(close, 3)
    pair = BrokerConfig.parse({**settings, "listeners": "PLAINTEXT://127.0.0.1:9092,CLIENT://[::1]:9092"})
    assert range(3) == broker_ids(pair, 3)


def options(*arguments: str) -> Namespace:
    return parser().parse_args(arguments)


def test_the_advertised_address_is_that_of_the_only_listener(tmp_path: Path) -> None:
    named = ("--set", "listeners=client://127.0.0.1:9092", "--set", "listener.security.protocol.map=CLIENT:PLAINTEXT")
    (listener,) = configuration(options(*named, "--advertise", "one.example:19092")).listeners
    assert Endpoint("CLIENT", "one.example", 19092) == listener.advertised
    file = tmp_path / "broker.toml"
    file.write_text('listeners = "OWN://:9092"\nlistener.security.protocol.map = "OWN:PLAINTEXT"\n')
    (listener,) = configuration(options("--config", str(file), "--advertise", "[::1]:1")).listeners
    assert Endpoint("OWN", "::1", 1) == listener.advertised
    (listener,) = configuration(options("--advertise", "one.example:1")).listeners
    assert Endpoint("PLAINTEXT", "one.example", 1) == listener.advertised


def test_one_advertised_address_is_not_enough_for_several_listeners() -> None:
    protocols = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CLIENT:PLAINTEXT"
    two = ("--set", "listeners=PLAINTEXT://:9092,CLIENT://:9093", "--set", protocols, "--advertise", "one.example:9092")
    with pytest.raises(InvalidConfigError, match=r"--advertise is for one listener.*advertised\.listeners"):
        configuration(options(*two))


@pytest.mark.parametrize(
    ("option", "value", "config", "equal", "other"),
    [
        ("--listen", "127.0.0.1:9092", "listeners", "PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://127.0.0.1:9093"),
        ("--data", "/a", "log.dirs", "/a", "/a,/b"),
        ("--node-id", "1", "node.id", "1", "2"),
        ("--advertise", "a:1", "advertised.listeners", "PLAINTEXT://a:1", "PLAINTEXT://b:1"),
    ],
)
def test_an_option_and_a_setting_do_not_contradict_each_other(
    option: str, value: str, config: str, equal: str, other: str
) -> None:
    assert equal == configuration(options(option, value, "--set", f"{config}={equal}")).static[config]
    with pytest.raises(MisuseError, match=f"^{option} sets {config}={equal}, but --set sets {config}={other}; remove"):
        configuration(options(option, value, "--set", f"{config}={other}"))


def test_pauses_grow_and_begin_anew_after_a_steady_life() -> None:
    restarts = Restarts()
    assert [0, 0.5, 1, 2, 4, 8, 16, 30, 30] == [restarts.pause_after(1) for _ in range(9)]
    assert [0, 0.5] == [restarts.pause_after(60), restarts.pause_after(59)]


@pytest.mark.parametrize(
    "text", ["", "sqlite:", "sqlite", "zookeeper:", "zookeeper://", "zookeeper://h:1,", "etcd://h"]
)
def test_what_names_no_store(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"expected .*zookeeper://HOST:PORT,HOST:PORT/path"):
        check_metadata_option(text)


def test_a_missing_client_of_zookeeper_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_option, "find_spec", lambda name: None)
    with pytest.raises(InvalidConfigError, match=r"pip install 'ottla\[cluster\]'"):
        check_metadata_option("zookeeper://a:2181,b:2181/ottla")
    check_metadata_option("sqlite:/somewhere/metadata.db")


# The processes


def test_one_that_dies_comes_back_and_all_stop_one_after_the_other(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data, "--brokers", "3", "--node-id", "5") as served:
        addresses = served.wait_ready()
        with Admin(bootstrap_servers=addresses) as admin:
            admin.create_topics([NewTopic("t", 3, 3)])
            assert [5, 6, 7] == sorted(each.id for each in admin.describe_cluster().brokers)
        with Producer(bootstrap_servers=addresses, acks="all") as producer:
            producer.send("t", b"1", partition=0).get(PATIENCE_SECONDS)
            before = sorted(children(served.pid))
            os.kill(before[1], signal.SIGKILL)
            wait_until(lambda: len(children(served.pid)) == 3 and set(before) != children(served.pid))
            producer.send("t", b"2", partition=0).get(PATIENCE_SECONDS)
        with Admin(bootstrap_servers=addresses) as admin:
            # It is where it was.
            wait_until(lambda: addresses.split(",") == cluster_addresses(admin))
        status, log = served.stop(), served.log
    assert 0 == status, log
    assert f"(process {before[1]}) ended by SIGKILL; restarting it at once" in log
    stopping = [line.split("[")[1].split("]")[0] for line in log.splitlines() if line.endswith(": stopping")]
    assert ["broker 7", "broker 6", "broker 5"] == stopping
    for folder in (data, data / "brokers" / "6", data / "brokers" / "7"):
        assert (folder / ".kafka_cleanshutdown").exists()


@pytest.mark.slow
def test_a_single_broker_grows_and_may_not_leave_replicas_behind(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as served, Producer(bootstrap_servers=served.wait_ready()) as producer:
        producer.send("old", b"1").get(PATIENCE_SECONDS)
        producer.close()
        assert 0 == served.stop()
    with serving(tmp_path / "data", "--brokers", "2") as served:
        addresses = served.wait_ready()
        with Admin(bootstrap_servers=addresses) as admin:
            admin.create_topics([NewTopic("new", 2, 2)])
        with Producer(bootstrap_servers=addresses, acks="all") as producer:
            producer.send("old", b"2").get(PATIENCE_SECONDS)
        with Consumer("old", bootstrap_servers=addresses, auto_offset_reset="earliest") as consumer:
            assert [b"1", b"2"] == [record.value for _, record in zip(range(2), consumer, strict=False)]
        assert 0 == served.stop()
    with serving(tmp_path / "data") as served:
        assert 1 == served.wait()
    assert "2 partition(s)" in served.log
    assert "broker(s) 1, which would not run; start with --brokers 2" in served.log
    with serving(tmp_path / "data", "--brokers", "2") as served:
        with Admin(bootstrap_servers=served.wait_ready()) as admin:
            admin.delete_topics(["new"])
        assert 0 == served.stop()
    with serving(tmp_path / "data") as served, Admin(bootstrap_servers=served.wait_ready()) as admin:
        assert ["old"] == admin.list_topics()


def test_one_that_cannot_start_ends_all(tmp_path: Path) -> None:
    port = consecutive_free_ports(2)
    with (
        socket.create_server(("127.0.0.1", port + 1)),
        serving(tmp_path / "data", "--brokers", "2", listen=f"127.0.0.1:{port}") as served,
    ):
        assert 1 == served.wait()
    assert f"cannot listen on 127.0.0.1:{port + 1}" in served.log
    assert "broker 1 could not be started: it ended with status 1; stopping all brokers" in served.log
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_without_the_supervisor_the_brokers_stop(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--brokers", "2") as served:
        served.wait_ready()
        brokers = children(served.pid)
        served.send(signal.SIGKILL)
        served.wait()
        wait_until(lambda: not any(_is_alive(broker) for broker in brokers))
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "data" / "brokers" / "1" / ".kafka_cleanshutdown").exists()


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_second_signal_stops_all_at_once(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--brokers", "3") as served:
        served.wait_ready()
        last = max(children(served.pid))
        # The one that is asked first does not answer, so the others are not asked after one signal.
        os.kill(last, signal.SIGSTOP)

        def is_last() -> bool:
            served.send(signal.SIGINT)
            return children(served.pid) == {last}

        wait_until(is_last)
        os.kill(last, signal.SIGCONT)
        assert 0 == served.wait(), served.log_end


def test_ready_means_that_every_broker_sees_all(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--brokers", "3") as served:
        addresses = served.wait_ready().split(",")
        seen = []
        for address in addresses:
            with RawConnection(address) as connection:
                answer = connection.ask_newest(ApiKey.METADATA, {"topics": []})
                seen.append(sorted(broker.node_id for broker in answer.brokers))
        assert [[0, 1, 2]] * 3 == seen
        with Admin(bootstrap_servers=addresses[0]) as admin:
            admin.create_topics([NewTopic("t", 1, 3)])


def test_it_is_not_ready_before_a_broker_says_that_it_sees_all(tmp_path: Path) -> None:
    """With processes that only say so: the second sees all once a file exists, which is made when both serve."""
    program = f"""
import pathlib, sys, time
from ottla.broker.supervisor import SEES_ALL, Supervisor

allowed = pathlib.Path({str(tmp_path / "allowed")!r})

def run(broker, address, say):
    say(f"host:{{broker}}")
    print(f"serving {{broker}}\\n", end="", flush=True)
    while broker == 1 and not allowed.exists():
        time.sleep(0.01)
    print(f"sees all {{broker}}\\n", end="", flush=True)
    say(SEES_ALL)
    time.sleep(60)
    return 0

Supervisor([0, 1], run, lambda addresses: print("ready", *addresses, flush=True)).run()
"""
    with Program([sys.executable, "-c", program], tmp_path / "supervisor") as supervisor:
        assert {"serving 0", "sees all 0", "serving 1"} == {supervisor.next_line() for _ in range(3)}
        (tmp_path / "allowed").touch()
        assert ["sees all 1", "ready host:0 host:1"] == [supervisor.next_line() for _ in range(2)]
