"""The states of a login: no order of events leads to a session without an accepted message."""

from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.error_codes import ErrorCode
from ottla.model.invariants import InvariantViolation
from ottla.security.principals import Principal
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.broker_mechanism import Identity, Step
from ottla.security.sasl.session import (
    TRANSITIONS,
    LoginEvent,
    LoginRules,
    LoginSession,
    LoginState,
    UnexpectedRequestError,
)

ALICE = Identity(Principal("User", "alice"))


class TwoSteps:
    """Accepts `open` after `hello`; `expires` gives a credential that expires."""

    def __init__(self) -> None:
        self._greeted = False

    def step(self, message: bytes, now_ms: int) -> Step:
        if message == b"hello" and not self._greeted:
            self._greeted = True
            return Step(b"hello yourself")
        if self._greeted and message in (b"open", b"expires", b"bob"):
            name = "bob" if message == b"bob" else "alice"
            expires_ms = now_ms + 5000 if message == b"expires" else None
            return Step(b"come in", Identity(Principal("User", name), expires_ms=expires_ms))
        raise AuthenticationError("no")


def session(reauthentication_ms: int = 0) -> LoginSession:
    rules = LoginRules(
        mechanisms=MappingProxyType({"TWO": TwoSteps, "OTHER": TwoSteps}),
        reauthentication_ms_max=MappingProxyType({"TWO": reauthentication_ms}),
    )
    return LoginSession(rules)


def log_in(login: LoginSession, last: bytes = b"open", now: float = 0.0) -> int:
    assert ErrorCode.NONE == login.on_handshake(1, "TWO", now)
    assert not login.on_message(b"hello", now, 0).is_complete
    answer = login.on_message(last, now, 0)
    assert answer.is_complete
    return answer.session_lifetime_ms


def test_a_login() -> None:
    login = session()
    login.expect_api_versions()
    login.on_api_versions()

    assert 0 == log_in(login)
    assert (LoginState.AUTHENTICATED, ALICE, "TWO", False) == (
        login.state,
        login.identity,
        login.mechanism,
        login.expires,
    )


@pytest.mark.parametrize(
    ("reauthentication_ms", "last", "expected"),
    [(0, b"open", 0), (0, b"expires", 5000), (3000, b"open", 3000), (3000, b"expires", 3000), (9000, b"expires", 5000)],
)
def test_lifetimes(reauthentication_ms: int, last: bytes, expected: int) -> None:
    login = session(reauthentication_ms)

    assert expected == log_in(login, last, now=100.0)
    assert bool(expected) == login.expires
    assert not login.is_expired(100.0 + expected / 1000 - 0.001)
    assert bool(expected) == login.is_expired(100.0 + expected / 1000)


def test_a_session_that_does_not_expire_cannot_be_renewed() -> None:
    login = session()
    log_in(login)

    assert ErrorCode.ILLEGAL_SASL_STATE == login.on_handshake(1, "TWO", 10.0)
    assert LoginState.AUTHENTICATED is login.state


def test_renewals() -> None:
    login = session(3000)
    log_in(login, now=0.0)
    assert 3000 == log_in(login, now=0.5), "the first renewal may come at any time"
    assert ErrorCode.ILLEGAL_SASL_STATE == login.on_handshake(1, "TWO", 1.4)
    assert 3000 == log_in(login, now=1.5)
    assert not login.is_expired(4.4)


@pytest.mark.parametrize(("version", "mechanism"), [(0, "TWO"), (1, "OTHER"), (1, "THREE")])
def test_a_renewal_with_another_mechanism_or_framing_fails(version: int, mechanism: str) -> None:
    login = session(3000)
    log_in(login)

    assert ErrorCode.SASL_AUTHENTICATION_FAILED == login.on_handshake(version, mechanism, 5.0)
    assert LoginState.FAILED is login.state


def test_a_renewal_cannot_change_the_principal() -> None:
    login = session(3000)
    log_in(login)
    login.on_handshake(1, "TWO", 5.0)
    login.on_message(b"hello", 5.0, 0)

    with pytest.raises(AuthenticationError, match="Cannot change principals"):
        login.on_message(b"bob", 5.0, 0)
    assert (LoginState.FAILED, ALICE) == (login.state, login.identity)


def test_raw_and_framed_messages_are_not_mixed() -> None:
    for version, is_raw in ((0, False), (1, True)):
        login = session()
        login.on_handshake(version, "TWO", 0.0)
        with pytest.raises(UnexpectedRequestError):
            login.on_message(b"hello", 0.0, 0, is_raw=is_raw)


def test_nothing_is_possible_after_a_failure() -> None:
    login = session()
    login.fail()

    with pytest.raises(UnexpectedRequestError):
        login.expect_api_versions()
    with pytest.raises(UnexpectedRequestError):
        login.on_handshake(1, "TWO", 0.0)
    with pytest.raises(UnexpectedRequestError):
        login.on_message(b"hello", 0.0, 0)
    with pytest.raises(InvariantViolation):
        login.on_api_versions()


def test_only_an_accepted_message_authenticates() -> None:
    into = {
        (state, event)
        for state, events in TRANSITIONS.items()
        for event, following in events.items()
        if following is LoginState.AUTHENTICATED
    }

    assert {
        (LoginState.TOKENS, LoginEvent.ACCEPT),
        (LoginState.RAW_TOKENS, LoginEvent.ACCEPT),
        (LoginState.REAUTHENTICATING, LoginEvent.ACCEPT),
    } == into


_EVENTS = st.one_of(
    st.tuples(st.just("versions")),
    st.tuples(st.just("handshake"), st.integers(0, 1), st.sampled_from(["TWO", "OTHER", "X"])),
    st.tuples(st.just("message"), st.sampled_from([b"hello", b"open", b"bob", b"x"]), st.booleans()),
)


@given(st.lists(_EVENTS, max_size=12), st.sampled_from([0, 3000]))
def test_no_order_of_requests_logs_in_without_both_messages(events: list[tuple], reauthentication_ms: int) -> None:  # type: ignore[type-arg]
    login = session(reauthentication_ms)
    accepted: list[bytes] = []
    for number, event in enumerate(events):
        try:
            match event:
                case ("versions",):
                    login.expect_api_versions()
                    login.on_api_versions()
                case ("handshake", version, mechanism):
                    login.on_handshake(version, mechanism, number)
                case ("message", message, is_raw):
                    login.on_message(message, number, 0, is_raw=is_raw)
                    accepted.append(message)
        except (AuthenticationError, UnexpectedRequestError):
            assert LoginState.FAILED is login.state
        if login.identity is not None:
            assert accepted[0] == b"hello"
            name = accepted[1].decode().replace("open", "alice")
            assert name == login.identity.principal.name
