"""`/login` and `/logout`: a session with the rights of a user of the cluster, who has a password there or signs in at
an identity provider."""

import asyncio
import logging
import re
import time
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ottla.console.oidc.flow import LOGIN_SECONDS, LoginFlow, WrongLoginFlowError
from ottla.console.oidc.provider import LoginRefusedError, Provider, ProviderAwayError
from ottla.console.oidc.tokens import SessionTokens
from ottla.console.settings import OIDC_CALLBACK, AuthMode
from ottla.console.web.cookies import cookie_header
from ottla.console.web.login import TooManyLoginsError, WrongLoginError, log_in, log_in_with_tokens
from ottla.console.web.pages import NotFoundError, form_of, render, see, text_of
from ottla.console.web.sessions import TooManySessionsError
from ottla.model.errors import RetriableError
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.transport.refusal_log import RefusalKind

if TYPE_CHECKING:
    from ottla.console.application import Console

_FOREIGN: Final = ("cross-site", "same-site")
_LOGGER: Final = logging.getLogger(__name__)
_SIGN_OUT_SECONDS: Final = 3.0
"""How long the provider may take for each thing that it is asked when somebody signs out."""
_PROBLEMS: Final = (
    WrongLoginFlowError,
    LoginRefusedError,
    WrongLoginError,
    TooManyLoginsError,
    TooManySessionsError,
    RetriableError,
)
"""Why a login fails: the login page says it, and offers another try."""
_SHOWN_MAX: Final = 200
_ERROR_CODE: Final = re.compile("[a-z_]{1,60}")


async def login_form(request: Request) -> Response:
    """The form."""
    _need_login(request)
    after = _after(request.query_params.get("next", ""))
    if request.scope.get("console.access") is not None:
        return RedirectResponse(after, status_code=303)
    return _login_page(request, after=after)


async def login(request: Request) -> Response:
    """Checks the password at the brokers; then a session under a new cookie."""
    _need_login(request, AuthMode.CLUSTER)
    console = request.app.state.console
    form = await form_of(request)
    user, after = text_of(form, "user", ""), _after(text_of(form, "next", ""))
    address = _address(request)
    try:
        with console.limiter.counted(address, user):
            clients = await log_in(console.settings, user, text_of(form, "password", ""))
            await _sign_in(request, user, clients)
    except _PROBLEMS as error:
        _log_refusal(request, f"login of user {user[:_SHOWN_MAX]!a}", error)
        status, problem = _described(error)
        return _login_page(request, status=status, user=user, problem=problem, after=after)
    return RedirectResponse(after, status_code=303)


async def start(request: Request) -> Response:
    """Sends the browser to the identity provider, with a cookie that belongs to this login."""
    console, provider = _provider_of(request)
    after = _after(request.query_params.get("next", ""))
    if request.headers.get("sec-fetch-site") in _FOREIGN:
        # Another site does not sign anyone in here.
        return _login_page(request, after=after)
    if request.scope.get("console.access") is not None:
        # In another tab since this page was loaded.
        return RedirectResponse(after, status_code=303)
    login, cookie = console.login_flow.begin(after)
    try:
        address = await provider.authorization_url(
            redirect_url=_redirect_url(request), state=login.state, nonce=login.nonce, challenge=login.challenge
        )
    except ProviderAwayError as error:
        return _login_page(request, status=503, problem=str(error), after=after)
    response = RedirectResponse(address, status_code=303)
    for name in console.login_flow.abandoned(request.cookies, _login_cookie(request, "")):
        _set_login_cookie(request, response, name, "")
    _set_login_cookie(request, response, _login_cookie(request, login.state), cookie)
    return response


async def callback(request: Request) -> Response:
    """Where the identity provider sends the browser back to: a code becomes tokens, and these a session."""
    console, provider = _provider_of(request)
    state = request.query_params.get("state", "")
    name = _login_cookie(request, state)
    cookie = request.cookies.get(name, "")
    address = _address(request)
    try:
        login = console.login_flow.finish(cookie, state)
        code = _code_of(request)
        with console.limiter.counted(address, address):
            user = await _finish(request, provider, code=code, verifier=login.verifier, nonce=login.nonce)
    except _PROBLEMS as error:
        _log_refusal(request, "login with the identity provider", error)
        status, problem = _described(error)
        # Another try goes to the same page, even if the console was started again since the cookie was made.
        after = _after(console.login_flow.claimed_after(cookie))
        return _login_page(request, status=status, problem=problem, after=after)
    # Not a redirect: that would be part of a navigation of another site, which sends no SameSite=Strict cookie.
    response = render(request, "login/continue.html", address=login.after, user=user)
    _set_login_cookie(request, response, name, "")
    return response


async def logout(request: Request) -> Response:
    """Ends the session; with an identity provider, revokes its refresh token and offers to sign out there, too."""
    console = request.app.state.console
    sessions = console.sessions
    session = sessions.find(request.scope["console.cookie"], is_used=True)
    await sessions.sign_out(request.scope["console.cookie"])
    request.scope["console.new_cookie"] = sessions.new_cookie()
    if console.provider is None:
        return see(request, "/login")
    there = None
    if session is not None and session.tokens is not None:
        await _revoke(session.tokens)
        there = await _end_session_url(request, console.provider, session.tokens)
    request.scope.pop("console.access", None)
    return _login_page(request, after="/", signed_out=True, end_session=there)


