"""What every metadata store promises, on the SQLite store and on the simulated one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla.sim.store import StoreFaults
from tests.unit.metadata.store_contract import StoreContract
from tests.unit.metadata.store_worlds import SimWorld, SqliteWorld


class TestSqlite(StoreContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> SqliteWorld:
        return SqliteWorld(tmp_path)


@pytest.mark.slow
class TestSimulated(StoreContract):
    @pytest.fixture
    async def world(self) -> AsyncIterator[SimWorld]:
        async with SimWorld().running() as world:
            yield world


@pytest.mark.slow
class TestSimulatedWithFaults(StoreContract):
    """The same promises hold while requests and answers are lost."""

    @pytest.fixture
    async def world(self) -> AsyncIterator[SimWorld]:
        faults = StoreFaults(delay_max_ms=20.0, lost_request_share=0.1, lost_answer_share=0.2)
        async with SimWorld(3, faults).running() as world:
            yield world
