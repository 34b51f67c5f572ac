"""The whole of it under fire: topic → shuffle → topic on a cluster of processes, while drivers, executors, broker die.

They die by SIGKILL at random moments of random batches. A driver that is gone is started again from the checkpoint, as
an operator or a service would. In the end another client's reader of committed records finds each record once.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from ottla.client.producer.blocking_producer import Producer
from ottla.testing import ProcessBroker
from tests.spark.committed_records import committed_values, open_transactions
from tests.spark.driver_process import DriverProcess
from tests.spark.standalone_cluster import StandaloneCluster
from tests.spark.topics import Topics
from tests.waiting import wait_until

PARTITIONS = 4
WAIT_S = 600
SETTINGS = {"spark.task.maxFailures": "8"}


@pytest.fixture
def broker_under_fire(tmp_path: Path) -> Iterator[ProcessBroker]:
    with ProcessBroker(tmp_path / "broker") as broker:
        yield broker


class Fire:
    """Keeps a query going and kills what keeps it going, one victim after the other."""

    def __init__(
        self,
        broker: ProcessBroker,
        cluster: StandaloneCluster,
        folder: Path,
        victims: list[str],
        dice: Random,
        given: dict[str, object],
        feed: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._cluster = cluster
        self._folder = folder
        self._victims = victims
        self._dice = dice
        self._given = given
        self._feed = feed
        self.story: list[str] = []

    def run(self) -> None:
        """Returns when the query has ended by itself, after the last kill."""
        driver = DriverProcess(self._folder, **self._given)
        try:
            while self._victims:
                if self._wait_for_work(driver) and self._kill(self._victims[-1], driver):
                    self._victims.pop()
                if not driver.is_running:
                    self._tell(f"the driver ended with {driver.process.returncode}; started again")
                    if driver.process.returncode == 0:
                        # All was copied before all kills: the query was faster than this process.
                        self._feed()
                    driver.kill()
                    driver = DriverProcess(self._folder, **self._given)
            while driver.wait(WAIT_S) != 0:
                self._tell("the driver failed; started again")
                assert self.story.count("the driver failed; started again") < 5, driver.log_end
                driver = DriverProcess(self._folder, **self._given)
        finally:
            driver.kill()

    def _wait_for_work(self, driver: DriverProcess) -> bool:
        """Waits for some batches more, and then for no particular moment; whether the driver is there then."""
        target = self._batches() + self._dice.randint(1, 2)
        wait_until(
            lambda: self._batches() >= target or not driver.is_running,
            lambda: f"batch {target} is committed: {self.story}\n{driver.log_end}",
            WAIT_S,
        )
        time.sleep(self._dice.uniform(0, 1.5))  # not to wait for anything: the kill comes at any moment of a batch
        return driver.is_running

    def _batches(self) -> int:
        folder = self._folder / "checkpoint" / "commits"
        names = [each.name for each in folder.iterdir() if each.name.isdigit()] if folder.exists() else []
        return max(map(int, names), default=-1)

    def _kill(self, victim: str, driver: DriverProcess) -> bool:
        """Whether there was one to kill."""
        if victim == "executor" and not self._kill_executor():
            return False
        self._tell(f"{victim} killed after batch {self._batches()}")
        if victim == "broker":
            os.kill(self._broker.pid, signal.SIGKILL)
            time.sleep(self._dice.uniform(0, 1))  # how long the broker is away
            self._broker.kill()
            self._broker.start()
        elif victim == "driver":
            os.killpg(driver.process.pid, signal.SIGKILL)
            driver.wait()
        return True

    def _kill_executor(self) -> bool:
        executors = self._cluster.executors()
        # Those of a driver that has just ended go by themselves.
        with suppress(ProcessLookupError):
            if executors:
                os.kill(self._dice.choice(executors), signal.SIGKILL)
                return True
        return False

    def _tell(self, what: str) -> None:
        self.story.append(what)


@pytest.mark.parametrize(
    ("record_count", "kills"),
    [
        pytest.param(60_000, 3, id="3 kills"),
        pytest.param(600_000, 20, id="20 kills", marks=pytest.mark.long),
    ],
)
def test_every_record_arrives_once(
    broker_under_fire: ProcessBroker, tmp_path: Path, record_count: int, kills: int
) -> None:
    seed = time.time_ns() % 1_000_000
    expected: list[bytes] = []
    with StandaloneCluster(tmp_path / "cluster") as cluster, Topics(broker_under_fire.bootstrap) as topics:
        source, output = topics.create(PARTITIONS), topics.create(PARTITIONS)

        def feed() -> None:
            """The first records, or as many again."""
            more = [b"%09d" % number for number in range(len(expected), len(expected) + record_count)]
            rows = pa.table({"key": [value[-3:] for value in more], "value": more})
            with Producer(bootstrap_servers=broker_under_fire.bootstrap) as producer:
                producer.send_table(source, rows).get(60)
            expected.extend(more)

        feed()
        victims = [("driver", "executor", "broker")[number % 3] for number in range(kills)]
        dice = Random(seed)
        dice.shuffle(victims)
        given = {
            "bootstrap": broker_under_fire.bootstrap,
            "source": source,
            "output": output,
            "master": cluster.master,
            "shuffles": True,
            "settings": SETTINGS,
            # Mostly enough batches for all kills, even if each comes two batches and a restart after the one before.
            "reading": {"maxOffsetsPerTrigger": str(record_count // (kills * 4))},
        }
        fire = Fire(broker_under_fire, cluster, tmp_path, victims, dice, given, feed)
        fire.run()
        found = committed_values(broker_under_fire.bootstrap, output)
        if expected != found:
            often = Counter(found)
            missing = [value for value in expected if value not in often]
            twice = [value for value, count in often.items() if count > 1]
            raise AssertionError(
                f"{len(missing)} of {len(expected)} missing {missing[:3]}, {len(twice)} twice {twice[:3]}; seed {seed},"
                f" {fire.story}"
            )
        assert kills == sum("killed" in each for each in fire.story)
        assert [] == open_transactions(broker_under_fire.bootstrap)
    print(f"{len(expected)} records, each once, after {kills} kills: {fire.story}")
