"""`ottla serve --metadata zookeeper://…`: brokers that are started apart from each other are one cluster."""

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import NewTopic
from ottla.client.producer.blocking_producer import Producer
from tests.cluster.zookeeper import ZooKeeperEnsemble
from tests.waiting import PATIENCE_SECONDS

SECONDS = PATIENCE_SECONDS


def serve(folder: Path, *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-P", "-m", "ottla", "serve", "--data", str(folder), "--listen", "127.0.0.1:0", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ready(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    word, _, addresses = process.stdout.readline().strip().partition(" ")
    assert "ready" == word, process.communicate(timeout=SECONDS)[1]
    return addresses


def end(process: "subprocess.Popen[str]") -> int:
    process.terminate()
    process.communicate(timeout=SECONDS)
    return process.returncode


def test_brokers_of_two_commands_are_one_cluster(zookeeper: ZooKeeperEnsemble, tmp_path: Path) -> None:
    metadata = ("--metadata", f"zookeeper://{zookeeper.servers}/serve/two", "--set", "broker.session.timeout.ms=20000")
    with ExitStack() as running:
        several = running.enter_context(serve(tmp_path / "a", "--brokers", "2", *metadata))
        running.callback(several.kill)
        first = ready(several)
        alone = running.enter_context(serve(tmp_path / "b", "--node-id", "2", *metadata))
        running.callback(alone.kill)
        addresses = f"{first},{ready(alone)}"
        with Admin(bootstrap_servers=addresses) as admin:
            admin.create_topics([NewTopic("t", 1, 3)])
            deadline = time.monotonic() + SECONDS
            # Any of the brokers is asked: one may hear of the last one a little later.
            while [0, 1, 2] != (found := sorted(each.id for each in admin.describe_cluster().brokers)):
                assert time.monotonic() < deadline, found
        with Producer(bootstrap_servers=addresses, acks="all") as producer:
            producer.send("t", b"1").get(SECONDS)
            assert 0 == end(alone)
            producer.send("t", b"2").get(SECONDS)
        assert 0 == end(several)
    assert not (tmp_path / "a" / "metadata.db").exists()
