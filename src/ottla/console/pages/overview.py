"""`/`: the cluster in one screen; also samples for charts, the health dot, and the health of the console itself."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.console.cluster.access import Access
from ottla.console.services.overview import overview
from ottla.console.settings import AuthMode
from ottla.console.web.pages import console_of, json_response, render, series_response
from ottla.model.errors import DeniedError

_SERIES_MAX: Final = 4


async def show(request: Request) -> Response:
    """The cluster in one screen."""
    return render(request, "overview/overview.html", cluster=await overview(console_of(request)))


async def health(request: Request) -> Response:
    """Whether this process serves; for load balancers, without sign-in."""
    return json_response({"status": "ok"})


async def health_dot(request: Request) -> Response:
    """The health dot of the top line."""
    console_of(request)
    return render(request, "overview/health_dot.html")


async def samples(request: Request) -> Response:
    """Series of the last 60 minutes: `s=label:kind:name`, up to four times."""
    access = console_of(request)
    wanted = [each.split(":", 2) for each in request.query_params.getlist("s") if each.count(":") >= 2][:_SERIES_MAX]
    await _check_rights(access, [(kind, name) for _, kind, name in wanted])
    found = {label: access.sampler.series(kind, name) for label, kind, name in wanted}
    return series_response(found, since=access.sampler.samples.since)


async def _check_rights(access: Access, wanted: list[tuple[str, str]]) -> None:
    """With a login, samples are shown of topics and groups that the user may describe. Raises `DeniedError`."""
    if access.settings.auth is AuthMode.NONE:
        return
    for kind, name in wanted:
        match kind.partition(".")[0]:
            case "topic":
                await access.admin().describe_topics([name])
            case "group" if name not in {each.group_id for each in await access.admin().list_groups()}:
                raise DeniedError(f"you may not describe the group {name}")


routes = [
    Route("/", show),
    Route("/health", health),
    Route("/health-dot", health_dot),
    Route("/samples.json", samples),
]
