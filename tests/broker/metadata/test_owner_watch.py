"""Processes that hold leases: their ends are noticed, also if they ended before they were watched."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable

import msgspec
import pytest

from ottla.metadata.lease_owner import LeaseOwner, this_process
from ottla.metadata.owner_watch import OwnerWatch


def owner_of(process: "subprocess.Popen[bytes]") -> LeaseOwner:
    return msgspec.structs.replace(this_process(), pid=process.pid, start_ticks="1")


def sleeping() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


@pytest.mark.parametrize("before", [True, False], ids=["ended before", "ends while watched"])
async def test_the_end_of_a_process_is_noticed(before: bool) -> None:
    gone = asyncio.Event()
    watch, process = OwnerWatch(gone.set), sleeping()
    steps: list[Callable[[], None]] = [lambda: end(process), lambda: watch.watch([owner_of(process)])]
    for step in steps if before else reversed(steps):
        step()
    await asyncio.wait_for(gone.wait(), 30)
    watch.close()


async def test_processes_that_run_or_are_not_wanted_any_more_are_not_reported() -> None:
    reports: list[str] = []
    watch, one, other = OwnerWatch(lambda: reports.append("gone")), sleeping(), sleeping()
    watch.watch([owner_of(one), owner_of(other)])
    watch.watch([owner_of(other)])
    end(one)
    await asyncio.sleep(0)
    assert [] == reports
    watch.close()
    end(other)


async def test_a_python_without_process_handles_watches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[str] = []
    watch, process = OwnerWatch(lambda: reports.append("gone")), sleeping()
    monkeypatch.delattr(os, "pidfd_open")
    watch.watch([owner_of(process)])
    end(process)
    await asyncio.sleep(0)
    watch.close()
    assert [] == reports
