"""`/pipelines` and `/pipelines/{p}`: the pipelines of this machine, their queries, batches, errors and graphs."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.console.services import pipelines
from ottla.console.services.pipeline_graph import HEIGHT, WIDTH
from ottla.console.services.pipelines import PipelineView, UnknownPipelineError
from ottla.console.web.pages import NotFoundError, console_of, render

_ROOT: Final = "/pipelines"


async def show_list(request: Request) -> Response:
    """All pipelines."""
    access = console_of(request)
    folders = access.settings.pipelines
    found = await pipelines.list_pipelines(access) if folders else []
    return render(request, "pipelines/list.html", rows=found, folders=folders, sentence=_sentence(found))


async def show_pipeline(request: Request) -> Response:
    """One pipeline."""
    access = console_of(request)
    try:
        view = await pipelines.read_one(access, request.path_params["pipeline"])
    except UnknownPipelineError as error:
        raise NotFoundError(str(error)) from error
    wanted = request.query_params.get("query", "")
    chosen = next((each for each in view.queries if each.name == wanted), view.queries[0] if view.queries else None)
    return render(request, "pipelines/pipeline.html", view=view, chosen=chosen, box_width=WIDTH, box_height=HEIGHT)


def _sentence(found: list[PipelineView]) -> str:
    """The state of all pipelines."""
    counts: dict[str, int] = {}
    for each in found:
        counts[each.state] = counts.get(each.state, 0) + 1
    return ", ".join(f"{number} {state}" for state, number in sorted(counts.items(), key=lambda item: item[0]))


routes = [Route(_ROOT, show_list), Route(f"{_ROOT}/{{pipeline}}", show_pipeline)]
