"""Swapping a cleaned segment in: at every moment of it a crash leaves the old or the new, whole."""

import pytest

from ottla.model.ids import Offset
from ottla.sim.disk import Moment, SimDisk, SimulatedCrash
from ottla.sim.random import SimRandom
from ottla.storage.cleaning.swap import complete_swap, decide_swap, finish_swaps, retire_sources
from ottla.storage.data_dirs import names
from ottla.storage.segments.segment import Segment
from tests.unit.storage.rig import CONFIG, NOW, batch

FOLDER = "/p"
OLD = {0: [0, 1, 2], 3: [3, 4, 5], 6: [6]}
NEW = {0: [1, 5], 6: [6]}


def prepared(seed: int = 0) -> SimDisk:
    """Two sealed segments, the active one, and a cleaned one for the first two; all of it durable."""
    disk = SimDisk(seed)
    disk.make_dirs(FOLDER)
    for base, suffix, offsets in ((0, "", OLD[0]), (3, "", OLD[3]), (6, "", OLD[6]), (0, names.CLEANED, NEW[0])):
        segment = Segment.create(disk, FOLDER, Offset(base), CONFIG, NOW, suffix=suffix)
        segment.append([batch(base_offset=offset) for offset in offsets])
        segment.seal()
        segment.release()
    for name in disk.list_dir(FOLDER):
        disk.open(f"{FOLDER}/{name}").sync()
    disk.sync_dir(FOLDER)
    return disk


def swap(disk: SimDisk) -> None:
    decide_swap(disk, FOLDER, Offset(0))
    for path in retire_sources(disk, FOLDER, [Offset(0), Offset(3)]):
        disk.remove(path)
    complete_swap(disk, FOLDER, Offset(0))


def content(disk: SimDisk) -> dict[int, list[int]]:
    """The base offsets of the batches in each segment, all of the same size."""
    size = batch(base_offset=0).size_bytes
    found = {}
    for name in disk.list_dir(FOLDER):
        base = names.base_offset_of(name)
        if name.endswith(names.LOG) and base is not None:
            data = disk.read(f"{FOLDER}/{name}")
            found[int(base)] = [int.from_bytes(data[at : at + 8], "big") for at in range(0, len(data), size)]
    return found


def test_undisturbed() -> None:
    disk = prepared()
    assert OLD == content(disk)
    swap(disk)
    assert NEW == content(disk)
    assert not [name for name in disk.list_dir(FOLDER) if name.endswith((names.SWAP, names.CLEANED, names.DELETED))]


def test_cleaned_but_not_decided_changes_nothing() -> None:
    disk = prepared()
    finish_swaps(disk, FOLDER)
    assert OLD == content(disk)


def test_a_crash_at_every_step_and_again_while_finishing() -> None:
    rehearsal = prepared()
    since = rehearsal.operation_count
    swap(rehearsal)
    outcomes = []
    for number in range(since, rehearsal.operation_count):
        for moment in Moment:
            for seed in range(3):
                disk = prepared(seed)
                disk.fail_at(number, SimulatedCrash, moment)
                with pytest.raises(SimulatedCrash):
                    swap(disk)
                disk = disk.crash(SimRandom(seed))
                disk.fail_at(disk.operation_count + seed, SimulatedCrash, moment)
                try:
                    finish_swaps(disk, FOLDER)
                except SimulatedCrash:
                    disk = disk.crash(SimRandom(seed + 7))
                    finish_swaps(disk, FOLDER)
                outcomes.append(content(disk))
    assert all(outcome in (OLD, NEW) for outcome in outcomes)
    assert OLD in outcomes
    assert NEW in outcomes
