"""What every page module uses: rendering, forms, redirects, commands to copy, JSON for charts."""

import shlex
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import jinja2
import msgspec
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ottla.console.cluster.access import Access
from ottla.console.errors import InvalidFormError as InvalidFormError
from ottla.console.errors import NotFoundError as NotFoundError
from ottla.console.history.ranges import SPANS, span_of
from ottla.console.services.charts import Chart
from ottla.console.web import human
from ottla.console.web.routes import own_path
from ottla.console.web.routes import path_of as path_of
from ottla.model.errors import MisuseError

if TYPE_CHECKING:
    from ottla.console.application import Console

ROOM: Final = Path(__file__).resolve().parent.parent

RAIL: Final = (
    # The word, its address, its icon, the prefixes of pages that belong to it.
    ("Overview", "/", "pulse", ()),
    ("Brokers", "/brokers", "server", ("/brokers",)),
    ("Topics", "/topics", "layers", ("/topics", "/queues")),
    ("Groups", "/groups", "people", ("/groups", "/transactions")),
    ("Dead letters", "/dead-letters", "letter", ("/dead-letters",)),
    ("Schemas", "/schemas", "braces", ("/schemas",)),
    ("Pipelines", "/pipelines", "flow", ("/pipelines",)),
    ("Security", "/security/users", "shield", ("/security",)),
)
"""The eight words of the left rail."""

CSRF_FIELD: Final = "csrf"
CONFIRM_FIELD: Final = "confirm"
_RANGE_FIELDS: Final = frozenset({"range", "from_time", "to_time", "start"})
"""What an address loses when it gets another span of charts."""


def console_of(request: Request) -> Access:
    """What this request may use of the cluster, with the signed-in user's rights."""
    access = request.scope.get("console.access")
    if not isinstance(access, Access):
        raise MisuseError("the page is served without a session")
    return access


async def form_of(request: Request) -> FormData:
    """The form of a POST. Its origin and its token were verified before the page was called."""
    form = request.scope.get("console.form")
    if not isinstance(form, FormData):
        raise InvalidFormError("the request has no form")
    return form


def text_of(form: FormData, name: str, default: str | None = None) -> str:
    """One text field. Raises `InvalidFormError` if it is missing or empty and has no default."""
    value = form.get(name)
    if isinstance(value, str) and (value or default is not None):
        return value
    if default is not None:
        return default
    raise InvalidFormError(f"{name.replace('_', ' ')} must not be empty", name)


def number_of(form: FormData, name: str, default: int | None = None, *, least: int = 0, most: int = 2**63 - 1) -> int:
    """One whole number within bounds. Raises `InvalidFormError`."""
    text = text_of(form, name, "" if default is not None else None).strip()
    if not text and default is not None:
        return default
    words = name.replace("_", " ")
    try:
        value = int(text)
    except ValueError:
        raise InvalidFormError(f"{words}: {text!r} is not a whole number", name) from None
    if not least <= value <= most:
        raise InvalidFormError(f"{words}: {value} is not between {least} and {most}", name)
    return value


def is_fragment(request: Request) -> bool:
    """Whether htmx asks for a part of the page."""
    return request.headers.get("hx-request") == "true"


def render(request: Request, template: str, *, status: int = 200, **context: Any) -> Response:
    """A page from a template; for htmx, its blocks without the frame."""
    made = templates().get_template(template)
    return HTMLResponse(made.render(**_frame(request), **context), status_code=status)


def see(request: Request, address: str) -> Response:
    """After a change: the page that shows its result."""
    if is_fragment(request):
        return Response(status_code=204, headers={"HX-Redirect": address})
    return RedirectResponse(address, status_code=303)


def json_response(value: Any, *, status: int = 200) -> Response:
    """JSON, for charts and the palette."""
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def chart_response(chart: Chart) -> Response:
    """What `ui.chart` draws: series by label, with the same times."""
    return json_response(
        {
            "times": chart.times,
            "series": [{"label": label, "values": values} for label, values in chart.series.items()],
            "note": chart.note,
            "waiting": chart.is_waiting,
        }
    )


def command_of(access: Access, *words: object) -> str:
    """The `ottla` command that does the same, to copy: words are quoted for a shell, and reach this cluster."""
    quoted = [shlex.quote(str(each)) for each in (*words, *access.settings.command_options)]
    return " ".join(["ottla", *quoted])


@cache
def templates() -> jinja2.Environment:
    """The templates, with autoescape and the filters of `human`."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROOM / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "count": human.count,
        "bytes": human.bytes_,
        "rate": human.rate,
        "byte_rate": human.byte_rate,
        "duration": human.duration,
        "duration_ms": human.duration_ms,
        "when": human.when,
        "ago": human.ago(lambda: time.time_ns() // 1_000_000),
        "plural": human.plural,
        "quoted": lambda value: quote(str(value), safe=""),
    }
    made.globals |= {"path_of": path_of, "plural": human.plural}
    return made


def _frame(request: Request) -> dict[str, Any]:
    """What the layout shows around every page."""
    console: Console = request.app.state.console
    access = request.scope.get("console.access")
    return {
        "request": request,
        "own_path": own_path(request),
        "layout": "fragment.html" if is_fragment(request) else "layout.html",
        "rail": _rail(request.url.path),
        "access": access,
        "sampler": console.sampler,
        "settings": console.settings,
        "cluster_name": console.cluster_name,
        "health": console.health(),
        "csrf_token": request.scope.get("console.csrf", ""),
        "csrf_field": CSRF_FIELD,
        "typed_name": _typed_name(request),
        "request_id": request.scope.get("console.request_id", ""),
        "read_only": console.settings.read_only,
        "asset": console.asset,
        "command": lambda *words: command_of(access, *words) if access is not None else "",
        "span": span_of(request.query_params.get("range", "")),
        "spans": _spans(request) if console.prometheus is not None else (),
    }


def _spans(request: Request) -> Sequence[tuple[str, str]]:
    """The spans of time that charts can show, each with its address; what was zoomed into is left out of it."""
    kept = [(name, value) for name, value in request.query_params.multi_items() if name not in _RANGE_FIELDS]
    return [(each, f"{own_path(request)}?{urlencode([*kept, ('range', each)])}") for each in SPANS]


def _typed_name(request: Request) -> str:
    """What was typed to confirm a change, when its form is shown again."""
    form = request.scope.get("console.form")
    typed = form.get(CONFIRM_FIELD) if isinstance(form, FormData) else None
    return typed if isinstance(typed, str) else ""


def _rail(path: str) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "word": word,
            "address": address,
            "icon": icon,
            "is_here": path == address or any(path == each or path.startswith(f"{each}/") for each in prefixes),
        }
        for word, address, icon, prefixes in RAIL
    ]


def unconfirmed(form: FormData, name: str) -> InvalidFormError | None:
    """None if the person typed the name (see `ui.confirm_name`), else the problem with which the form is shown again
    (`outcome_of`)."""
    if form.get(CONFIRM_FIELD) == name:
        return None
    return InvalidFormError(f"type {name!r} to confirm; nothing was changed", CONFIRM_FIELD)
