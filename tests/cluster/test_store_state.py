"""Random lives of the ZooKeeper metadata store with several clients: as they are, and with a log that is cut short."""

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.cluster.zookeeper import ZooKeeperEnsemble
from tests.cluster.zookeeper_world import ZooKeeperWorld
from tests.effort import effort
from tests.state.metadata_machine import StoresMachine


@pytest.mark.parametrize("snapshot_every", [1_000, 5])
def test_random_lives(zookeeper: ZooKeeperEnsemble, snapshot_every: int) -> None:
    class ZooKeeperMachine(StoresMachine):
        def make_world(self) -> ZooKeeperWorld:
            return ZooKeeperWorld(zookeeper.servers, snapshot_every=snapshot_every)

    run_state_machine_as_test(ZooKeeperMachine, settings=effort(examples=15, steps=25))
