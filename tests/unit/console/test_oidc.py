"""Signing in with OpenID Connect: brokers decide about the access token; forged, replayed and foreign logins fail."""

import pytest

from ottla.console.oidc.flow import LoginFlow, WrongLoginFlowError
from ottla.console.settings import AuthMode, ConsoleSettings, OidcSettings
from ottla.model.errors import MisuseError
from tests.broker.console.identity_provider import SECRET


@pytest.mark.parametrize(
    "issuer",
    [
        "http://id.example",
        "ftp://id.example",
        "https://",
        "https://a:b@id.example",
        "https://id.example?x",
        "id.example",
    ],
)
def test_issuers_that_are_refused(issuer: str) -> None:
    with pytest.raises(MisuseError, match="--oidc-issuer"):
        OidcSettings(issuer=issuer, client_id="c")


def test_settings_that_are_refused() -> None:
    oidc = OidcSettings(issuer="https://id.example", client_id="c")
    with pytest.raises(MisuseError, match="--auth oidc needs"):
        ConsoleSettings(bootstrap="b:1", auth=AuthMode.OIDC)
    with pytest.raises(MisuseError, match="--auth oidc needs"):
        ConsoleSettings(bootstrap="b:1", oidc=oidc)
    with pytest.raises(MisuseError, match="openid"):
        OidcSettings(issuer="https://id.example", client_id="c", scopes=("profile",))
    with pytest.raises(MisuseError, match="/login/callback"):
        OidcSettings(issuer="https://id.example", client_id="c", redirect_url="https://console.example/")
    assert SECRET not in repr(OidcSettings(issuer="https://id.example", client_id="c", client_secret=SECRET))


def test_a_login_must_be_finished_in_time() -> None:
    now = 1000.0
    flow = LoginFlow(lambda: now)
    login, cookie = flow.begin("/x")
    assert login.verifier not in cookie
    now += 599
    assert login == flow.finish(cookie, login.state)
    login, cookie = flow.begin("/x")
    now += 601
    with pytest.raises(WrongLoginFlowError, match="longer than 10 minutes"):
        flow.finish(cookie, login.state)
    for forged in ("", ".", "x.y", "ø.ø", "WzFd.x", cookie[:-1], "W10." + cookie.partition(".")[2]):
        with pytest.raises(WrongLoginFlowError, match="did not begin"):
            flow.finish(forged, login.state)
