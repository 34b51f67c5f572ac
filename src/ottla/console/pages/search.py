"""`/search`: finds topics, groups, subjects, brokers and pages; the palette asks for the same as JSON."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.console.services.search import search
from ottla.console.web.pages import console_of, json_response, path_of, render


async def show(request: Request) -> Response:
    """The results as a page, for browsers without JavaScript."""
    text = request.query_params.get("q", "")
    return render(request, "search/results.html", text=text, found=await search(console_of(request), text))


async def palette(request: Request) -> Response:
    """The results for the palette."""
    found = await search(console_of(request), request.query_params.get("q", ""))
    return json_response(
        [{"name": each.name, "kind": each.kind, "address": path_of(*each.parts)} for each in found[:20]]
    )


routes = [Route("/search", show), Route("/search.json", palette)]
