"""The log against its model: random lives of one partition. `tests/crash/test_log_crashes.py` adds power cuts."""

from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ottla.env.ports import Disk
from ottla.env.real_disk import RealDisk
from ottla.sim.disk import SimDisk
from ottla.storage.log_config import LogConfig
from tests.effort import effort
from tests.state.log_rig import DATA, ModelledLog, Wish
from tests.state.log_wishes import configs, follower_wishes, index_bytes, markers, shares, wishes


class LogMachine(RuleBasedStateMachine):
    """One partition's life."""

    data = DATA

    def make_disk(self) -> Disk:
        return SimDisk()

    @initialize(config=configs)
    def begin(self, config: LogConfig) -> None:
        self.rig = ModelledLog(self.make_disk(), config, self.data)

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.rig.inspect()
            self.rig.reopen()
            self.rig.inspect()
            self.rig.close()
            self.rig.close_loop()

    def offset(self, share: float, beyond: int = 0) -> int:
        """Somewhere between a little before the start and `beyond` the end."""
        low = max(0, self.rig.model.start - 3)
        return low + int(share * (self.rig.model.end + beyond - low))

    @rule(batches=wishes, new_epoch=st.booleans())
    def append(self, batches: list[Wish], new_epoch: bool) -> None:
        self.rig.append(batches, new_epoch=new_epoch)

    @rule(marker=markers)
    def append_marker(self, marker: Wish) -> None:
        self.rig.append_marker(marker)

    @rule(batches=follower_wishes, new_epoch=st.booleans(), spare_bytes=st.integers(0, 90))
    def append_as_follower(self, batches: list[Wish], new_epoch: bool, spare_bytes: int) -> None:
        self.rig.append_as_follower(batches, new_epoch=new_epoch, spare_bytes=spare_bytes)

    @rule(batches=follower_wishes, out_of_order=st.booleans())
    def append_damaged_run(self, batches: list[Wish], out_of_order: bool) -> None:
        self.rig.append_damaged_run(batches, out_of_order=out_of_order)

    @rule()
    def roll(self) -> None:
        self.rig.roll()

    @rule(share=shares)
    def advance_high_watermark(self, share: float) -> None:
        self.rig.advance_high_watermark(share)

    @rule()
    def replicate_all(self) -> None:
        self.rig.advance_high_watermark(0.999999)

    @rule(share=shares, max_bytes=st.integers(0, 6000), upper=st.none() | shares, at_least_one=st.booleans())
    def read(self, share: float, max_bytes: int, upper: float | None, at_least_one: bool) -> None:
        bound = None if upper is None else self.offset(upper)
        self.rig.read(self.offset(share, 3), max_bytes, bound, at_least_one=at_least_one)

    @rule(age_ms=st.integers(-10, 4000))
    def find(self, age_ms: int) -> None:
        self.rig.find(self.rig.now - age_ms)

    @rule(share=shares)
    def truncate_to(self, share: float) -> None:
        self.rig.truncate_to(self.offset(share, 2))

    @rule(share=shares, beyond=st.integers(0, 50))
    def truncate_fully(self, share: float, beyond: int) -> None:
        self.rig.truncate_fully(self.offset(share, beyond))

    @rule(share=shares)
    def advance_start(self, share: float) -> None:
        self.rig.advance_start(self.offset(share))

    @rule()
    def expire(self) -> None:
        self.rig.expire()

    @rule(seconds=st.integers(1, 8))
    def pass_time(self, seconds: int) -> None:
        self.rig.clock.advance(seconds)

    @rule()
    def flush(self) -> None:
        self.rig.flush()

    @rule()
    def save_checkpoints(self) -> None:
        self.rig.save_checkpoints()

    @rule()
    def sweep(self) -> None:
        self.rig.sweep()

    @rule()
    def release_idle(self) -> None:
        self.rig.release_idle()

    @rule()
    def inspect(self) -> None:
        self.rig.inspect()

    @rule(index_bytes=st.none() | index_bytes)
    def reopen(self, index_bytes: int | None) -> None:
        self.rig.reopen(index_bytes)

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "rig"):
            self.rig.check()


class KilledLogMachine(LogMachine):
    """The same with a process that is killed now and then: the page cache survives."""

    @rule()
    def kill(self) -> None:
        self.rig.kill()


def test_log_equals_its_model() -> None:
    run_state_machine_as_test(KilledLogMachine, settings=effort(60, 40))


def test_log_equals_its_model_on_the_real_disk(tmp_path: Path) -> None:
    """A few lives on the system's own files, so that the simulated disk is not the only witness."""
    numbers = iter(range(1_000_000))

    class RealLogMachine(LogMachine):
        def make_disk(self) -> Disk:
            self.data = str(tmp_path / f"data-{next(numbers)}")
            return RealDisk()

    run_state_machine_as_test(RealLogMachine, settings=effort(8, 30))


def test_a_group_opens_transactions_in_the_order_of_their_offsets() -> None:
    """The producers of one group appear in another order than their transactions."""
    rig = ModelledLog(SimDisk(), LogConfig())
    rig.append([Wish(producer=0), Wish(producer=2, transactional=True), Wish(producer=0, transactional=True)])
    rig.advance_high_watermark(0.999999)
    rig.check()
    assert 1 == rig.log.last_stable_offset
    rig.close_loop()


def test_a_reopened_log_goes_on_in_an_older_segment_after_a_cut_between_two() -> None:
    rig = ModelledLog(SimDisk(), LogConfig(segment_bytes=700))
    rig.append([Wish(value_bytes=400)] * 4)
    rig.reopen()
    rig.truncate_to(3)
    rig.append([Wish(value_bytes=20)], new_epoch=True)
    rig.inspect()
    rig.close_loop()


def test_a_batch_is_shown_only_if_all_of_it_may_be() -> None:
    rig = ModelledLog(SimDisk(), LogConfig())
    rig.append([Wish(count=3), Wish(count=3)])
    for upper in range(7):
        for offset in range(7):
            rig.read(offset, 1000, upper, at_least_one=True)
    rig.close_loop()
