"""A service beside a broker, in a process of its own: the schema registry and the console.

Its own process, because its work holds the interpreter's lock, which would delay Produce and Fetch. It stops when its
standard input is closed, so it never outlives the broker, even one that was killed. A service that ends by itself is
started again.
"""

import asyncio
import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

_LOGGER: Final = logging.getLogger(__name__)

_STOP_SECONDS: Final = 15.0
_PAUSE_SECONDS_MAX: Final = 30.0
_STEADY_SECONDS: Final = 60.0


class ProcessBeside:
    """Runs until its task is cancelled. When the service is ready, prints `word` and its URL."""

    def __init__(self, name: str, word: str, listener: str, command: Sequence[str]) -> None:
        self._name = name
        self._word = word
        self.listener: Final = listener
        """The broker's listener that the service connects to."""
        self._command = tuple(command)

    async def run(self, bootstrap: str) -> None:
        """Runs the service on this broker's cluster, and starts it again whenever it ends."""
        loop = asyncio.get_running_loop()
        pause = 1.0
        while True:
            started = loop.time()
            status = await self._run_once(bootstrap)
            if loop.time() - started >= _STEADY_SECONDS:
                pause = 1.0
            _LOGGER.error("%s exited with status %s; restarting it in %.0f s", self._name, status, pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)

    async def _run_once(self, bootstrap: str) -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "ottla", *self._command, "--stop-with-stdin", "--bootstrap", bootstrap),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            await self._tell_when_ready(process)
            return await process.wait()
        finally:
            await self._stop(process)

    async def _tell_when_ready(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        if line.startswith("ready "):
            print(f"{self._word} {line.split()[1]}", flush=True)

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        """Asks the process to stop by closing its standard input, and kills it if it does not."""
        if process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            _LOGGER.error("%s did not stop within %.0f s; killing it", self._name, _STOP_SECONDS)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
