"""The log when power fails: at every single disk operation of fixed scenarios, and anywhere in random lives.

After each crash the log is opened again, and `ModelledLog` demands that it is the beginning of a timeline that was
really written, holds all that was flushed, and starts no lower than was made durable; producers and epochs must be
those of the batches that are left. Crashes during the recovery itself are included.

Crashes at neighbouring operations often leave the same: a state that was recovered from is not recovered from again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from ottla.records.layout import Marker
from ottla.sim.disk import Moment, NameOrder, SimDisk
from ottla.storage.log_config import LogConfig
from tests.effort import IS_LONG, effort
from tests.state.log_rig import ModelledLog, Wish
from tests.state.log_wishes import replicated, shares, wishes
from tests.state.test_log_model import LogMachine

CONFIG = LogConfig(
    segment_bytes=2048,
    index_interval_bytes=256,
    segment_index_bytes=240,
    retention_ms=10_000,
    file_delete_delay_ms=2_000,
)
SECTOR = Wish(count=1, value_bytes=433)
"""A batch of exactly one sector, so that a lost sector leaves the batches around it whole."""
SEEDS = 24 if IS_LONG else 1
SECOND_CRASHES = 8 if IS_LONG else 1

seeds = st.integers(0, 1_000_000)
Scenario = Callable[[ModelledLog], None]


def append_roll_flush(rig: ModelledLog) -> None:
    rig.append([SECTOR, SECTOR])
    rig.flush()
    rig.append([SECTOR] * 3)
    rig.append([Wish(count=3, value_bytes=100)] * 4, new_epoch=True)
    rig.flush()
    rig.save_checkpoints()
    rig.append([SECTOR])
    rig.roll()
    rig.append([SECTOR], new_epoch=True)


def epochs_span_segments(rig: ModelledLog) -> None:
    rig.append([SECTOR] * 2)
    rig.append([SECTOR] * 4, new_epoch=True)
    rig.flush()
    rig.append([SECTOR] * 2, new_epoch=True)
    rig.flush()
    rig.save_checkpoints()
    rig.append([SECTOR] * 2)


def truncate_and_append_again(rig: ModelledLog) -> None:
    """The second timeline has the same sizes at the same places as the first."""
    rig.append([SECTOR] * 6)
    rig.flush()
    rig.save_checkpoints()
    rig.append([SECTOR] * 2)
    rig.truncate_to(3)
    rig.append([SECTOR] * 5, new_epoch=True)
    rig.flush()
    rig.append([SECTOR])
    rig.truncate_to(5)
    rig.append([SECTOR] * 3, new_epoch=True)


def truncate_within_a_batch(rig: ModelledLog) -> None:
    rig.append([Wish(count=4, value_bytes=50)] * 3)
    rig.flush()
    rig.save_checkpoints()
    rig.truncate_to(6)
    rig.append([Wish(count=3, value_bytes=70)] * 2, new_epoch=True)
    rig.flush()


def truncate_fully(rig: ModelledLog) -> None:
    rig.append([SECTOR] * 6)
    rig.flush()
    rig.truncate_fully(40)
    rig.append([SECTOR] * 2, new_epoch=True)
    rig.flush()
    rig.truncate_fully(41)
    rig.append([SECTOR], new_epoch=True)
    rig.truncate_fully(20)
    rig.append([SECTOR] * 2, new_epoch=True)
    rig.flush()


def advance_start(rig: ModelledLog) -> None:
    rig.append([SECTOR] * 7)
    rig.advance_high_watermark(0.999)
    rig.advance_start(2)
    rig.save_checkpoints()
    rig.advance_start(6)
    rig.append([SECTOR])
    rig.save_checkpoints()
    rig.append([SECTOR])
    rig.flush()


def start_behind_the_flushed(rig: ModelledLog) -> None:
    """The start is durable before the records that it lies behind."""
    rig.append([SECTOR] * 2)
    rig.flush()
    rig.append([SECTOR] * 4)
    rig.advance_high_watermark(0.999)
    rig.advance_start(5)
    rig.save_checkpoints()
    rig.append([SECTOR] * 2, new_epoch=True)


def retention(rig: ModelledLog) -> None:
    rig.append([SECTOR] * 9)
    rig.advance_high_watermark(0.6)
    rig.clock.advance(20)
    rig.expire()
    rig.append([SECTOR] * 2)
    rig.flush()
    rig.advance_high_watermark(0.999)
    rig.clock.advance(20)
    rig.expire()
    rig.sweep()
    rig.append([SECTOR])


def clean_close(rig: ModelledLog) -> None:
    rig.append([SECTOR] * 5)
    rig.append([Wish(count=2, producer=0, transactional=True)])
    rig.advance_high_watermark(0.999)
    rig.reopen()
    rig.append([SECTOR] * 2, new_epoch=True)
    rig.reopen()
    rig.append([SECTOR])


def kill_and_go_on(rig: ModelledLog) -> None:
    rig.append([SECTOR] * 3)
    rig.flush()
    rig.append([SECTOR] * 3)
    rig.kill()
    rig.append([SECTOR] * 2, new_epoch=True)
    rig.flush()
    rig.append([SECTOR])


def transactions(rig: ModelledLog) -> None:
    rig.append([Wish(producer=0, transactional=True), Wish(producer=1, transactional=True, value_bytes=433)])
    rig.flush()
    rig.append_marker(Wish(producer=0, marker=Marker.ABORT))
    rig.append([Wish(producer=2), SECTOR])
    rig.flush()
    rig.roll()
    rig.append([Wish(producer=1, transactional=True), SECTOR])
    rig.save_checkpoints()
    rig.append_marker(Wish(producer=1, marker=Marker.ABORT, epoch_step=1))
    rig.flush()
    rig.append([Wish(producer=1, transactional=True)])
    rig.roll()
    rig.append_marker(Wish(producer=1, marker=Marker.COMMIT))
    rig.save_checkpoints()


def follower(rig: ModelledLog) -> None:
    rig.append_as_follower([Wish(gap=2), SECTOR, SECTOR, Wish(producer=0, transactional=True)], spare_bytes=30)
    rig.flush()
    rig.append_as_follower([SECTOR, Wish(producer=0, marker=Marker.ABORT), SECTOR, SECTOR], new_epoch=True)
    rig.save_checkpoints()
    rig.append_as_follower([SECTOR, SECTOR], new_epoch=True)
    rig.truncate_to(rig.model.end - 3)
    rig.append_as_follower([SECTOR] * 4, new_epoch=True)
    rig.flush()


SCENARIOS: list[Scenario] = [
    append_roll_flush,
    epochs_span_segments,
    truncate_and_append_again,
    truncate_within_a_batch,
    truncate_fully,
    advance_start,
    start_behind_the_flushed,
    retention,
    clean_close,
    kill_and_go_on,
    transactions,
    follower,
]


def begin() -> ModelledLog:
    """A rig as each scenario finds it."""
    return ModelledLog(SimDisk(), CONFIG)


@lru_cache(maxsize=1)
def crashes_in(scenario: Scenario) -> dict[int, dict[Moment, ModelledLog]]:
    """Rigs that met a crash: at every disk operation of a scenario, by number, once all of it has gone well.

    They serve all tests of one scenario, which is the scope of the parameter. A test takes a twin and decides there
    what the crash leaves; up to the crash everything is the same.
    """
    rig = begin()
    first = rig.operation_count
    scenario(rig)
    rig.inspect()
    rig.close_loop()
    numbers = range(first, rig.operation_count)
    return {number: {moment: run_into(scenario, number, moment) for moment in Moment} for number in numbers}


def run_into(scenario: Scenario, number: int, moment: Moment) -> ModelledLog:
    """A rig that met a crash at the operation of this number."""
    rig = begin()
    rig.plan_crash(number, moment)
    assert not rig.survives(lambda: scenario(rig))
    rig.close_loop()
    return rig


def go_on(rig: ModelledLog, seed: int) -> None:
    """What was recovered is a log like any other: it is looked into, written to, and survives once more."""
    rig.inspect()
    rig.append([SECTOR, Wish(producer=2)], new_epoch=True)
    rig.flush()
    rig.append([SECTOR])
    rig.crash(seed)
    rig.inspect()
    rig.close_loop()


def recover_once(rig: ModelledLog, seed: int, recovered: set[bytes]) -> None:
    """Opens what the first crash left and goes on with it, unless that was done with the very same state before."""
    state = rig.state()
    if state in recovered:
        rig.close_loop()
        return
    recovered.add(state)
    rig.recover()
    go_on(rig, seed)


@contextmanager
def noting(what: str) -> Iterator[None]:
    """Tells with an error which crash led to it."""
    try:
        yield
    except BaseException as error:
        error.add_note(what)
        raise


each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__, scope="module")


@each_scenario
def test_power_fails_at_every_operation(scenario: Scenario) -> None:
    recovered: set[bytes] = set()
    for order in NameOrder:
        for number, crashes in crashes_in(scenario).items():
            for moment, crashed in crashes.items():
                for seed in range(number, number + SEEDS):
                    with noting(f"power failed {moment.value} operation {number}, {order}, seed {seed}"):
                        rig = crashed.twin(order)
                        rig.power_cut(seed)
                        recover_once(rig, seed, recovered)


@each_scenario
def test_the_process_dies_at_every_operation(scenario: Scenario) -> None:
    """All that was written is there, so that only what is done to it at the moment may look unfinished."""
    recovered: set[bytes] = set()
    for number, crashes in crashes_in(scenario).items():
        for moment, crashed in crashes.items():
            with noting(f"the process died {moment.value} operation {number}"):
                rig = crashed.twin(NameOrder.FOLDER)
                rig.process_death()
                recover_once(rig, number, recovered)


@each_scenario
def test_power_fails_again_during_recovery(scenario: Scenario) -> None:
    """The second crash falls on another operation of the recovery each time, or just behind it."""
    recovered: set[bytes] = set()
    for number, crashes in crashes_in(scenario).items():
        for second in range(SECOND_CRASHES):
            first_moment, second_moment = list(Moment)[number % 2], list(Moment)[number // 2 % 2]
            again = (number * 7 + second * 13) % 23
            with noting(f"power failed {first_moment.value} operation {number}, and {second_moment.value} {again}"):
                rig = crashes[first_moment].twin(NameOrder.FOLDER)
                rig.power_cut(number)
                rig.plan_crash(again, second_moment)
                rig.survives(rig.recover)
                rig.power_cut(number + second)
                recover_once(rig, number, recovered)


class CrashingLogMachine(LogMachine):
    """The life of a partition on a machine whose power fails now and then, also in the middle of something."""

    @rule(seed=seeds)
    def crash(self, seed: int) -> None:
        self.rig.crash(seed)

    @rule()
    def kill(self) -> None:
        self.rig.kill()

    @rule(
        what=st.sampled_from(["append", "follow", "truncate", "restart", "start", "expire", "flush", "reopen", "kill"]),
        batches=wishes,
        share=shares,
        delay=st.integers(0, 25),
        moment=st.sampled_from(list(Moment)),
        seed=seeds,
    )
    def crash_within(self, what: str, batches: list[Wish], share: float, delay: int, moment: Moment, seed: int) -> None:
        """Power fails some operations after the beginning of this, or right behind it."""
        rig = self.rig
        works: dict[str, Callable[[], None]] = {
            "append": lambda: rig.append(batches, new_epoch=True),
            "follow": lambda: rig.append_as_follower([replicated(wish, 0) for wish in batches]),
            "truncate": lambda: rig.truncate_to(self.offset(share)),
            "restart": lambda: rig.truncate_fully(self.offset(share, 9)),
            "start": lambda: rig.advance_start(self.offset(share)),
            "expire": rig.expire,
            "flush": rig.flush,
            "reopen": rig.reopen,
            "kill": rig.kill,
        }
        rig.plan_crash(rig.operation_count + delay, moment)
        rig.survives(works[what])
        rig.crash(seed)


def test_random_lives_with_power_cuts() -> None:
    run_state_machine_as_test(CrashingLogMachine, settings=effort(60, 40))
