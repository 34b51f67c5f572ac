"""How a client stops one of its background tasks."""

import asyncio
from contextlib import suppress


async def stop_task(task: "asyncio.Task[None] | None") -> None:
    """Cancels a task and waits until it has ended; None is a task that was not started. Raises what the task raised."""
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
