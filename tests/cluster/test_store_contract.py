"""What every metadata store promises, on ZooKeeper."""

import pytest

from tests.cluster.zookeeper import ZooKeeperEnsemble
from tests.cluster.zookeeper_world import ZooKeeperWorld
from tests.unit.metadata.store_contract import StoreContract


class TestZooKeeper(StoreContract):
    @pytest.fixture
    def world(self, zookeeper: ZooKeeperEnsemble) -> ZooKeeperWorld:
        return ZooKeeperWorld(zookeeper.servers)
