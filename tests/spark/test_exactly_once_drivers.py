"""Exactly once when whole drivers are killed, are replaced while they sleep, and when tasks run again or twice."""

import os
import signal
from pathlib import Path

import pytest

from tests.spark.committed_records import committed_values, open_transactions
from tests.spark.driver_process import DriverProcess
from tests.spark.killing_source import POINTS
from tests.spark.standalone_cluster import StandaloneCluster
from tests.spark.topics import Topics, numbers
from tests.waiting import wait_until

COUNT = 2_000
QUICK = ("half-committed",)
"""The others are for the slower suites: what they leave on the brokers is in `test_exactly_once_kills.py`, too."""


@pytest.fixture
def source(ottla: Topics) -> str:
    topic = ottla.create(2)
    ottla.fill(topic, numbers(0, COUNT // 2), 0)
    ottla.fill(topic, numbers(COUNT // 2, COUNT), 1)
    return topic


def check_once(topics: Topics, output: str) -> None:
    assert [] == open_transactions(topics.bootstrap)
    assert sorted(numbers(0, COUNT)) == committed_values(topics.bootstrap, output)


@pytest.mark.parametrize(
    "point", [each if each in QUICK else pytest.param(each, marks=pytest.mark.long) for each in POINTS]
)
def test_the_driver_is_killed_there(ottla: Topics, source: str, tmp_path: Path, point: str) -> None:
    output = ottla.create(2)
    given = {"bootstrap": ottla.bootstrap, "source": source, "output": output}
    with DriverProcess(tmp_path, **given, writing={"killAt": point, "killHow": "driver"}) as driver:
        assert -signal.SIGKILL == driver.wait(), driver.log[-6000:]
    with DriverProcess(tmp_path, **given) as driver:
        driver.wait_well()
    check_once(ottla, output)


@pytest.mark.long
@pytest.mark.parametrize("point", ["before-decision", "half-committed"])
def test_a_driver_that_was_replaced_while_it_slept_does_no_harm(
    ottla: Topics, source: str, tmp_path: Path, point: str
) -> None:
    output = ottla.create(2)
    given = {"bootstrap": ottla.bootstrap, "source": source, "output": output}
    note = tmp_path / f"{point}-happened"
    with DriverProcess(tmp_path, **given, writing={"killAt": point, "killHow": "stop"}) as zombie:

        def sleeps() -> bool:
            assert zombie.is_running, zombie.log_end
            return note.exists() and bool(note.read_text())

        wait_until(sleeps, "the driver sleeps")
        with DriverProcess(tmp_path, **given) as driver:
            driver.wait_well()
        check_once(ottla, output)
        os.kill(int(note.read_text()), signal.SIGCONT)
        assert 0 != zombie.wait()
        assert "another driver has taken over sink" in zombie.log
    check_once(ottla, output)


def test_a_task_that_dies_is_run_again(ottla: Topics, source: str, tmp_path: Path) -> None:
    output = ottla.create(2)
    given = {"bootstrap": ottla.bootstrap, "source": source, "output": output, "master": "local[2,4]"}
    with DriverProcess(tmp_path, **given, writing={"killAt": "mid-write", "killHow": "worker"}) as driver:
        driver.wait_well()
    assert (tmp_path / "mid-write-happened").exists()
    check_once(ottla, output)


@pytest.mark.long
def test_a_slow_task_is_overtaken_by_its_copy(ottla: Topics, source: str, tmp_path: Path) -> None:
    """Speculation: the first attempt hangs in the middle of its rows, on an executor of its own."""
    output = ottla.create(2)
    given = {"bootstrap": ottla.bootstrap, "source": source, "output": output}
    settings = {
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.interval": "100ms",
    }
    hanging = {"killAt": "mid-write", "killHow": "hang"}
    with (
        StandaloneCluster(tmp_path / "cluster") as cluster,
        DriverProcess(tmp_path, **given, master=cluster.master, settings=settings, writing=hanging) as driver,
    ):
        driver.wait_well()
    assert (tmp_path / "mid-write-happened").exists()
    check_once(ottla, output)
