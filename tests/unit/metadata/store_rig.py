"""What the store's tests build with: stores on real files, time limits, and processes that can be killed."""

import asyncio
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from ottla.env.ports import Clock
from ottla.env.real_clock import RealClock
from ottla.metadata.sqlite.sqlite_store import SqliteStore
from ottla.metadata.store import Change, ConflictError, MetadataStore

T = TypeVar("T")
TIME_LIMIT_SECONDS = 120.0


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Runs a scenario, which must end."""

    async def limited() -> T:
        return await asyncio.wait_for(scenario, TIME_LIMIT_SECONDS)

    return asyncio.run(limited())


@asynccontextmanager
async def opened(path: Path, clock: Clock | None = None, **options: Any) -> AsyncIterator[SqliteStore]:
    """An open store, closed in the end."""
    store = SqliteStore(str(path), clock or RealClock(), **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def take(changes: AsyncIterator[list[Change]], count: int) -> list[list[Change]]:
    """So many commits."""
    taken = []
    async for commit in changes:
        taken.append(commit)
        if len(taken) == count:
            break
    return taken


OTHER_PROCESS = """
import asyncio, sys, time
from ottla.env.real_clock import RealClock
from ottla.metadata.sqlite.sqlite_store import SqliteStore
from ottla.metadata.store import ConflictError, Put

def say(*words):
    print(*words, flush=True)

async def main(path):
    store = {store}
    await store.open()
{body}

asyncio.run(main(sys.argv[1]))
"""


async def other_process(
    path: Path, body: str, *, shared: bool = True, lease_timeout_ms: int = 9_000, store: str = ""
) -> Process:
    """A process that has a store open and runs these lines, which may `await` and `say`. `store` is how that store is
    made, unless it is an SQLite store on the path."""
    indented = "\n".join("    " + line for line in body.splitlines())
    options = f"shared={shared}, poll_ms=10, lease_timeout_ms={lease_timeout_ms}, busy_timeout_ms=60_000"
    made = f"SqliteStore(path, RealClock(), {options})"
    script = OTHER_PROCESS.format(body=indented, store=store or made)
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(path), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )


async def heard(process: Process) -> str:
    """The next line that a process says."""
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


LEAD = """
lease = await store.lease('controller', b'child')
say('held')
while not lease.is_lost:
    say(time.monotonic())
    await asyncio.sleep(0.005)
say('lost')
again = await store.lease('brokers/0', b'child')
say('again', again.is_lost)
await store.close()"""


async def check_paused_leader(process: Process, store: MetadataStore) -> None:
    """A process that runs `LEAD` is stopped until this store has its lease, then continued: it must not act any
    more."""
    while "held" != await heard(process):
        pass
    process.send_signal(signal.SIGSTOP)
    taken = None
    while taken is None:
        revision, _ = await store.snapshot()
        try:
            taken = await store.lease("controller", b"parent")
        except ConflictError:
            await take(store.follow(revision), 1)
    taken_at = time.monotonic()
    process.send_signal(signal.SIGCONT)
    acted_at = []
    while "lost" != (said := await heard(process)):
        acted_at.append(float(said))
    assert [] == [moment for moment in acted_at if moment >= taken_at]
    assert "again False" == await heard(process)
    assert not taken.is_lost
    assert 0 == await process.wait()
