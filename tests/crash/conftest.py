"""A broker that tests kill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    """Has the settings of the module's mark `ottla_broker`; at the end it must have complained of nothing."""
    marker = request.node.get_closest_marker("ottla_broker")
    with BrokerProcess(tmp_path / "broker", settings=marker.args[0] if marker else None) as broker:
        yield broker
        assert [] == broker.alarms()
