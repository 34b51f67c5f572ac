"""`/login` and `/logout`: a session with the rights of a user of the cluster."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ottla.console.settings import AuthMode
from ottla.console.web.login import TooManyLoginsError, WrongLoginError, log_in
from ottla.console.web.pages import NotFoundError, form_of, render, see, text_of
from ottla.model.errors import RetriableError


async def login_form(request: Request) -> Response:
    """The form."""
    _need_login(request)
    if request.scope.get("console.access") is not None:
        return RedirectResponse("/", status_code=303)
    return render(request, "login/login.html", user="", problem="", after=_after(request.query_params.get("next", "")))


async def login(request: Request) -> Response:
    """Checks the password at the brokers; then a session under a new cookie."""
    _need_login(request)
    console = request.app.state.console
    form = await form_of(request)
    user, after = text_of(form, "user", ""), _after(text_of(form, "next", ""))
    address = request.client.host if request.client is not None else "unknown"
    status = 401
    try:
        console.limiter.begin(address, user)
        try:
            clients = await log_in(console.settings, user, text_of(form, "password", ""))
        except WrongLoginError:
            raise
        except BaseException:
            console.limiter.take_back(address, user)
            raise
    except WrongLoginError as error:
        problem = str(error)
    except TooManyLoginsError as error:
        problem, status = str(error), 429
    except RetriableError as error:
        problem, status = f"the cluster does not answer: {error}", 503
    else:
        console.limiter.take_back(address, user)
        # What the browser was signed in with before has no cookie any more.
        await console.sessions.sign_out(request.scope["console.cookie"])
        await console.sessions.make_room(user)
        try:
            request.scope["console.new_cookie"] = console.sessions.sign_in(user, clients)
        except BaseException:
            await clients.release()
            raise
        return RedirectResponse(after, status_code=303)
    return render(request, "login/login.html", status=status, user=user, problem=problem, after=after)


async def logout(request: Request) -> Response:
    """Ends the session."""
    sessions = request.app.state.console.sessions
    await sessions.sign_out(request.scope["console.cookie"])
    request.scope["console.new_cookie"] = sessions.new_cookie()
    return see(request, "/login")


def _need_login(request: Request) -> None:
    if request.app.state.console.settings.auth is not AuthMode.CLUSTER:
        raise NotFoundError("this console has no login; start it with --auth cluster")


def _after(address: str) -> str:
    """Where to go after the login: an address of this console, never of another site."""
    is_here = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if is_here else "/"


routes = [
    Route("/login", login_form),
    Route("/login", login, methods=["POST"]),
    Route("/logout", logout, methods=["POST"]),
]
