"""Signing in with a user of the cluster, or with a token of an identity provider: the brokers check the password or the
token, and bounded tries protect both."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ottla.console.cluster.access import UserClients
from ottla.console.oidc.provider import LoginRefusedError
from ottla.console.oidc.tokens import SessionTokens
from ottla.console.settings import ConsoleSettings
from ottla.model.errors import DeniedError, MisuseError
from ottla.security.sasl.authentication_error import AuthenticationError

_KEYS_MAX: Final = 10_000
_TEXT_MAX: Final = 1024


class WrongLoginError(DeniedError):
    """No broker accepts the user and the password. Does not say which of the two is wrong."""


class TooManyLoginsError(DeniedError):
    """Too many logins failed; the message says how long to wait."""


class LoginLimiter:
    """Allows `tries` failed logins of an address, and of a user, within `seconds`. `now` is a clock in seconds."""

    def __init__(self, now: Callable[[], float], tries: int = 5, seconds: float = 60.0) -> None:
        self._now = now
        self._tries = tries
        self._seconds = seconds
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    @contextmanager
    def counted(self, address: str, user: str) -> Iterator[None]:
        """Around a login: it counts as failed if the brokers or the identity provider refuse it, not if they are away.
        Raises `TooManyLoginsError` if it must not be tried now."""
        self.begin(address, user)
        try:
            yield
        except (WrongLoginError, LoginRefusedError):
            raise
        except BaseException:
            self.take_back(address, user)
            raise
        self.take_back(address, user)

    def begin(self, address: str, user: str) -> None:
        """Counts a login as failed before it is tried, so that many at once are not more than one after the other.
        Raises `TooManyLoginsError` if it must not be tried now."""
        keys = _keys(address, user)
        for key in keys:
            failed = self._recent(key)
            if len(failed) >= self._tries:
                left = self._seconds - (self._now() - failed[0])
                raise TooManyLoginsError(f"too many failed logins; try again in {max(1, round(left))} s")
        for key in keys:
            self._recent(key).append(self._now())
            self._failures.move_to_end(key)
        while len(self._failures) > _KEYS_MAX:
            self._failures.popitem(last=False)

    def take_back(self, address: str, user: str) -> None:
        """The login that began last did not fail: the password was right, or was not looked at."""
        for key in _keys(address, user):
            failed = self._failures.get(key)
            if failed:
                failed.pop()

    def _recent(self, key: str) -> deque[float]:
        failed = self._failures.setdefault(key, deque(maxlen=self._tries))
        while failed and self._now() - failed[0] >= self._seconds:
            failed.popleft()
        return failed


def _keys(address: str, user: str) -> tuple[str, str]:
    return f"address {address}", f"user {user[:_TEXT_MAX]}"


def login_options(settings: ConsoleSettings, user: str, password: str) -> dict[str, Any]:
    """The client options of a signed-in user: the console's own, but with this login."""
    return {
        **_connection_options(settings),
        "sasl_mechanism": settings.login_mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


async def log_in(settings: ConsoleSettings, user: str, password: str) -> UserClients:
    """The clients of a user whose password the brokers accept. Raises `WrongLoginError`, or what keeps brokers away."""
    if not user or not password or len(user) > _TEXT_MAX or len(password) > _TEXT_MAX:
        raise WrongLoginError("user and password must not be empty")
    clients = UserClients(settings, login_options(settings, user, password), (user, password))
    try:
        return await _connected(clients)
    except MisuseError:
        raise WrongLoginError("the user or the password has a character that SASL forbids") from None


async def log_in_with_tokens(settings: ConsoleSettings, tokens: SessionTokens) -> UserClients:
    """The clients of a user whose access token the brokers accept. Raises `WrongLoginError`, or what keeps brokers
    away."""
    options = {
        **_connection_options(settings),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": tokens.token,
    }
    return await _connected(UserClients(settings, options, lambda: tokens.access_token))


def _connection_options(settings: ConsoleSettings) -> dict[str, Any]:
    """The client options of the console itself, without its own login."""
    own = {name: value for name, value in settings.client_options.items() if not name.startswith("sasl_")}
    is_encrypted = str(own.get("security_protocol", "PLAINTEXT")).upper().endswith("SSL")
    return {**own, "security_protocol": "SASL_SSL" if is_encrypted else "SASL_PLAINTEXT"}


async def _connected(clients: UserClients) -> UserClients:
    try:
        await clients.admin().cluster.refresh([])
    except BaseException as error:
        await clients.release()
        if isinstance(error, AuthenticationError):
            raise WrongLoginError(str(error)) from None
        raise
    return clients
