"""Long work: progress, outcome, stop, and its bounds."""

import asyncio

import pytest

from ottla.console.cluster.jobs import Job, Jobs, JobState, TooManyJobsError, UnknownJobError
from ottla.model.errors import InvalidRequestError


class Clock:
    def __init__(self) -> None:
        self.ms = 1000

    def __call__(self) -> int:
        return self.ms


async def test_progress_rate_and_outcome() -> None:
    clock = Clock()
    jobs, go_on = Jobs(clock), asyncio.Event()

    async def work(job: Job) -> str:
        job.report(50, 200, unit="records", note="reading")
        await go_on.wait()
        return "200 records"

    job = jobs.start("export", "orders", "alice", work)
    assert job is jobs.find(job.id)
    await asyncio.sleep(0)
    clock.ms += 10_000
    assert (50, 200, 5.0, 30.0) == (job.done, job.total, job.per_second, job.seconds_left)
    go_on.set()
    await job.wait_end()
    clock.ms += 10_000
    assert (JobState.DONE, "200 records", 10.0, None) == (job.state, job.outcome, job.seconds, job.seconds_left)


async def test_a_job_that_fails_says_why_and_one_can_be_stopped() -> None:
    jobs = Jobs(Clock())

    async def fail(job: Job) -> str:
        raise InvalidRequestError("the topic is gone")

    async def wait(job: Job) -> str:
        job.report(note="waiting")
        await asyncio.Event().wait()
        return "never"

    failed, waiting = jobs.start("a", "a", "u", fail), jobs.start("b", "b", "u", wait)
    await failed.wait_end()
    assert (JobState.FAILED, "the topic is gone") == (failed.state, failed.outcome)
    await waiting.stop()
    assert (JobState.STOPPED, "waiting") == (waiting.state, waiting.outcome)
    await waiting.stop()


async def test_jobs_have_bounds() -> None:
    jobs = Jobs(Clock())

    async def wait(job: Job) -> str:
        await asyncio.Event().wait()
        return ""

    async def end(job: Job) -> str:
        return ""

    running = [jobs.start("w", str(each), "u", wait) for each in range(16)]
    with pytest.raises(TooManyJobsError, match="16 jobs run already"):
        jobs.start("w", "one more", "u", wait)
    await running[0].stop()
    first = jobs.start("e", "first", "u", end)
    await first.wait_end()
    for _ in range(250):
        await jobs.start("e", "e", "u", end).wait_end()
    assert 200 == len(jobs.newest())
    with pytest.raises(UnknownJobError):
        jobs.find(first.id)
    assert running[1] is jobs.find(running[1].id)
    await jobs.close()
    assert {JobState.STOPPED} == {each.state for each in running}
