"""A simulated metadata store that is replaced by a backup of itself."""

from ottla.metadata.store import Put
from ottla.sim.clock import SimClock
from ottla.sim.random import SimRandom
from ottla.sim.store_ensemble import EMPTY_STORE, SimMetadata


async def test_everything_is_as_it_was_then_and_leases_expire() -> None:
    clock = SimClock()
    ensemble = SimMetadata(clock, SimRandom(1), session_timeout_ms=1_000)
    token = ensemble.begin_session(None)
    ensemble.commit("lease", [Put("brokers/1", b"a", 0)], token)
    ensemble.commit("topic", [Put("topics/t", b"b", 0)], None)
    backup = ensemble.backup()
    assert (2, 1) == (backup.revision, backup.lease_count)
    ensemble.end_session(token)
    ensemble.commit("other", [Put("topics/u", b"c", 0)], None)
    newest = ensemble.backup()
    ensemble.restore(backup)
    assert ["brokers/1", "topics/t"] == [entry.key for entry in ensemble.snapshot()[1]]
    assert [] == ensemble.changes_after(2)
    # The commits that were made since are not remembered as made.
    assert 3 == ensemble.commit("other", [Put("topics/v", b"d", 0)], None)
    clock.advance(1.1)
    assert ["topics/t", "topics/v"] == [entry.key for entry in ensemble.snapshot()[1]]
    ensemble.restore(newest)
    assert (4, ["topics/t", "topics/u"]) == (ensemble.table.revision, [key for key, _, _ in ensemble.snapshot()[1]])
    ensemble.restore(EMPTY_STORE)
    assert (0, []) == ensemble.snapshot()
