"""A power cut, or a failing disk, at every operation of a cleaning: nothing is lost, and the next cleaning succeeds."""

import asyncio
import contextlib
import errno
from collections.abc import Callable

import pytest

from ottla.model.errors import StorageError
from ottla.model.ids import Offset
from ottla.records.layout import Codec, Marker
from ottla.sim.disk import Moment, NameOrder, SimDisk, SimulatedCrash
from tests.unit.storage.cleaning.cleaner_model import RETENTION_MS, History

pytestmark = pytest.mark.slow


def updates(history: History) -> None:
    """Several segments of overwritten keys, tombstones, producers and transactions."""
    for number in range(16):
        history.append([(b"%d" % (number % 6), b"v" * 25), (b"k", b"w")], producer=number % 2 + 1, codec=Codec.NONE)
    history.append([(b"1", None), (b"2", None)])
    history.append_in_transaction([(b"3", b"aborted")], producer=11)
    history.append_in_transaction([(b"4", b"committed")], producer=12)
    # Enough that the transactions' ends come into another group than their records.
    history.append([(b"7", b"v" * 500)])
    history.roll()
    history.end_transaction(11, Marker.ABORT)
    history.end_transaction(12, Marker.COMMIT)
    history.append([(b"8", b"first"), (b"8", b"second")])
    history.append([(b"5", b"last")])
    history.roll()
    history.append([(b"5", b"active")])


def cleaned_before(history: History) -> None:
    """The same, cleaned once: small segments that are merged, and tombstones past their horizon."""
    updates(history)
    history.clean()
    history.unlink_doomed()
    history.clock.advance(RETENTION_MS / 1000)
    history.append([(b"6", b"more")])
    history.roll()


STORIES = [updates, cleaned_before]


def prepared(story: Callable[[History], None], order: NameOrder, seed: int) -> History:
    history = History(disk=SimDisk(seed, order=order))
    story(history)
    history.flush()
    return history


def operations_of(story: Callable[[History], None]) -> tuple[int, int]:
    """The numbers of a cleaning's first operation and of the one behind its last."""
    history = prepared(story, NameOrder.FOLDER, 0)
    first = history.disk.operation_count
    history.clean()
    return first, history.disk.operation_count


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
@pytest.mark.parametrize("order", NameOrder)
@pytest.mark.parametrize("moment", Moment)
def test_a_power_cut_at_any_operation_loses_nothing(
    story: Callable[[History], None], order: NameOrder, moment: Moment
) -> None:
    first, behind = operations_of(story)
    assert behind - first > 30
    for number in range(first, behind):
        history = prepared(story, order, seed=number)
        history.disk.fail_at(number, SimulatedCrash, moment)
        with pytest.raises(SimulatedCrash):
            asyncio.run(history.start_cleaning())
        end = history.log.end_offset
        history.crash(recovery_point=Offset(0) if number % 2 else None)
        assert end == history.log.end_offset
        history.cover_everything()
        history.check_lasting()
        history.check_retries()
        assert [] == remains(history)
        history.clean()
        history.check()


def remains(history: History) -> list[str]:
    names = history.disk.list_dir(history.log.folder)
    return [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_refuses_any_operation_loses_nothing(story: Callable[[History], None], code: int) -> None:
    first, behind = operations_of(story)
    offline = 0
    for number in range(first, behind):
        history = prepared(story, NameOrder.NAME, 0)
        history.disk.fail_at(number, OSError(code, "refused"))
        with contextlib.suppress(StorageError):
            asyncio.run(history.start_cleaning())
        history.cover_everything()
        if history.log.failure is None:
            history.check_lasting()
            history.append([(b"z", b"still appended")])
            history.flush()
        else:
            offline += 1
        history.crash()
        history.check_lasting()
        assert [] == remains(history)
    assert 0 < offline < behind - first, "only the swap itself takes a log offline"


def test_two_cleanings_in_a_row_survive_a_power_cut_right_after() -> None:
    history = prepared(updates, NameOrder.NAME, 5)
    history.clean()
    history.crash()
    history.check()
    history.clean()
    history.crash()
    history.check()
    history.check_retries()
