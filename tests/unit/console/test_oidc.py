"""Signing in with OpenID Connect: brokers decide about the access token; forged, replayed and foreign logins fail."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from ottla.console.oidc.flow import LoginFlow, WrongLoginFlowError
from ottla.console.settings import AuthMode, ConsoleSettings, OidcSettings
from ottla.model.errors import MisuseError
from ottla.testing import SecuredBroker
from tests.unit.broker.logins.secured import AUDIENCE, KEY, OTHER_KEY
from tests.unit.console.conftest import HOST, Visitor
from tests.unit.console.identity_provider import CLIENT, SECRET, IdentityProvider

ARRIVING = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}


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


def approved(console: Visitor, after: str = "/topics") -> str:
    """Begins a login and signs in at the provider: the address that the browser is sent back to."""
    begun = console.get("/login/start", params={"next": after})
    assert 303 == begun.status_code, begun.text
    there = httpx.get(begun.headers["location"].replace("/authorize", "/approve"), trust_env=False)
    found = str(there.headers["location"])
    assert found.startswith(f"{HOST}/login/callback?")
    return found


def sign_in(console: Visitor) -> Any:
    return console.get(approved(console), headers=ARRIVING)


def refusal(console: Visitor, address: str) -> str:
    """What the page says about an answer of the provider that must not sign anyone in."""
    page = console.get(address, headers=ARRIVING)
    assert 401 == page.status_code, page.text
    assert 303 == console.get("/topics").status_code, "nobody is signed in"
    found = re.search(r'role="alert">(?:<svg.*?</svg>)?\s*(.*?)</p>', page.text, re.DOTALL)
    assert found is not None, page.text
    return found[1]


@pytest.mark.broker
def test_the_acls_of_the_signed_in_user_apply(console: Visitor, provider: IdentityProvider) -> None:
    to_login = console.get("/topics")
    assert (303, "/login?next=%2Ftopics") == (to_login.status_code, to_login.headers["location"])
    page = console.get(to_login.headers["location"]).text
    assert 'href="/login/start?next=%2Ftopics"' in page
    assert 404 == console.post("/login", {"user": "alice", "password": "x"}).status_code
    before = console.client.cookies.get("ottla_console_8080")
    done = sign_in(console)
    assert 200 == done.status_code, done.text
    assert '<meta http-equiv="refresh" content="0; url=/topics">' in done.text
    assert before != console.client.cookies.get("ottla_console_8080"), "a session has a new cookie"
    assert None is console.client.cookies.get("ottla_console_8080_login")
    topics = console.get("/topics").text
    assert "visible" in topics
    assert "nobodys" not in topics
    assert "alice" in topics
    assert [("authorization_code", CLIENT)] == [(each["grant_type"], each["client_id"]) for each in provider.asked]


@pytest.mark.broker
def test_sign_out_forgets_the_session_and_offers_to_sign_out_at_the_provider(
    console: Visitor, provider: IdentityProvider
) -> None:
    sign_in(console)
    console.get("/topics")
    page = console.post("/logout")
    assert "Signed out" in page.text
    link = re.search(r'href="([^"]*/end\?[^"]*)"', page.text)
    assert link is not None
    given = parse_qs(urlsplit(link[1].replace("&amp;", "&")).query)
    assert [f"{HOST}/login"] == given["post_logout_redirect_uri"]
    assert 3 == len(given["id_token_hint"][0].split("."))
    assert 303 == console.get("/topics").status_code


@pytest.mark.broker
def test_sign_out_revokes_the_refresh_token(console: Visitor, provider: IdentityProvider) -> None:
    before = provider.refresh_tokens
    sign_in(console)
    console.get("/topics")
    assert 1 == len(provider.refresh_tokens - before)
    assert "Signed out" in console.post("/logout").text
    assert before == provider.refresh_tokens


@pytest.mark.broker
def test_sign_out_works_while_the_provider_revokes_nothing(
    console: Visitor, provider: IdentityProvider, caplog: pytest.LogCaptureFixture
) -> None:
    sign_in(console)
    console.get("/topics")
    provider.refuses_revocation = True
    assert "Signed out" in console.post("/logout").text
    assert 303 == console.get("/topics").status_code
    assert "was not revoked" in caplog.text
    assert not any(each in caplog.text for each in provider.refresh_tokens)


@pytest.mark.broker
def test_opaque_access_tokens_are_refused_with_advice(console: Visitor, provider: IdentityProvider) -> None:
    provider.is_opaque = True
    assert "configure the provider to issue JWT access tokens" in refusal(console, approved(console))


@pytest.mark.broker
def test_tokens_are_renewed_while_the_session_lives(console: Visitor, provider: IdentityProvider) -> None:
    provider.lifetime_seconds = 1.0
    before = provider.renewals
    sign_in(console)
    deadline = time.monotonic() + 30
    while provider.renewals < before + 2 and time.monotonic() < deadline:
        assert "visible" in console.get("/topics").text
        session = console.console.sessions.find(console.client.cookies["ottla_console_8080"], is_used=True)
        assert session is not None
        assert session.tokens is not None
        console.run(session.tokens.token)
    assert provider.renewals >= before + 2, "each refresh token is used once"


@pytest.mark.broker
def test_a_login_that_the_provider_ended_ends_the_session(console: Visitor, provider: IdentityProvider) -> None:
    provider.lifetime_seconds = 1.0
    sign_in(console)
    provider.refuses_renewal = True
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        console.run(console.console.sessions.renew_tokens)
        if console.get("/topics").status_code == 303:
            break
    assert 303 == console.get("/topics").status_code
    assert console.get("/topics").headers["location"].startswith("/login")


@pytest.mark.broker
def test_a_provider_that_is_away_is_named_and_the_session_goes_on_afterwards(
    console: Visitor, provider: IdentityProvider
) -> None:
    provider.lifetime_seconds = 1.0
    sign_in(console)
    provider.is_away = True
    deadline = time.monotonic() + 60
    while (page := console.get("/topics")).status_code == 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (503, True) == (page.status_code, "The identity provider does not answer" in page.text), page.text
    provider.is_away, provider.lifetime_seconds = False, 3600.0
    assert "visible" in console.get("/topics").text


@pytest.mark.broker
def test_an_answer_with_another_state_is_refused(console: Visitor) -> None:
    address = approved(console)
    right = parse_qs(urlsplit(address).query)["state"][0]
    assert "another login" in refusal(console, address.replace(right, right[::-1]))
    assert "another login" in refusal(console, address.replace(f"state={right}", ""))
    assert 200 == console.get(address, headers=ARRIVING).status_code, "the right one still can be used"


@pytest.mark.broker
def test_an_answer_is_used_once(console: Visitor, provider: IdentityProvider) -> None:
    address = approved(console)
    cookie = console.client.cookies["ottla_console_8080_login"]
    assert 200 == console.get(address, headers=ARRIVING).status_code
    console.client.cookies.clear()
    assert "did not begin a login" in refusal(console, address)
    console.client.cookies.set("ottla_console_8080_login", cookie)
    assert "finished before" in refusal(console, address)
    assert 1 == len(provider.asked), "the provider is not even asked"
    # The same code in another login of the same browser.
    code, again = parse_qs(urlsplit(address).query)["code"][0], approved(console)
    other = parse_qs(urlsplit(again).query)["code"][0]
    assert "HTTP status 400" in refusal(console, again.replace(other, code))


@pytest.mark.broker
def test_a_login_that_another_browser_began_is_refused(
    console: Visitor, secured: SecuredBroker, provider: IdentityProvider, visit: Callable[..., Visitor]
) -> None:
    """Otherwise a link could sign someone in as the attacker, who would then read what they do there."""
    provider.user = "mallory"
    attack = approved(console)
    console.client.cookies.clear()
    assert "did not begin a login" in refusal(console, attack)
    approved(console)
    assert "another login" in refusal(console, attack)
    other = opened(secured, provider, visit)
    approved(other)
    cookie = other.client.cookies["ottla_console_8080_login"]
    console.client.cookies.clear()
    console.client.cookies.set("ottla_console_8080_login", cookie)
    assert "did not begin a login" in refusal(console, attack), "the cookie of another console"


@pytest.mark.broker
def test_another_site_cannot_begin_a_login(console: Visitor) -> None:
    page = console.get("/login/start", headers=ARRIVING)
    assert 200 == page.status_code
    assert "ottla_console_8080_login" not in console.client.cookies


@pytest.mark.broker
@pytest.mark.parametrize(
    ("lies", "words"),
    [
        ({"id_claims": {"nonce": "another"}}, "nonce"),
        ({"id_claims": {"nonce": None}}, "nonce"),
        ({"id_claims": {"aud": "another-client"}}, "another audience than --oidc-client-id"),
        ({"id_claims": {"aud": [CLIENT, "other"]}}, "azp"),
        ({"id_claims": {"aud": [CLIENT, "other"], "azp": "other"}}, "azp"),
        ({"id_claims": {"iss": "https://evil.example"}}, "another issuer"),
        ({"id_claims": {"exp": 1_000_000_000}}, "ID token of the identity provider is not accepted: the token has"),
        ({"id_claims": {"sub": "bob"}}, "another user"),
        ({"is_unsigned": True}, "algorithm is not accepted"),
        ({"key": OTHER_KEY}, "not in the JWKS"),
        ({"access_claims": {"aud": "another"}}, "another audience than --oidc-audience"),
        ({"access_claims": {"iss": "https://evil.example"}}, "another issuer"),
        ({"access_claims": {"exp": 1_000_000_000}}, "has expired"),
    ],
)
def test_tokens_that_are_not_accepted(
    console: Visitor, provider: IdentityProvider, lies: dict[str, Any], words: str
) -> None:
    address = approved(console)
    for name, value in lies.items():
        setattr(provider, name, value)
    assert words in refusal(console, address)


@pytest.mark.broker
def test_the_brokers_have_the_last_word(
    secured: SecuredBroker, provider: IdentityProvider, visit: Callable[..., Visitor]
) -> None:
    console = opened(secured, provider, visit, audience=None)
    address = approved(console)
    provider.access_claims = {"aud": "not the brokers"}
    assert "refused" in refusal(console, address)


@pytest.mark.broker
def test_a_refusal_of_the_provider_is_shown_only_for_a_login_of_this_browser(console: Visitor) -> None:
    state = parse_qs(urlsplit(approved(console)).query)["state"][0]
    assert "access_denied" in refusal(console, f"/login/callback?error=access_denied&state={state}")
    assert "Call 555" not in refusal(console, f"/login/callback?error=Call+555&state={state}")
    state = parse_qs(urlsplit(approved(console)).query)["state"][0]
    assert "does not name" in refusal(console, f"/login/callback?error=Call+555&state={state}")
    state = parse_qs(urlsplit(approved(console)).query)["state"][0]
    assert "(iss)" in refusal(console, f"/login/callback?code=x&iss=https://evil.example&state={state}")


@pytest.mark.broker
@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"issuer": "https://evil.example"}, "another issuer"),
        ({"token_endpoint": "http://id.example/token"}, "no usable token_endpoint"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "no usable authorization_endpoint"),
        ({"jwks_uri": "file:///etc/passwd"}, "no usable jwks_uri"),
        ({"filler": "x" * (1 << 20)}, "is too large"),
    ],
)
def test_discovery_documents_that_are_refused(
    console: Visitor, provider: IdentityProvider, document: dict[str, Any], words: str
) -> None:
    provider.document = document
    page = console.get("/login/start")
    assert 503 == page.status_code
    assert words in page.text


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
    for forged in ("", ".", "x.y", cookie[:-1], "W10." + cookie.partition(".")[2]):
        with pytest.raises(WrongLoginFlowError, match="did not begin"):
            flow.finish(forged, login.state)
