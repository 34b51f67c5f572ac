"""What every request passes before a page sees it, and every response before a browser does.

In this order: a request id; the Host header (against DNS rebinding); the session; the sign-in, if the console has one;
for everything but GET and HEAD the origin and the token of the form (against cross-site requests). Responses get a
strict Content-Security-Policy without inline script and style, and may not be framed.
"""

import secrets
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ottla.console.cluster.access import ANONYMOUS, Access
from ottla.console.settings import OIDC_CALLBACK, AuthMode
from ottla.console.web.cookies import cookie_header
from ottla.console.web.failures import failure_response
from ottla.console.web.pages import CSRF_FIELD, render
from ottla.console.web.routes import own_path
from ottla.model.errors import DeniedError
from ottla.transport.http_hosts import LOOPBACK_NAMES, host_name, is_loopback

if TYPE_CHECKING:
    from ottla.console.application import Console

_SAFE: Final = frozenset({"GET", "HEAD"})
_FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data")
_BODY_BYTES_MAX: Final = 16 * 1024 * 1024
_PART_BYTES_MAX: Final = 8 * 1024 * 1024
_FIELDS_MAX: Final = 5000
_OPEN_PATHS: Final = frozenset({"/login", "/health"})
_OIDC_PATHS: Final = frozenset({"/login/start", OIDC_CALLBACK})
"""Those that are open with `AuthMode.OIDC`."""
_OTHER_SITES: Final = ("cross-site", "same-site")
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class CrossSiteError(DeniedError):
    """The request does not come from a page of this console."""


