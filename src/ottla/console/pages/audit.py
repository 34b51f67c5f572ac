"""`/audit`: each change with who, when, what, from where and how it ended."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.console.cluster.audit import AuditEntry
from ottla.console.settings import AuthMode
from ottla.console.web.pages import console_of, render
from ottla.console.web.windows import window


async def list_changes(request: Request) -> Response:
    """The last changes; with a login, those of this user."""
    access = console_of(request)
    entries = access.audit.newest()
    if access.settings.auth is not AuthMode.NONE:
        entries = [each for each in entries if each.user == access.user]
    return render(
        request,
        "audit/list.html",
        window=window(
            request,
            entries,
            text=_text,
            sorts={
                "at": lambda each: each.at_ms,
                "user": lambda each: each.user,
                "action": lambda each: each.action,
                "target": lambda each: each.target,
                "outcome": lambda each: each.outcome,
            },
            default="-at",
        ),
        path=access.audit.path,
        is_own=access.settings.auth is not AuthMode.NONE,
    )


def _text(entry: AuditEntry) -> str:
    details = " ".join(f"{name}={value}" for name, value in entry.details.items())
    return f"{entry.user} {entry.action} {entry.target} {details} {entry.outcome} {entry.origin} {entry.error}"


routes = [Route("/audit", list_changes)]