async def _revoke(tokens: SessionTokens) -> None:
    """People can sign out also while the provider is away: then the refresh token expires by itself."""
    try:
        async with asyncio.timeout(_SIGN_OUT_SECONDS):
            await tokens.revoke()
    except (AuthenticationError, ProviderAwayError) as error:
        _LOGGER.warning("the refresh token of a user who signed out was not revoked: %s", error)
    except TimeoutError:
        _LOGGER.warning("the identity provider has not yet revoked the refresh token of a user who signed out")


async def _end_session_url(request: Request, provider: Provider, tokens: SessionTokens) -> str | None:
    back = _redirect_url(request).removesuffix("/callback")
    try:
        async with asyncio.timeout(_SIGN_OUT_SECONDS):
            return await provider.end_session_url(tokens.id_token, back)
    except (ProviderAwayError, TimeoutError):
        return None


async def _finish(request: Request, provider: Provider, *, code: str, verifier: str, nonce: str) -> str:
    console = request.app.state.console
    redirect_url = _redirect_url(request)
    grant = await provider.exchange(code=code, verifier=verifier, redirect_url=redirect_url, nonce=nonce)
    tokens = SessionTokens(provider, grant)
    clients = await log_in_with_tokens(console.settings, tokens)
    await _sign_in(request, grant.user, clients, tokens)
    return grant.user


def _code_of(request: Request) -> str:
    """The code of the provider's answer. Raises `LoginRefusedError` if it has none."""
    given = request.query_params
    issuer = request.app.state.console.settings.oidc.issuer
    if given.get("iss", issuer) != issuer:
        raise LoginRefusedError("the answer is that of another identity provider (iss)")
    if "error" in given:
        reason = given["error"] if _ERROR_CODE.fullmatch(given["error"]) else "an error that it does not name"
        raise LoginRefusedError(f"the identity provider refused the login: {reason}")
    if not given.get("code"):
        raise LoginRefusedError("the identity provider sent no code")
    return given["code"]


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else "unknown"


def _log_refusal(request: Request, what: str, error: Exception) -> None:
    """Logged with the address, as brokers log theirs: they see only the console's."""
    address = _address(request)
    refusals = request.app.state.console.refusals
    refusals.add(RefusalKind.LOGIN, address, address, f"{what}: {error}", time.monotonic())


def _described(error: Exception) -> tuple[int, str]:
    """The status and the words of a login that failed."""
    match error:
        case TooManyLoginsError():
            return 429, str(error)
        case ProviderAwayError() | TooManySessionsError():
            return 503, str(error)
        case RetriableError():
            return 503, f"the cluster does not answer: {error}"
    return 401, str(error)


async def _sign_in(request: Request, user: str, clients: Any, tokens: SessionTokens | None = None) -> None:
    """Starts a session under a new cookie."""
    sessions = request.app.state.console.sessions
    # What the browser was signed in with before has no cookie any more.
    await sessions.sign_out(request.scope["console.cookie"])
    await sessions.make_room(user)
    try:
        request.scope["console.new_cookie"] = sessions.sign_in(user, clients, tokens)
    except BaseException:
        await clients.release()
        raise


def _login_page(
    request: Request,
    *,
    after: str,
    status: int = 200,
    user: str = "",
    problem: str = "",
    signed_out: bool = False,
    end_session: str | None = None,
) -> Response:
    oidc = request.app.state.console.settings.oidc
    return render(
        request,
        "login/login.html" if oidc is None else "login/oidc.html",
        status=status,
        user=user,
        problem=problem,
        after=after,
        signed_out=signed_out,
        end_session=end_session,
    )


def _provider_of(request: Request) -> "tuple[Console, Provider]":
    console = request.app.state.console
    if console.provider is None:
        raise NotFoundError("this console has no identity provider; start it with --auth oidc")
    return console, console.provider


def _redirect_url(request: Request) -> str:
    """Where the provider sends the browser back to, as the browser sees it."""
    given = request.app.state.console.settings.oidc.redirect_url
    return given or f"{request.scope['scheme']}://{request.headers['host']}{OIDC_CALLBACK}"


def _login_cookie(request: Request, state: str) -> str:
    """The name of a login's cookie."""
    return f"{request.app.state.console.sessions.cookie_name}_login_{LoginFlow.cookie_suffix(state)}"


def _set_login_cookie(request: Request, response: Response, name: str, value: str) -> None:
    """Lax, because the answer of the provider is a navigation from another site."""
    is_secure = request.app.state.console.settings.has_tls or request.scope["scheme"] == "https"
    seconds = LOGIN_SECONDS if value else 0
    header = cookie_header(name, value, is_secure=is_secure, same_site="Lax", seconds=seconds)
    response.headers.append("Set-Cookie", header)


def _need_login(request: Request, mode: AuthMode | None = None) -> None:
    found = request.app.state.console.settings.auth
    if found is AuthMode.NONE or mode not in (None, found):
        raise NotFoundError("this console has no such login; start it with --auth cluster or --auth oidc")


def _after(address: str) -> str:
    """Where to go after the login: an address of this console, never of another site."""
    is_here = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if is_here else "/"


routes = [
    Route("/login", login_form),
    Route("/login", login, methods=["POST"]),
    Route("/login/start", start),
    Route(OIDC_CALLBACK, callback),
    Route("/logout", logout, methods=["POST"]),
]
