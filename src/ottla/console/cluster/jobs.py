"""Long work that outlives its request: progress, rate, stop and outcome of each job, for the page `/jobs`.

A job is a coroutine function that gets its `Job`, reports progress to it and returns a sentence with the outcome. Jobs
live in this process: they end with it. At most `_RUNNING_MAX` run at once, and the last `_KEPT_MAX` are kept. A job may
have a file as its result, which is removed some time after the job has ended.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final
from uuid import uuid4

from ottla.console.cluster.result_files import ResultFile, ResultFiles
from ottla.model.errors import InvalidRequestError, OttlaError

_LOGGER: Final = logging.getLogger(__name__)
_RUNNING_MAX: Final = 16
_KEPT_MAX: Final = 200
FILE_KEPT_MS: Final = 3_600_000
"""How long the file of a job is kept after it has ended."""
FILES_BYTES_MAX: Final = 10 << 30


class JobState(StrEnum):
    """RUNNING ends in one of the others."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


class TooManyJobsError(InvalidRequestError):
    """As many jobs run as may run at once."""


class UnknownJobError(InvalidRequestError):
    """There is no job with this id: it ended long ago, or the console was started again."""


class Job:
    """One piece of long work. The work calls `report`; pages read the rest."""

    def __init__(self, kind: str, title: str, user: str, now_ms: Callable[[], int]) -> None:
        self.id: Final = uuid4().hex[:12]
        self.kind: Final = kind
        self.title: Final = title
        self.user: Final = user
        self.state = JobState.RUNNING
        self.done = 0
        self.total: int | None = None
        """None while it is not known."""
        self.unit = ""
        self.note = ""
        """What it does now, in words."""
        self.outcome = ""
        self.result_address: str | None = None
        """The page that shows the result."""
        self.file: ResultFile | None = None
        """The result, if it is a file; None if it was removed."""
        self._now_ms = now_ms
        self.started_at_ms: Final = now_ms()
        self.ended_at_ms: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    @property
    def address(self) -> str:
        """The job's own page."""
        return f"/jobs/{self.id}"

    def report(
        self, done: int | None = None, total: int | None = None, *, unit: str | None = None, note: str | None = None
    ) -> None:
        """Says how far the work is; what is not given stays as it was."""
        self.done = self.done if done is None else done
        self.total = self.total if total is None else total
        self.unit = self.unit if unit is None else unit
        self.note = self.note if note is None else note

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return ((self.ended_at_ms or self._now_ms()) - self.started_at_ms) / 1000

    @property
    def per_second(self) -> float:
        """The average rate so far."""
        return self.done / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """An estimate; None if it cannot be made."""
        if self.state is not JobState.RUNNING or self.total is None or not self.done or not self.seconds:
            return None
        return max(0, self.total - self.done) / self.per_second

    def end(self, state: JobState, outcome: str) -> None:
        """Called once, by `Jobs`."""
        self.state, self.outcome, self.ended_at_ms = state, outcome, self._now_ms()
        self._ended.set()

    async def wait_end(self) -> None:
        """Returns when the work has ended."""
        await self._ended.wait()

    def run(self, task: asyncio.Task[None]) -> None:
        """Called once, by `Jobs`: the task that does the work."""
        self._task = task

    async def stop(self) -> None:
        """Cancels the work and waits until it has ended."""
        # A task that is cancelled before its first step would never say that it ended.
        await asyncio.sleep(0)
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


Work = Callable[[Job], Awaitable[str]]


class Jobs:
    """All jobs of this process."""

    def __init__(self, now_ms: Callable[[], int], files: ResultFiles | None = None) -> None:
        self._now_ms = now_ms
        self.files: Final = ResultFiles(None, FILES_BYTES_MAX) if files is None else files
        self._jobs: OrderedDict[str, Job] = OrderedDict()

    def newest(self) -> list[Job]:
        """All jobs that are kept, newest first."""
        return list(reversed(self._jobs.values()))

    def find(self, job_id: str) -> Job:
        """Raises `UnknownJobError`."""
        if job_id not in self._jobs:
            raise UnknownJobError(f"job {job_id} does not exist; jobs end with the console's process")
        return self._jobs[job_id]

    def start(self, kind: str, title: str, user: str, work: Work) -> Job:
        """Runs the work in the background. Raises `TooManyJobsError`. Pages use `Access.start_job`."""
        if sum(each.state is JobState.RUNNING for each in self._jobs.values()) >= _RUNNING_MAX:
            raise TooManyJobsError(f"{_RUNNING_MAX} jobs run already; stop one on the page Jobs, or wait")
        job = Job(kind, title, user, self._now_ms)
        self._jobs[job.id] = job
        job.run(asyncio.create_task(self._run(job, work), name=f"job {kind}"))
        ended = [name for name, each in self._jobs.items() if each.state is not JobState.RUNNING]
        for name in ended[: max(0, len(self._jobs) - _KEPT_MAX)]:
            remove_file(self._jobs.pop(name))
        return job

    def remove_old_files(self) -> None:
        """Removes the files of jobs that ended long ago."""
        for job in self._jobs.values():
            if job.ended_at_ms is not None and self._now_ms() - job.ended_at_ms >= FILE_KEPT_MS:
                remove_file(job)

    async def _run(self, job: Job, work: Work) -> None:
        try:
            job.end(JobState.DONE, await work(job))
        except asyncio.CancelledError:
            job.end(JobState.STOPPED, job.note or "stopped")
        except OttlaError as error:
            job.end(JobState.FAILED, str(error))
        except Exception as error:
            _LOGGER.exception("job %s (%s) failed", job.kind, job.title)
            job.end(JobState.FAILED, f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        """Stops all jobs, and removes their files."""
        await asyncio.gather(*(each.stop() for each in self._jobs.values()))
        self.files.close()


def remove_file(job: Job) -> None:
    """Removes the file of a job that has ended, if it has one."""
    if job.file is not None and job.state is not JobState.RUNNING:
        job.file.remove()
        job.file = None
