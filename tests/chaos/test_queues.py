"""Three brokers run every kind of queue, while one after the other is killed.

The clients are librdkafka's. `CHAOS_SECONDS` says how long the long form takes. The checks are those of the simulator,
by the one clock of the machine: nothing early, nothing lost, nothing twice, ties in order, nothing that was withdrawn.
"""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ottla.testing import BrokerCluster, ProcessBroker
from tests.chaos.queue_clients import LOADS, PARTITIONS, TOPICS, QueueClients, check

KILLS: Final = 3
DOWN_SECONDS: Final = 1.0
LONG_SECONDS: Final = 600.0


def undergo(folder: Path, kills: Iterator[int]) -> None:
    """A cluster whose brokers are killed, each when the one before is back."""
    with BrokerCluster(folder, kind=ProcessBroker) as cluster:
        for topic, configs in TOPICS.items():
            cluster.create_topic(topic, PARTITIONS, configs)
        clients = QueueClients(cluster.bootstrap, [*LOADS])
        with clients.running():
            time.sleep(1)  # all clients are under way
            for at in kills:
                broker = cluster.brokers[at]
                broker.kill()
                time.sleep(DOWN_SECONDS)  # how long it is away
                broker.start()
                cluster.wait_in_sync()
    check(clients.history, [*LOADS])
    assert any(each.is_withdrawn for each in clients.history.parked.values())


def test_queues_keep_their_promises_while_brokers_are_killed(tmp_path: Path) -> None:
    undergo(tmp_path, iter(range(KILLS)))


@pytest.mark.long
def test_queues_keep_their_promises_for_long(tmp_path: Path) -> None:
    def kills() -> Iterator[int]:
        chance = random.Random(int(os.environ.get("CHAOS_SEED", "1")))
        deadline = time.monotonic() + float(os.environ.get("CHAOS_SECONDS", LONG_SECONDS)) / 2
        while time.monotonic() < deadline:
            yield chance.randrange(3)

    undergo(tmp_path, kills())
