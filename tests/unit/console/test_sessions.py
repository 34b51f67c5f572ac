"""Sessions end by themselves, and failed logins have bounds."""

import pytest

from ottla.console.cluster.access import UserClients
from ottla.console.settings import AuthMode, ConsoleSettings
from ottla.console.web.login import LoginLimiter, TooManyLoginsError, login_options
from ottla.console.web.sessions import Sessions, TooManySessionsError

SETTINGS = ConsoleSettings(
    bootstrap="127.0.0.1:1", auth=AuthMode.CLUSTER, session_idle_seconds=100, session_seconds_max=250
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def clients() -> UserClients:
    return UserClients(SETTINGS, {}, None)


def test_a_session_ends_when_it_is_idle_and_when_it_is_old(clock: Clock) -> None:
    sessions = Sessions(SETTINGS, clock)
    cookie = sessions.sign_in("alice", clients())
    clock.now += 99
    assert None is not sessions.find(cookie, is_used=True)
    clock.now += 99
    assert None is not sessions.find(cookie, is_used=False), "a page that refreshes itself"
    clock.now += 1
    assert None is sessions.find(cookie, is_used=True)
    other = sessions.sign_in("bob", clients())
    for _ in range(5):
        clock.now += 49
        assert None is not sessions.find(other, is_used=True)
    clock.now += 5
    assert None is sessions.find(other, is_used=True)


async def test_clients_are_closed_with_their_session(clock: Clock) -> None:
    sessions = Sessions(SETTINGS, clock)
    mine, theirs = clients(), clients()
    admins = [mine.admin(), theirs.admin()]
    cookie = sessions.sign_in("alice", mine)
    await sessions.sign_out(cookie)
    assert None is sessions.find(cookie, is_used=True)
    sessions.sign_in("bob", theirs)
    clock.now += 101
    await sessions.end_expired()
    assert [True, True] == [each._is_closed for each in admins]


def test_cookies_and_tokens_belong_together(clock: Clock) -> None:
    one, two = Sessions(SETTINGS, clock), Sessions(SETTINGS, clock)
    cookie = one.new_cookie()
    token = one.csrf_token(cookie)
    assert one.is_csrf_token(cookie, token)
    assert not one.is_csrf_token(one.new_cookie(), token)
    assert not one.is_csrf_token("", one.csrf_token(""))
    assert not two.is_csrf_token(cookie, token), "another process has another key"


def test_the_number_of_sessions_has_a_bound(clock: Clock) -> None:
    sessions = Sessions(SETTINGS, clock)
    for _ in range(500):
        sessions.sign_in("alice", clients())
    with pytest.raises(TooManySessionsError):
        sessions.sign_in("alice", clients())


async def test_a_user_has_a_bounded_number_of_sessions(clock: Clock) -> None:
    sessions = Sessions(SETTINGS, clock)
    bob = sessions.sign_in("bob", clients())
    cookies = []
    for _ in range(22):
        clock.now += 1
        await sessions.make_room("alice")
        cookies.append(sessions.sign_in("alice", clients()))
        assert None is not sessions.find(cookies[0], is_used=True)
    assert None is not sessions.find(bob, is_used=False)
    assert [1, 2] == [at for at, cookie in enumerate(cookies) if sessions.find(cookie, is_used=False) is None]


def test_failed_logins_are_counted_by_address_and_by_user(clock: Clock) -> None:
    limiter = LoginLimiter(clock, tries=3, seconds=60)
    for number in range(3):
        limiter.begin("192.0.2.1", f"user-{number}")
        clock.now += 10
    with pytest.raises(TooManyLoginsError, match="try again in 30 s"):
        limiter.begin("192.0.2.1", "someone else")
    limiter.begin("192.0.2.2", "user-0")
    for number in range(3):
        limiter.begin(f"192.0.2.{10 + number}", "root")
    with pytest.raises(TooManyLoginsError):
        limiter.begin("192.0.2.9", "root")
    clock.now += 60
    limiter.begin("192.0.2.1", "root")


def test_logins_that_do_not_fail_are_not_counted(clock: Clock) -> None:
    limiter = LoginLimiter(clock, tries=2, seconds=60)
    for _ in range(5):
        limiter.begin("192.0.2.1", "alice")
        limiter.take_back("192.0.2.1", "alice")
    limiter.begin("192.0.2.1", "alice")
    limiter.begin("192.0.2.1", "alice")
    with pytest.raises(TooManyLoginsError):
        limiter.begin("192.0.2.1", "alice")


def test_a_login_replaces_that_of_the_console_and_keeps_its_encryption() -> None:
    own = {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": "ca.pem",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "c",
    }
    made = login_options(ConsoleSettings(bootstrap="b:1", client_options=own), "alice", "secret")
    assert {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": "ca.pem",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "secret",
    } == made
    assert "SASL_PLAINTEXT" == login_options(SETTINGS, "a", "b")["security_protocol"]
    assert "secret" not in repr(ConsoleSettings(bootstrap="b:1", client_options=made))