class BodyTooLargeError(HTTPException):
    """The request is larger than any form of the console."""

    def __init__(self) -> None:
        super().__init__(413, f"the request is larger than {_BODY_BYTES_MAX} bytes")


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, console: "Console") -> None:
        self._app = app
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["console.request_id"] = secrets.token_hex(6)
        # Pages that fail before the router saw them are rendered with the application, too.
        scope["app"] = self._console.app
        request = Request(scope, _limited(receive))
        cookie = request.cookies.get(self._console.sessions.cookie_name, "")
        is_new = not cookie
        cookie = cookie or self._console.sessions.new_cookie()
        is_arriving = is_new and _is_from_elsewhere(request)
        sends = self._sending(scope, send, cookie if is_new and not is_arriving else None)
        try:
            response = await self._refusal(request, cookie, is_new=is_new, is_arriving=is_arriving)
        except Exception as error:
            response = failure_response(request, error)
        if response is not None:
            await response(scope, receive, sends)
            return
        access = scope.get("console.access")
        if not isinstance(access, Access):
            await self._app(scope, request.receive, sends)
            return
        # A change that was begun is finished, even if another tab signs out meanwhile.
        access.clients.hold()
        try:
            await self._app(scope, request.receive, sends)
        finally:
            await access.clients.release()

    async def _refusal(self, request: Request, cookie: str, *, is_new: bool, is_arriving: bool) -> Response | None:
        """What is sent instead of the page; None to serve the page."""
        self._check_host(request)
        _check_embedding(request)
        console, scope = self._console, request.scope
        path: str = scope["path"]
        if path.startswith("/assets/") and request.method in _SAFE:
            return None
        scope["console.cookie"] = cookie
        scope["console.csrf"] = console.sessions.csrf_token(cookie)
        session = console.sessions.find(cookie, is_used=not _is_by_itself(request))
        origin = request.client.host if request.client is not None else "unknown"
        if console.settings.auth is AuthMode.NONE:
            scope["console.access"] = console.access(ANONYMOUS, origin, console.own_clients)
        elif session is not None:
            scope["console.access"] = console.access(session.user, origin, session.clients)
        if request.method not in _SAFE:
            await self._check_origin(request, "" if is_new else cookie)
        is_open = path in _OPEN_PATHS or (console.settings.auth is AuthMode.OIDC and path in _OIDC_PATHS)
        if is_arriving and not is_open:
            # The browser may have a cookie, which it sends only with what a page of the console asks for.
            # One slash: two would begin the name of another host.
            return render(request, "login/continue.html", address="/" + _wanted(request).lstrip("/\\"), user=None)
        if isinstance(scope.get("console.access"), Access) or is_open:
            return None
        return _to_login(request)

    def _check_host(self, request: Request) -> None:
        settings = self._console.settings
        name = host_name(request.headers.get("host", ""))
        if name is None:
            raise HTTPException(400, "the Host header is not a name with or without a port")
        allowed = {each.lower() for each in settings.hosts}
        if is_loopback(settings.listen.host):
            allowed |= LOOPBACK_NAMES | {settings.listen.host}
        elif not allowed:
            # With a login and without names: cookies belong to a name, so another name has no session.
            return
        if name not in allowed:
            raise HTTPException(
                421, f"this console does not answer to the name {name[:100]!r}; start it with --host {name[:100]}"
            )

    async def _check_origin(self, request: Request, cookie: str) -> None:
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        if origin is not None and origin.partition("://")[2] != request.headers.get("host", ""):
            raise CrossSiteError(f"the form was sent from {origin[:100]}, not from a page of this console")
        if site not in (None, "same-origin"):
            raise CrossSiteError("the form was sent from another site, not from a page of this console")
        token = request.headers.get("x-csrf-token")
        if request.headers.get("content-type", "").startswith(_FORMS):
            form = await request.form(max_fields=_FIELDS_MAX, max_part_size=_PART_BYTES_MAX)
            request.scope["console.form"] = form
            field = form.get(CSRF_FIELD)
            token = token or (field if isinstance(field, str) else None)
        if token is None or not self._console.sessions.is_csrf_token(cookie, token):
            raise CrossSiteError(
                "the form has no valid token: it is from before the console was started, or you signed in or out since;"
                " go back, reload the page and send it once more"
            )

    def _sending(self, scope: Scope, send: Send, new_cookie: str | None) -> Send:
        settings = self._console.settings
        name = self._console.sessions.cookie_name
        # Also behind a proxy that terminates TLS, and says so.
        is_secure = settings.has_tls or scope["scheme"] == "https"

        async def sends(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for key, value in _HEADERS.items():
                    headers.setdefault(key, value)
                headers["X-Request-Id"] = scope["console.request_id"]
                if settings.has_tls:
                    headers["Strict-Transport-Security"] = "max-age=31536000"
                if not scope["path"].startswith("/assets/"):
                    headers.setdefault("Cache-Control", "no-store")
                    given = scope.get("console.new_cookie", new_cookie)
                    if given is not None:
                        headers.append("Set-Cookie", cookie_header(name, given, is_secure=is_secure))
            await send(message)

        return sends


def _is_from_elsewhere(request: Request) -> bool:
    """Whether the browser follows a link of another site."""
    headers = request.headers
    is_navigation = request.method in _SAFE and headers.get("sec-fetch-mode") == "navigate"
    return is_navigation and headers.get("sec-fetch-site") in _OTHER_SITES


def _wanted(request: Request) -> str:
    return own_path(request) + (f"?{request.url.query}" if request.url.query else "")


def _check_embedding(request: Request) -> None:
    """Pages of other sites may link to the console, but not load from it: without a login every page on this machine's
    browsers could otherwise start searches, and learn from their duration."""
    site, mode = request.headers.get("sec-fetch-site"), request.headers.get("sec-fetch-mode")
    if request.method in _SAFE and site in _OTHER_SITES and mode != "navigate":
        raise CrossSiteError("the request was sent by a page of another site")


def _is_by_itself(request: Request) -> bool:
    """Whether an open page sends the request, and not the person: that must not keep a session alive."""
    accept = request.headers.get("accept", "")
    is_part = request.headers.get("hx-request") == "true" or accept in ("application/json", "text/event-stream")
    return request.method in _SAFE and is_part


def _to_login(request: Request) -> Response:
    wanted = _wanted(request)
    address = "/login" if wanted == "/" or request.method not in _SAFE else f"/login?next={quote(wanted, safe='')}"
    if request.headers.get("hx-request") == "true":
        return Response(status_code=401, headers={"HX-Redirect": address})
    if "text/html" not in request.headers.get("accept", "text/html") and request.headers.get("accept") != "*/*":
        raise HTTPException(401, "sign in first")
    return RedirectResponse(address, status_code=303)


def _limited(receive: Receive) -> Receive:
    left = _BODY_BYTES_MAX

    async def limited() -> Message:
        nonlocal left
        message = await receive()
        if message["type"] == "http.request":
            left -= len(message.get("body", b""))
            if left < 0:
                raise BodyTooLargeError
        return message

    return limited
