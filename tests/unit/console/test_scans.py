"""Searches that were abandoned end, and neither they nor others keep anyone waiting."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from ottla.console.cluster.audit import AuditLog, Outcome
from ottla.console.cluster.scans import THREADS_MAX, IsStopped, Scans
from tests.waiting import PATIENCE_SECONDS, until


class Scan:
    """Goes on until it is told to stop, or released."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.has_begun = self.was_stopped = False

    def __call__(self, is_stopped: IsStopped) -> int:
        self.has_begun = True
        while not self.release.wait(0.001):
            if is_stopped():
                self.was_stopped = True
                return 0
        return 1


async def begun(scans: Scans, count: int) -> tuple[list[Scan], "list[asyncio.Task[int]]"]:
    made = [Scan() for _ in range(count)]
    running = [asyncio.create_task(scans.run(scan)) for scan in made]
    await until(lambda: sum(scan.has_begun for scan in made) == min(count, THREADS_MAX))
    return made, running


async def test_an_abandoned_scan_makes_room_for_another_one() -> None:
    scans = Scans()
    made, running = await begun(scans, THREADS_MAX + 2)
    for task in running:
        task.cancel()
    assert [True] * len(running) == [
        isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*running, return_exceptions=True)
    ]
    after = Scan()
    after.release.set()
    assert 1 == await scans.run(after)
    await until(lambda: all(scan.was_stopped for scan in made[:THREADS_MAX]))
    assert [False, False] == [scan.has_begun for scan in made[THREADS_MAX:]]


async def test_scans_of_one_user_do_not_keep_those_of_another_waiting() -> None:
    made, running = await begun(Scans(), THREADS_MAX + 1)
    other, scan = Scans(), Scan()
    scan.release.set()
    assert 1 == await other.run(scan)
    for each in made:
        each.release.set()
    assert [1] * len(made) == await asyncio.gather(*running)


async def test_closing_stops_all() -> None:
    scans = Scans()
    _, running = await begun(scans, THREADS_MAX + 1)
    scans.close()
    ended = await asyncio.gather(*running, return_exceptions=True)
    assert [0] * THREADS_MAX == ended[:THREADS_MAX]
    assert isinstance(ended[-1], asyncio.CancelledError)


async def test_a_change_does_not_wait_for_other_threads(tmp_path: Path) -> None:
    release = threading.Event()
    waiting: list[Callable[[], bool]] = [lambda: release.wait(PATIENCE_SECONDS)] * 64
    busy = [asyncio.create_task(asyncio.to_thread(each)) for each in waiting]
    await asyncio.sleep(0)
    audit = AuditLog(tmp_path / "audit.jsonl", lambda: 0)
    audit.open()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS / 3):
            entry = await audit.begin(user="u", origin="o", action="a", target="t", details={}, outcome=Outcome.STARTED)
            await audit.end(entry, Outcome.DONE)
    finally:
        release.set()
        await asyncio.gather(*busy)
    assert 2 == len((tmp_path / "audit.jsonl").read_text().splitlines())
