"""Streams groups as in Kafka 4.4, through its own message classes and its Admin client: the broker asks a member for
the description of its topology, keeps it, and shows it. Kafka Streams 4.4 itself is not published."""

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.compat.clients.client_builds import built
from tests.compat.kafka_jars import NEWEST_CLIENTS_VERSION, SHORT_LIVED_JVM, compile_java, java_command
from tests.compat.ottla_broker import OttlaBroker
from tests.waiting import PATIENCE_SECONDS
from tests.wire.exchange import RawConnection
from tests.wire.groups import wait_coordinator
from tests.wire.world import create_topic

SOURCE: Final = Path(__file__).parent / "streams" / "newest" / "StreamsMember.java"


def test_a_member_of_kafka_4_4_describes_its_topology(tmp_path: Path) -> None:
    classes = built("streams-newest", [SOURCE], lambda folder: compile_java(SOURCE, folder, NEWEST_CLIENTS_VERSION))
    with OttlaBroker(tmp_path / "broker", overrides={"offsets.topic.num.partitions": "1"}) as broker:
        with RawConnection(broker.bootstrap) as connection:
            create_topic(connection, "words")
            wait_coordinator(connection, "app")
        command = java_command(
            "StreamsMember",
            *(broker.bootstrap, "app", "words"),
            version=NEWEST_CLIENTS_VERSION,
            jvm_options=SHORT_LIVED_JVM,
            extra_path=os.fspath(classes),
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert 0 == done.returncode, done.stdout + done.stderr
    *lines, described = done.stdout.splitlines()
    assert [
        "REQUIRED true",
        "LAG -1",
        "UPDATED 0",
        "STATUS NOT_REQUESTED",
        "ASSIGNOR sticky",
        "DESCRIPTION ",
        "STATUS AVAILABLE",
        "ASSIGNOR sticky",
    ] == lines
    assert all(word in described for word in ("source", "words", "count", "counts", "sink", "totals")), described
