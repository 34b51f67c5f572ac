"""`/`: the cluster in one screen; also samples for charts, the health dot, and the health of the console itself."""

import time
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.console.history.ranges import time_range
from ottla.console.services.charts import WantedSeries, read_chart
from ottla.console.services.overview import overview
from ottla.console.web.pages import chart_response, console_of, json_response, render

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
    """Series of a chart: `s=label:kind:name`, up to four times; with Prometheus, those of `range`, or `from` and `to`.
    Without, the last 60 minutes."""
    asked = request.query_params
    given = [each.split(":", 2) for each in asked.getlist("s") if each.count(":") >= 2][:_SERIES_MAX]
    wanted = [WantedSeries(*each) for each in given]
    return chart_response(await read_chart(console_of(request), wanted, time_range(asked, time.time())))


routes = [
    Route("/", show),
    Route("/health", health),
    Route("/health-dot", health_dot),
    Route("/samples.json", samples),
]
