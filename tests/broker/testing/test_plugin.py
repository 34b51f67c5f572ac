"""The pytest plugin in a pytest of its own, as a user runs it: two processes side by side, and nothing left."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

TESTS = """
import pytest
from ottla.client.admin.values import ConfigResource
from ottla.client.admin.blocking_admin import Admin
from ottla.client.producer.blocking_producer import Producer
from ottla.client.admin.config_requests import ResourceType


@pytest.mark.parametrize("turn", range(4))
def test_fresh_broker_and_topic(ottla_broker, ottla_topic, turn):
    with Admin(bootstrap_servers=ottla_broker.bootstrap) as admin:
        assert [ottla_topic] == admin.list_topics()
        assert 1 == len(admin.describe_topics()[ottla_topic].partitions)
    assert ottla_topic.startswith(f"test_fresh_broker_and_topic-{turn}-")


@pytest.mark.ottla_broker({"log.retention.ms": "12345"})
@pytest.mark.ottla_topic(3, configs={"cleanup.policy": "compact"})
def test_markers(ottla_topic, ottla_broker_process):
    assert "12345" == ottla_broker_process.settings["log.retention.ms"]
    with Admin(bootstrap_servers=ottla_broker_process.bootstrap) as admin:
        assert 3 == len(admin.describe_topics()[ottla_topic].partitions)
        topic = ConfigResource(ResourceType.TOPIC, ottla_topic)
        configs = admin.describe_configs([topic])[topic]
        assert ("compact", "12345") == (configs["cleanup.policy"].value, configs["retention.ms"].value)


addresses = set()


@pytest.mark.parametrize("turn", range(2))
def test_shared(ottla_shared_broker, ottla_topic, turn):
    addresses.add(ottla_shared_broker.bootstrap)
    assert 1 == len(addresses)
    with Admin(bootstrap_servers=ottla_shared_broker.bootstrap) as admin:
        assert ottla_topic in admin.list_topics()


@pytest.mark.ottla_topic(2)
def test_cluster(ottla_cluster, ottla_topic):
    with Admin(bootstrap_servers=ottla_cluster.bootstrap) as admin:
        found = admin.describe_topics()[ottla_topic].partitions
    assert [{0, 1, 2}, {0, 1, 2}] == [set(each.replicas) for each in found]


@pytest.mark.ottla_cluster(2, settings={"log.retention.ms": "12345"})
@pytest.mark.ottla_topic(replicas=1)
def test_cluster_process(ottla_cluster_process, ottla_topic):
    assert ["12345"] * 2 == [each.settings["log.retention.ms"] for each in ottla_cluster_process.brokers]
    leader = ottla_cluster_process.leader_of(ottla_topic)
    with Admin(bootstrap_servers=ottla_cluster_process.bootstrap) as admin:
        assert [(leader.id,)] == [tuple(each.replicas) for each in admin.describe_topics()[ottla_topic].partitions]


@pytest.mark.ottla_broker({"log.retention.ms": "12345"})
def test_secured(ottla_secured_broker, ottla_topic):
    assert "12345" == ottla_secured_broker.settings["log.retention.ms"]
    with Admin(**ottla_secured_broker.client_options()) as admin:
        assert [ottla_topic] == admin.list_topics()


def test_a_topic_alone_has_a_broker(ottla_topic, request):
    with Producer(bootstrap_servers=request.getfixturevalue("ottla_broker").bootstrap) as producer:
        assert 0 == producer.send(ottla_topic, b"x").get(30).offset
"""


@pytest.mark.slow
def test_fixtures_markers_and_xdist(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(TESTS)
    (tmp_path / "temporary").mkdir()
    is_installed = any(each.value == "ottla.testing.plugin" for each in entry_points(group="pytest11"))
    named = [] if is_installed else ["-p", "ottla.testing.plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-n", "2", "-p", "no:cacheprovider", *named]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PATH": "", "TMPDIR": str(tmp_path / "temporary")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (0, True) == (done.returncode, "11 passed" in done.stdout), done.stdout + done.stderr
    assert [] == [each.name for each in (tmp_path / "temporary").iterdir() if each.name.startswith("ottla-")]


def test_loading_the_plugin_loads_no_broker() -> None:
    program = (
        "import sys, pytest; import ottla.testing.plugin; "
        "print([name for name in sys.modules if name.startswith(('ottla.broker', 'ottla.client', 'uvloop', 'kio'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()
