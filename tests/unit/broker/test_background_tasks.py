"""Background tasks: one that fails is a failure of the broker, one that is cancelled is not."""

import asyncio
import logging

import pytest

from ottla.broker.background_tasks import BackgroundTasks
from ottla.model.errors import StorageError


async def forever() -> None:
    await asyncio.Event().wait()


async def test_the_first_task_that_fails_is_the_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(error: Exception) -> None:
        raise error

    with caplog.at_level(logging.CRITICAL):
        tasks = BackgroundTasks()
        first, second = StorageError("the store is gone"), StorageError("and the disk")
        tasks.run(forever())
        waiting = asyncio.create_task(tasks.wait_failure())
        tasks.run(fail(first))
        assert first is await asyncio.wait_for(waiting, 20)
        tasks.run(fail(second))
        await asyncio.sleep(0)
        assert first is await tasks.wait_failure()
        await tasks.close()
    assert [
        "background task failed, the broker must stop: the store is gone",
        "background task failed, the broker must stop: and the disk",
    ] == [record.message for record in caplog.records]


async def test_tasks_that_are_closed_have_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    tasks = BackgroundTasks()
    tasks.run(forever())
    waiting = asyncio.create_task(tasks.wait_failure())
    before = asyncio.all_tasks()
    assert 3 == len(before), "this one, the waiting one and the background task"
    await tasks.close()
    assert 2 == len(asyncio.all_tasks())
    assert not waiting.done()
    waiting.cancel()
    assert [] == caplog.records
