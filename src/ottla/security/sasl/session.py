"""The login of one connection, on the broker's side: a table of states, from the first request to re-authentication.

Pure: takes the requests that belong to a login, the monotonic clock in seconds and the time in milliseconds since the
epoch. The shell reads frames, and sends the answers: `ottla.transport.authentication`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError
from ottla.model.invariants import InvariantViolation
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.broker_mechanism import BrokerMechanism, Identity

REAUTHENTICATION_SECONDS_MIN: Final = 1.0
"""The shortest time between two re-authentications of a connection."""


class LoginState(Enum):
    """What a connection may send."""

    # An enumeration hashes its member's name, in Python; every step of a login looks some up.
    __hash__ = object.__hash__

    NEW = auto()
    """ApiVersions or SaslHandshake."""
    VERSIONS_KNOWN = auto()
    """SaslHandshake."""
    TOKENS = auto()
    """SaslAuthenticate, until the mechanism is satisfied."""
    RAW_TOKENS = auto()
    """The mechanism's messages with their length and no header, as after SaslHandshake v0."""
    AUTHENTICATED = auto()
    """Any request, until the session expires; SaslHandshake begins a re-authentication."""
    REAUTHENTICATING = auto()
    """SaslAuthenticate, until the mechanism is satisfied again."""
    FAILED = auto()
    """Nothing: the connection is about to close."""


class LoginEvent(Enum):
    """What happens in a login."""

    __hash__ = object.__hash__

    VERSIONS = auto()
    """ApiVersions was answered without an error."""
    HANDSHAKE = auto()
    """A mechanism was agreed on."""
    RAW_HANDSHAKE = auto()
    """The same, with SaslHandshake v0."""
    ACCEPT = auto()
    """The mechanism knows the client."""
    FAIL = auto()


TRANSITIONS: Final[dict[LoginState, dict[LoginEvent, LoginState]]] = {
    LoginState.NEW: {
        LoginEvent.VERSIONS: LoginState.VERSIONS_KNOWN,
        LoginEvent.HANDSHAKE: LoginState.TOKENS,
        LoginEvent.RAW_HANDSHAKE: LoginState.RAW_TOKENS,
        LoginEvent.FAIL: LoginState.FAILED,
    },
    LoginState.VERSIONS_KNOWN: {
        LoginEvent.HANDSHAKE: LoginState.TOKENS,
        LoginEvent.RAW_HANDSHAKE: LoginState.RAW_TOKENS,
        LoginEvent.FAIL: LoginState.FAILED,
    },
    LoginState.TOKENS: {LoginEvent.ACCEPT: LoginState.AUTHENTICATED, LoginEvent.FAIL: LoginState.FAILED},
    LoginState.RAW_TOKENS: {LoginEvent.ACCEPT: LoginState.AUTHENTICATED, LoginEvent.FAIL: LoginState.FAILED},
    LoginState.AUTHENTICATED: {
        LoginEvent.HANDSHAKE: LoginState.REAUTHENTICATING,
        LoginEvent.FAIL: LoginState.FAILED,
    },
    LoginState.REAUTHENTICATING: {LoginEvent.ACCEPT: LoginState.AUTHENTICATED, LoginEvent.FAIL: LoginState.FAILED},
    LoginState.FAILED: {},
}
"""An event that is missing in a state cannot happen there."""


class UnexpectedRequestError(InvalidRequestError):
    """The request does not belong into this part of a login; the connection must close."""

    code = ErrorCode.ILLEGAL_SASL_STATE


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginRules:
    """What a listener accepts."""

    mechanisms: Mapping[str, Callable[[], BrokerMechanism]]
    """Makes the machine of one login, by the mechanism's name."""
    reauthentication_ms_max: Mapping[str, int]
    """connections.max.reauth.ms by mechanism; a mechanism that is missing, or has 0, has no limit."""


class Answer(NamedTuple):
    """The content of a response to a client's message."""

    reply: bytes
    session_lifetime_ms: int
    """0 if the session does not expire, or the exchange is not complete."""
    is_complete: bool


