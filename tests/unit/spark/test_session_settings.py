"""What a session is made with on each kind of master: settings, and the environment of the process."""

import sys
from pathlib import Path

import pytest

from ottla.model.errors import MisuseError
from ottla.spark.launch import session
from ottla.spark.launch.session import default_settings, is_local, is_remote, spark_environment

JAVA = Path("/somewhere/java")
INSTALLED = Path("/somewhere/pyspark")
FAST = Path("/somewhere/spark-home-0123")


@pytest.fixture(autouse=True)
def all_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "java_home", lambda environment: JAVA)
    monkeypatch.setattr(session, "fast_home", lambda: FAST)
    monkeypatch.setattr(session, "installed_home", lambda: INSTALLED)


@pytest.mark.parametrize(
    ("master", "local", "remote"),
    [
        ("local", True, False),
        ("local[*]", True, False),
        ("local[2, 3]", True, False),
        ("local-cluster[2,1,1024]", True, False),
        ("spark://host:7077", False, False),
        ("yarn", False, False),
        ("k8s://https://host:443", False, False),
        ("localhost", False, False),
        ("sc://host:15002", False, True),
    ],
)
def test_masters(master: str, local: bool, remote: bool) -> None:
    assert (local, remote) == (is_local(master), is_remote(master))


@pytest.mark.parametrize(
    ("master", "partitions"),
    [("local", 2), ("local[1]", 2), ("local[6]", 6), ("local[6, 4]", 6), ("local-cluster[2, 3, 1024]", 6)],
)
def test_shuffle_partitions_follow_the_cores_of_this_machine(master: str, partitions: int) -> None:
    assert str(partitions) == default_settings(master)["spark.sql.shuffle.partitions"]


def test_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 12)
    assert "12" == default_settings("local[*]")["spark.sql.shuffle.partitions"]
    assert "12" == default_settings("local[*,2]")["spark.sql.shuffle.partitions"]


def test_a_cluster_keeps_its_own_settings() -> None:
    assert set() == {"spark.sql.shuffle.partitions", "spark.driver.host", "spark.ui.enabled"} & set(
        default_settings("spark://host:7077")
    )


@pytest.mark.parametrize("master", ["local[2]", "yarn", "sc://host"])
def test_time_is_utc_everywhere(master: str) -> None:
    assert "UTC" == default_settings(master)["spark.sql.session.timeZone"]


def test_a_local_session_uses_this_python_and_the_java_that_was_found() -> None:
    expected = {
        "JAVA_HOME": str(JAVA),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_HOME": str(FAST),
    }
    assert expected == spark_environment("local[2]", {})


def test_executors_elsewhere_choose_their_own_python() -> None:
    assert {"JAVA_HOME": str(JAVA), "PYSPARK_DRIVER_PYTHON": sys.executable} == spark_environment("yarn", {})


def test_a_python_that_was_chosen_stays() -> None:
    chosen = {"PYSPARK_PYTHON": "python3.13", "SPARK_HOME": "/opt/spark"}
    assert {"JAVA_HOME": str(JAVA), "PYSPARK_DRIVER_PYTHON": "python3.13"} == spark_environment("local[2]", chosen)
    both = {**chosen, "PYSPARK_DRIVER_PYTHON": "ipython"}
    assert {"JAVA_HOME": str(JAVA)} == spark_environment("local[2]", both)


@pytest.mark.parametrize(
    ("master", "inherited", "expected"),
    [
        ("local[2]", {}, str(FAST)),
        ("local[2]", {"SPARK_HOME": "/opt/spark"}, None),
        ("local[2]", {"SPARK_HOME": "/cache/spark-home-4567"}, str(FAST)),
        ("yarn", {}, None),
        ("yarn", {"SPARK_HOME": "/opt/spark"}, None),
        ("yarn", {"SPARK_HOME": str(FAST)}, str(INSTALLED)),
    ],
)
def test_the_fast_home_is_for_this_machine_alone(master: str, inherited: dict[str, str], expected: str | None) -> None:
    assert expected == spark_environment(master, inherited).get("SPARK_HOME")


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "java_home", lambda environment: None)
    with pytest.raises(MisuseError, match=r"Java 17 or newer.*pip install 'ottla\[spark\]'"):
        spark_environment("local[2]", {})


def test_a_driver_elsewhere_needs_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "java_home", lambda environment: None)
    assert {"PYSPARK_DRIVER_PYTHON": sys.executable} == spark_environment("sc://host", {})
