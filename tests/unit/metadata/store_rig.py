"""What the store's tests build with: stores on real files, time limits, and processes that can be killed."""

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from ottla.env.ports import Clock
from ottla.env.real_clock import RealClock
from ottla.metadata.sqlite_store import SqliteStore
from ottla.metadata.store import Change

T = TypeVar("T")
TIME_LIMIT_SECONDS = 30.0


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
import asyncio, sys
from ottla.env.real_clock import RealClock
from ottla.metadata.sqlite_store import SqliteStore
from ottla.metadata.store import Put

def say(*words):
    print(*words, flush=True)

async def main(path):
    store = SqliteStore(path, RealClock(), shared={shared}, poll_ms=10)
    await store.open()
{body}

asyncio.run(main(sys.argv[1]))
"""


async def other_process(path: Path, body: str, *, shared: bool = True) -> Process:
    """A process that has the store open and runs these lines, which may `await` and `say`."""
    indented = "\n".join("    " + line for line in body.splitlines())
    script = OTHER_PROCESS.format(body=indented, shared=shared)
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(path), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )


async def heard(process: Process) -> str:
    """The next line that a process says."""
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()
