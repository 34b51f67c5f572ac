"""What Kubernetes does in a rolling restart by the manifests of `deploy/kubernetes`: real brokers, without Kubernetes.

The `preStop` hook is run as it is written there: it must hold a broker back while another one is missing, or its
replicas are not in sync yet, and let it go after that.
"""

import os
import sys
from pathlib import Path

import pytest
import yaml

from ottla.client.producer.blocking_producer import Producer
from ottla.testing import BrokerCluster, ProcessBroker
from tests.processes import Program
from tests.waiting import PATIENCE_SECONDS

MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes" / "brokers.yaml"
BOOTSTRAP = "ottla:9092"
HOLDS_SECONDS = 8
"""Several rounds of the hook's loop."""
SECONDS = PATIENCE_SECONDS


def pre_stop(server: str) -> list[str]:
    (brokers,) = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == "StatefulSet"]
    (container,) = brokers["spec"]["template"]["spec"]["containers"]
    command: list[str] = container["lifecycle"]["preStop"]["exec"]["command"]
    assert BOOTSTRAP in command[-1]
    return [*command[:-1], command[-1].replace(BOOTSTRAP, server)]


def test_a_broker_stops_only_when_the_others_are_in_sync(tmp_path: Path) -> None:
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with BrokerCluster(tmp_path, kind=ProcessBroker) as cluster:
        cluster.create_topic("t", 3)
        first, second, third = cluster.brokers
        with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            for restarted, asked in ((third, second), (second, first), (first, third)):
                restarted.stop()
                hook = pre_stop(f"127.0.0.1:{asked.port}")
                with Program(hook, tmp_path / f"hook-{restarted.id}", environment=environment) as stopping:
                    with pytest.raises(AssertionError, match="still running"):
                        stopping.wait(HOLDS_SECONDS)
                    # All partitions stay writable meanwhile.
                    producer.send("t", b"while one is missing").get(SECONDS)
                    restarted.start()
                    assert 0 == stopping.wait(), stopping.log_end
                    assert "healthy: 3 brokers" in stopping.printed().splitlines()[-1]
