"""`/jobs`: long work with progress, rate and outcome; each job can be stopped."""

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from ottla.console.cluster.access import Access
from ottla.console.cluster.jobs import FILE_KEPT_MS, Job, UnknownJobError, remove_file
from ottla.console.errors import NotFoundError
from ottla.console.settings import AuthMode
from ottla.console.web.events import attachment
from ottla.console.web.pages import console_of, render, see


async def list_jobs(request: Request) -> Response:
    """All jobs of this user, newest first."""
    access = console_of(request)
    return render(request, "jobs/list.html", jobs=[each for each in access.jobs.newest() if _may_see(access, each)])


async def show_job(request: Request) -> Response:
    """One job."""
    return render(request, "jobs/job.html", job=_job(request), kept_ms=FILE_KEPT_MS)


async def download_file(request: Request) -> Response:
    """The file of a job that has ended."""
    job = _job(request)
    if job.file is None:
        raise NotFoundError(f"job {job.id} has no file: it was removed, or the job has not ended")
    return FileResponse(job.file.path, media_type=job.file.media_type, headers=attachment(job.file.name))


async def delete_file(request: Request) -> Response:
    """Deletes the file of a job, and shows the job."""
    job = _job(request)
    remove_file(job)
    return see(request, job.address)


async def stop_job(request: Request) -> Response:
    """Stops a job, and shows it."""
    job = _job(request)
    await job.stop()
    return see(request, job.address)


def _job(request: Request) -> Job:
    access = console_of(request)
    job = access.jobs.find(request.path_params["job"])
    if not _may_see(access, job):
        raise UnknownJobError(f"job {job.id} does not exist, or belongs to another user")
    return job


def _may_see(access: Access, job: Job) -> bool:
    """With a login, a job is visible to the user that started it: its title may name what others may not see."""
    return access.settings.auth is AuthMode.NONE or job.user == access.user


routes = [
    Route("/jobs", list_jobs),
    Route("/jobs/{job}", show_job),
    Route("/jobs/{job}/stop", stop_job, methods=["POST"]),
    Route("/jobs/{job}/file", download_file),
    Route("/jobs/{job}/file/delete", delete_file, methods=["POST"]),
]
