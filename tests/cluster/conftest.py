"""What the tests on ZooKeeper share: servers, which take seconds to start."""

from collections.abc import Iterator

import pytest

from tests.cluster.zookeeper import SESSION_TIMEOUT_MAX_MS, ZooKeeperEnsemble


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    """One server, for tests that leave it running."""
    folder = tmp_path_factory.mktemp("zookeeper")
    with ZooKeeperEnsemble(folder, session_timeout_max_ms=SESSION_TIMEOUT_MAX_MS) as ensemble:
        yield ensemble
