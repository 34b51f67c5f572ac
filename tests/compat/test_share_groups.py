"""Share groups with the Java client of Kafka: the same scenario gives the same transcript on Apache Kafka and on Ottla.

`ShareScenario.java` accepts, releases, rejects and renews, runs into the delivery limit, has two members, and asks the
admin client. On Ottla it goes on through a crash of the broker; Kafka's tools look at what is left.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.kafka_broker import KafkaBroker
from tests.compat.kafka_jars import SHORT_LIVED_JVM, compile_java, java_command, kafka_tool
from tests.compat.ottla_broker import OttlaBroker
from tests.waiting import PATIENCE_SECONDS

SOURCE = Path(__file__).with_name("ShareScenario.java")
EXPECTED = [
    "first 0=0#1 1=1#1 2=2#1 3=3#1 4=4#1 5=5#1",
    "committed [ok]",
    "second 1=1#2 3=3#2",
    "committed [ok]",
    "third 6=6#1 7=7#1",
    "renewed [ok]",
    "again 6=6#1",
    "committed [ok]",
    "group Stable members 1",
    "member [shared-0]",
    "lag 0",
    "listed [Optional[Share] share Empty]",
    "shared 12 distinct 12",
]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    compile_java(SOURCE, folder)
    return folder


@pytest.fixture
def ottla(tmp_path: Path) -> Iterator[OttlaBroker]:
    with OttlaBroker(tmp_path / "broker") as broker:
        yield broker


def play(classes: Path, bootstrap: str, *args: str) -> list[str]:
    """Runs a part of the scenario and returns what it printed."""
    command = java_command("ShareScenario", bootstrap, *args, jvm_options=SHORT_LIVED_JVM, extra_path=str(classes))
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_kafka_shows_what_is_expected(classes: Path, kafka: KafkaBroker) -> None:
    assert EXPECTED == play(classes, kafka.bootstrap, "begin", "shared", "share-group")


def test_ottla_shows_the_same_and_goes_on_after_a_crash(classes: Path, ottla: OttlaBroker) -> None:
    assert EXPECTED == play(classes, ottla.bootstrap, "begin", "shared", "share-group")
    play(classes, ottla.bootstrap, "produce", "shared", "share-group", "20", "23")
    ottla.kill()
    ottla.start()
    assert ["drained [20, 21, 22]"] == play(classes, ottla.bootstrap, "drain", "shared", "share-group", "3")
    tool = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
    described = kafka_tool(
        tool, "--bootstrap-server", ottla.bootstrap, "--describe", "--offsets", "--group", "share-group"
    )
    (row,) = [line.split() for line in described.stdout.splitlines() if line.startswith("share-group ")]
    assert ["share-group", "shared", "0", "23", "0"] == row
