"""What the tests on ZooKeeper share: servers, which take seconds to start."""

from collections.abc import Iterator

import pytest

from tests.cluster.zookeeper import ZooKeeperEnsemble


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    """One server, for tests that leave it running."""
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        yield ensemble