class LoginSession:
    """One connection's login. `identity` is not None once it has succeeded."""

    __slots__ = ("_began_at", "_exchange", "_expires_at", "_rules", "identity", "mechanism", "state")

    def __init__(self, rules: LoginRules) -> None:
        self._rules = rules
        self._exchange: BrokerMechanism | None = None
        self._expires_at: float | None = None
        """When the session expires, on the monotonic clock; None if it does not."""
        self._began_at: float | None = None
        """When the last re-authentication began, on the same clock."""
        self.state = LoginState.NEW
        self.mechanism: str | None = None
        """The mechanism that was agreed on."""
        self.identity: Identity | None = None

    def _on(self, event: LoginEvent) -> None:
        following = TRANSITIONS[self.state].get(event)
        if following is None:
            raise InvariantViolation(f"a login in state {self.state.name} cannot get the event {event.name}")
        self.state = following

    @property
    def expires(self) -> bool:
        """Whether the session ends at some time."""
        return self._expires_at is not None

    def is_expired(self, now: float) -> bool:
        """Whether only a re-authentication is accepted."""
        return self._expires_at is not None and now >= self._expires_at

    def fail(self) -> None:
        """Ends the login: nothing more is accepted."""
        if self.state is not LoginState.FAILED:
            self._on(LoginEvent.FAIL)
            self._exchange = None

    def expect_api_versions(self) -> None:
        """Raises `UnexpectedRequestError` if ApiVersions may not be asked now."""
        if self.state is not LoginState.NEW:
            self.fail()
            raise UnexpectedRequestError("ApiVersions is only answered once, before SaslHandshake")

    def on_api_versions(self) -> None:
        """ApiVersions was answered without an error: it must not be asked again before the login is complete."""
        self._on(LoginEvent.VERSIONS)

    def on_handshake(self, version: int, mechanism: str, now: float) -> ErrorCode:
        """The error code of a SaslHandshake. If it is not NONE the login has failed, except ILLEGAL_SASL_STATE.

        Raises `UnexpectedRequestError` where no handshake may come.
        """
        if self.state is LoginState.AUTHENTICATED:
            return self._begin_again(version, mechanism, now)
        if self.state not in (LoginState.NEW, LoginState.VERSIONS_KNOWN):
            self.fail()
            raise UnexpectedRequestError("a SaslHandshake in the middle of an authentication")
        make = self._rules.mechanisms.get(mechanism)
        if make is None:
            self.fail()
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self.mechanism = mechanism
        self._exchange = make()
        self._on(LoginEvent.HANDSHAKE if version else LoginEvent.RAW_HANDSHAKE)
        return ErrorCode.NONE

    def _begin_again(self, version: int, mechanism: str, now: float) -> ErrorCode:
        """A re-authentication: with the same mechanism, not too often, and only if the session can expire."""
        too_soon = self._began_at is not None and now - self._began_at < REAUTHENTICATION_SECONDS_MIN
        if self._expires_at is None or too_soon:
            return ErrorCode.ILLEGAL_SASL_STATE
        if not version or mechanism != self.mechanism or mechanism not in self._rules.mechanisms:
            self.fail()
            return ErrorCode.SASL_AUTHENTICATION_FAILED
        self._began_at = now
        self._exchange = self._rules.mechanisms[mechanism]()
        self._on(LoginEvent.HANDSHAKE)
        return ErrorCode.NONE

    def on_message(self, message: bytes, now: float, now_ms: int, *, is_raw: bool = False) -> Answer:
        """A message of the mechanism. A login that fails raises `AuthenticationError` or `UnexpectedRequestError`."""
        states = (LoginState.RAW_TOKENS,) if is_raw else (LoginState.TOKENS, LoginState.REAUTHENTICATING)
        exchange = self._exchange
        if self.state not in states or exchange is None:
            self.fail()
            raise UnexpectedRequestError("authentication data without a SaslHandshake")
        try:
            step = exchange.step(message, now_ms)
            if step.identity is None:
                return Answer(step.reply, 0, is_complete=False)
            return self._accept(step.reply, step.identity, now, now_ms)
        except AuthenticationError:
            self.fail()
            raise

    def _accept(self, reply: bytes, identity: Identity, now: float, now_ms: int) -> Answer:
        if self.identity is not None and identity.principal != self.identity.principal:
            raise AuthenticationError(
                f"Cannot change principals during re-authentication from {self.identity.principal} to"
                f" {identity.principal}"
            )
        limits = []
        if reauthentication_ms := self._rules.reauthentication_ms_max.get(self.mechanism or "", 0):
            limits.append(reauthentication_ms)
        if identity.expires_ms is not None:
            # An expiry within the allowed clock skew may have passed: then the next request must re-authenticate.
            limits.append(max(identity.expires_ms - now_ms, 1))
        lifetime_ms = min(limits, default=0)
        self._expires_at = now + lifetime_ms / 1000 if limits else None
        self.identity = identity
        self._exchange = None
        self._on(LoginEvent.ACCEPT)
        return Answer(reply, lifetime_ms, is_complete=True)
