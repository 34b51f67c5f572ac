"""Share groups with the Java client of Kafka: the same scenario gives the same transcript on Apache Kafka and on Ottla.

`ShareScenario.java` accepts, releases, rejects and renews, runs into the delivery limit, has two members, and asks the
admin client. On Ottla it goes on through a crash of the broker; Kafka's tools look at what is left.
"""

import subprocess
from pathlib import Path

from tests.compat.clients.client_builds import built
from tests.compat.kafka_broker import KafkaBroker
from tests.compat.kafka_jars import SHORT_LIVED_JVM, compile_java, java_command, kafka_tool
from tests.compat.kafkas_word import KafkasWord
from tests.compat.ottla_broker import OttlaBroker
from tests.waiting import PATIENCE_SECONDS

SOURCE = Path(__file__).with_name("ShareScenario.java")


def play(bootstrap: str, *args: str) -> list[str]:
    """Runs a part of the scenario and returns what it printed."""
    classes = built("share-scenario", [SOURCE], lambda folder: compile_java(SOURCE, folder))
    command = java_command("ShareScenario", bootstrap, *args, jvm_options=SHORT_LIVED_JVM, extra_path=str(classes))
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_ottla_shows_the_same_as_kafka_and_goes_on_after_a_crash(kafkas_word: KafkasWord, ottla: OttlaBroker) -> None:
    def begin(broker: KafkaBroker | OttlaBroker) -> list[str]:
        return play(broker.bootstrap, "begin", "shared", "share-group")

    assert kafkas_word(begin) == begin(ottla)
    play(ottla.bootstrap, "produce", "shared", "share-group", "20", "23")
    ottla.kill()
    ottla.start()
    assert ["drained [20, 21, 22]"] == play(ottla.bootstrap, "drain", "shared", "share-group", "3")
    tool = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
    described = kafka_tool(
        tool, "--bootstrap-server", ottla.bootstrap, "--describe", "--offsets", "--group", "share-group"
    )
    (row,) = [line.split() for line in described.stdout.splitlines() if line.startswith("share-group ")]
    assert ["share-group", "shared", "0", "23", "0"] == row
