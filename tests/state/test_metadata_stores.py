"""Random lives of the SQLite and the simulated metadata store with several clients.

ZooKeeper's are in `tests/cluster`."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from ottla.sim.store import StoreFaults
from tests.effort import effort
from tests.state.metadata_machine import StoresMachine
from tests.unit.metadata.store_worlds import SimWorld, SqliteWorld

pytestmark = pytest.mark.slow


class SqliteMachine(StoresMachine):
    """Several stores on one file."""

    def make_world(self) -> SqliteWorld:
        self.folder = tempfile.mkdtemp()
        return SqliteWorld(Path(self.folder))

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


class SimMachine(StoresMachine):
    """The simulated store, with losses on the way."""

    world: SimWorld

    def make_world(self) -> SimWorld:
        return SimWorld()

    @initialize(
        delay_max_ms=st.sampled_from([0.0, 1.0, 50.0]),
        lost_request_share=st.sampled_from([0.0, 0.1]),
        lost_answer_share=st.sampled_from([0.0, 0.1, 0.3]),
    )
    def choose_faults(self, delay_max_ms: float, lost_request_share: float, lost_answer_share: float) -> None:
        self.world.ensemble.faults = StoreFaults(
            delay_max_ms=delay_max_ms, lost_request_share=lost_request_share, lost_answer_share=lost_answer_share
        )


TestSqlite = SqliteMachine.TestCase
TestSqlite.settings = effort(examples=30, steps=25)

TestSimulated = SimMachine.TestCase
TestSimulated.settings = effort(examples=60, steps=25)
