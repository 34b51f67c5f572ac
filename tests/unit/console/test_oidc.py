"""Signing in with OpenID Connect: brokers decide about the access token; forged, replayed and foreign logins fail."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.console.oidc.flow import LoginFlow, WrongLoginFlowError
from ottla.console.settings import AuthMode, ConsoleSettings, OidcSettings
from ottla.model.errors import MisuseError
from ottla.testing import SecuredBroker
from tests.broker.console.identity_provider import CLIENT, SECRET, IdentityProvider
from tests.unit.broker.logins.secured import AUDIENCE, KEY
from tests.unit.console.visitor import Visitor


@pytest.fixture(scope="module")
def issuer() -> Iterator[IdentityProvider]:
    with IdentityProvider() as made:
        yield made


@pytest.fixture
def provider(issuer: IdentityProvider) -> IdentityProvider:
    """The module's, which tells no lies yet."""
    issuer.user, issuer.key, issuer.is_unsigned, issuer.refuses_renewal = "alice", KEY, False, False
    issuer.id_claims, issuer.access_claims, issuer.document, issuer.lifetime_seconds = {}, {}, {}, 3600.0
    issuer.is_opaque, issuer.refuses_revocation, issuer.is_away = False, False, False
    issuer.published, issuer.answers = KEY, {}
    issuer.may_answer.set()
    issuer.asked.clear()
    return issuer


@pytest.fixture(scope="module")
def secured(issuer: IdentityProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"{issuer.url}/jwks",
        "sasl.oauthbearer.expected.issuer": issuer.url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    with SecuredBroker(tmp_path_factory.mktemp("secured"), settings) as made:
        for topic in ("visible", "nobodys"):
            made.create_topic(topic)
        made.allow("alice", "Read", topic="visible")
        yield made


@pytest.fixture
def console(secured: SecuredBroker, provider: IdentityProvider, visit: Callable[..., Visitor]) -> Visitor:
    return opened(secured, provider, visit)


def opened(secured: SecuredBroker, provider: IdentityProvider, visit: Callable[..., Visitor], **oidc: Any) -> Visitor:
    own = {"security_protocol": "SSL", "ssl_cafile": str(secured.certificates.file)}
    settings = OidcSettings(
        **{"issuer": provider.url, "client_id": CLIENT, "client_secret": SECRET, "audience": AUDIENCE, **oidc}
    )
    bootstrap = secured.bootstrap_of("SASL_SSL")
    return visit(bootstrap, auth=AuthMode.OIDC, oidc=settings, client_options=own)


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
