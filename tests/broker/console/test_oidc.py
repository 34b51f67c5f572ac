"""Signing in with OpenID Connect: brokers decide about the access token; forged, replayed and foreign logins fail."""

import asyncio
import base64
import dataclasses
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc.jwk import RSAKey

from ottla.console.oidc import provider as provider_module
from ottla.console.oidc.flow import LoginFlow
from ottla.console.oidc.provider import Grant, LoginRefusedError, Provider, ProviderAwayError
from ottla.console.oidc.tokens import SessionTokens
from ottla.console.settings import AuthMode, OidcSettings
from ottla.console.web import sessions
from ottla.testing import SecuredBroker
from tests.broker.console.identity_provider import CLIENT, SECRET, IdentityProvider
from tests.loopback_http import Response
from tests.unit.broker.logins.secured import AUDIENCE, KEY, OTHER_KEY, token
from tests.unit.console.visitor import HOST, Visitor
from tests.waiting import wait_until

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


def approved(console: Visitor, after: str = "/topics") -> str:
    """Begins a login and signs in at the provider: the address that the browser is sent back to."""
    begun = console.get("/login/start", params={"next": after})
    assert 303 == begun.status_code, begun.text
    there = httpx.get(begun.headers["location"].replace("/authorize", "/approve"), trust_env=False)
    found = str(there.headers["location"])
    assert found.startswith(f"{HOST}/login/callback?")
    return found


def login_cookies(console: Visitor) -> dict[str, str]:
    """Those of logins that the browser began."""
    return {name: str(value) for name, value in console.client.cookies.items() if "_login_" in name}


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
    assert {} == login_cookies(console)
    topics = console.get("/topics").text
    assert "visible" in topics
    assert "nobodys" not in topics
    assert "alice" in topics
    assert [("authorization_code", CLIENT)] == [(each["grant_type"], each["client_id"]) for each in provider.asked]


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


def test_sign_out_revokes_the_refresh_token(console: Visitor, provider: IdentityProvider) -> None:
    before = provider.refresh_tokens
    sign_in(console)
    console.get("/topics")
    assert 1 == len(provider.refresh_tokens - before)
    assert "Signed out" in console.post("/logout").text
    assert before == provider.refresh_tokens


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


def test_opaque_access_tokens_are_refused_with_advice(console: Visitor, provider: IdentityProvider) -> None:
    provider.is_opaque = True
    assert "configure the provider to issue JWT access tokens" in refusal(console, approved(console))


def test_tokens_are_renewed_while_the_session_lives(console: Visitor, provider: IdentityProvider) -> None:
    provider.lifetime_seconds = 1.0
    before = provider.renewals
    sign_in(console)

    def is_renewed() -> bool:
        assert "visible" in console.get("/topics").text
        session = console.console.sessions.find(console.client.cookies["ottla_console_8080"], is_used=True)
        assert session is not None
        assert session.tokens is not None
        console.run(session.tokens.token)
        return provider.renewals >= before + 2

    wait_until(is_renewed, "each refresh token is used once")


def test_a_login_that_the_provider_ended_ends_the_session(console: Visitor, provider: IdentityProvider) -> None:
    provider.lifetime_seconds = 1.0
    sign_in(console)
    provider.refuses_renewal = True

    def is_ended() -> bool:
        console.run(console.console.sessions.renew_tokens)
        return bool(console.get("/topics").status_code == 303)

    wait_until(is_ended)
    assert console.get("/topics").headers["location"].startswith("/login")


def test_a_provider_that_is_away_is_named_and_the_session_goes_on_afterwards(
    console: Visitor, provider: IdentityProvider
) -> None:
    provider.lifetime_seconds = 1.0
    sign_in(console)
    provider.is_away = True
    wait_until(lambda: console.get("/topics").status_code != 200)
    page = console.get("/topics")
    assert (503, True) == (page.status_code, "The identity provider does not answer" in page.text), page.text
    provider.is_away, provider.lifetime_seconds = False, 3600.0
    assert "visible" in console.get("/topics").text


def test_an_answer_with_another_state_is_refused(console: Visitor) -> None:
    address = approved(console)
    right = parse_qs(urlsplit(address).query)["state"][0]
    assert "did not begin this login" in refusal(console, address.replace(right, right[::-1]))
    assert "did not begin this login" in refusal(console, address.replace(f"state={right}", ""))
    assert "another login" in refusal(console, address.replace(right, right[:16] + right[16:][::-1]))
    assert 200 == console.get(address, headers=ARRIVING).status_code, "the right one still can be used"


def test_an_answer_is_used_once(console: Visitor, provider: IdentityProvider) -> None:
    address = approved(console)
    [(name, cookie)] = login_cookies(console).items()
    assert 200 == console.get(address, headers=ARRIVING).status_code
    console.client.cookies.clear()
    assert "did not begin this login" in refusal(console, address)
    console.client.cookies.set(name, cookie)
    assert "finished before" in refusal(console, address)
    assert 1 == len(provider.asked), "the provider is not even asked"
    # The same code in another login of the same browser.
    code, again = parse_qs(urlsplit(address).query)["code"][0], approved(console)
    other = parse_qs(urlsplit(again).query)["code"][0]
    assert "HTTP status 400 (invalid_grant)" in refusal(console, again.replace(other, code))


def test_a_login_that_another_browser_began_is_refused(
    console: Visitor, secured: SecuredBroker, provider: IdentityProvider, visit: Callable[..., Visitor]
) -> None:
    """Otherwise a link could sign someone in as the attacker, who would then read what they do there."""
    provider.user = "mallory"
    attack = approved(console)
    console.client.cookies.clear()
    assert "did not begin this login" in refusal(console, attack)
    approved(console)
    [(_, own)] = login_cookies(console).items()
    assert "did not begin this login" in refusal(console, attack)
    state = parse_qs(urlsplit(attack).query)["state"][0]
    name = f"ottla_console_8080_login_{state[:16]}"
    console.client.cookies.set(name, own)
    assert "another login" in refusal(console, attack), "the victim's own cookie under the name of the attacker's"
    other = opened(secured, provider, visit)
    approved(other)
    [(_, cookie)] = login_cookies(other).items()
    console.client.cookies.clear()
    console.client.cookies.set(name, cookie)
    assert "did not begin this login" in refusal(console, attack), "the cookie of another console"


def test_another_site_cannot_begin_a_login(console: Visitor) -> None:
    page = console.get("/login/start", headers=ARRIVING)
    assert 200 == page.status_code
    assert {} == login_cookies(console)


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
        ({"id_claims": {"iat": 4_000_000_000}}, "not valid yet (iat); compare the clocks"),
        ({"id_claims": {"sub": "bob"}}, "another user"),
        ({"is_unsigned": True}, "algorithm is not accepted"),
        ({"key": OTHER_KEY}, "not in the JWKS"),
        ({"access_claims": {"aud": "another"}}, "another audience than --oidc-audience"),
        ({"access_claims": {"iss": "https://evil.example"}}, "another issuer"),
        ({"access_claims": {"exp": 1_000_000_000}}, "has expired; compare the clocks"),
    ],
)
def test_tokens_that_are_not_accepted(
    console: Visitor, provider: IdentityProvider, lies: dict[str, Any], words: str
) -> None:
    address = approved(console)
    for name, value in lies.items():
        setattr(provider, name, value)
    assert words in refusal(console, address)


def test_the_brokers_have_the_last_word(
    secured: SecuredBroker, provider: IdentityProvider, visit: Callable[..., Visitor]
) -> None:
    console = opened(secured, provider, visit, audience=None)
    address = approved(console)
    provider.access_claims = {"aud": "not the brokers"}
    assert "refused" in refusal(console, address)


def test_a_refusal_of_the_provider_is_shown_only_for_a_login_of_this_browser(console: Visitor) -> None:
    state = parse_qs(urlsplit(approved(console)).query)["state"][0]
    assert "access_denied" in refusal(console, f"/login/callback?error=access_denied&state={state}")
    assert "Call 555" not in refusal(console, f"/login/callback?error=Call+555&state={state}")
    state = parse_qs(urlsplit(approved(console)).query)["state"][0]
    assert "does not name" in refusal(console, f"/login/callback?error=Call+555&state={state}")
    state = parse_qs(urlsplit(approved(console)).query)["state"][0]
    assert "(iss)" in refusal(console, f"/login/callback?code=x&iss=https://evil.example&state={state}")


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


def test_tabs_sign_in_at_once_and_the_second_goes_to_its_own_page(console: Visitor) -> None:
    one, two = approved(console, "/topics"), approved(console, "/groups")
    assert "url=/topics" in console.get(one, headers=ARRIVING).text
    assert "url=/groups" in console.get(two, headers=ARRIVING).text
    assert {} == login_cookies(console)
    # A third tab still shows the login page: it is signed in by now.
    for address in ("/login", "/login/start"):
        page = console.get(address, params={"next": "/topics/visible?x=y"})
        assert (303, "/topics/visible?x=y") == (page.status_code, page.headers["location"])


def test_logins_that_are_never_finished_do_not_fill_the_browser(console: Visitor) -> None:
    begun = [approved(console, f"/topics?q={number}-{'x' * 1400}") for number in range(7)]
    assert 4 == len(login_cookies(console))
    assert sum(map(len, login_cookies(console).values())) < 8192
    assert "did not begin this login" in refusal(console, begun[0])
    for number in (3, 6):
        assert f"url=/topics?q={number}-" in console.get(begun[number], headers=ARRIVING).text


def test_a_long_address_does_not_keep_anyone_from_signing_in(console: Visitor) -> None:
    address = approved(console, f"/topics/visible/records?filter={'ø' * 5000}")
    [cookie] = login_cookies(console).values()
    assert len(cookie) < 4000
    assert "url=/topics/visible/records&#34;" in console.get(address, headers=ARRIVING).text.replace('"', "&#34;")


def test_a_console_that_was_started_again_offers_the_same_page(
    console: Visitor, secured: SecuredBroker, provider: IdentityProvider, visit: Callable[..., Visitor]
) -> None:
    address = approved(console, "/topics/visible?x=1")
    again = opened(secured, provider, visit)
    for name, value in login_cookies(console).items():
        again.client.cookies.set(name, value)
    page = again.get(address, headers=ARRIVING)
    assert (401, True) == (page.status_code, "the console was started again" in page.text)
    assert 'href="/login/start?next=%2Ftopics%2Fvisible%3Fx%3D1"' in page.text
    assert 1 > len(provider.asked), "the code is not spent"


@pytest.mark.parametrize(
    "after",
    [
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "///evil.example",
        "https://evil.example",
        "https:evil.example",
        "javascript:alert(1)",
        "data:text/html,x",
        " //evil.example",
        "\x00//evil.example",
        "evil.example",
    ],
)
def test_nobody_is_sent_to_another_site_after_the_login(console: Visitor, after: str) -> None:
    assert 'href="/login/start?next=%2F"' in console.get("/login", params={"next": after}).text
    # A cookie that the console did not make, as a neighbour under the same domain could set it.
    content = base64.urlsafe_b64encode(json.dumps(["s", after, 4_000_000_000]).encode()).decode().rstrip("=")
    console.client.cookies.set("ottla_console_8080_login_s", f"{content}.x")
    page = console.get("/login/callback?state=s&code=x", headers=ARRIVING)
    assert (401, True) == (page.status_code, 'href="/login/start?next=%2F"' in page.text)
    done = console.get(approved(console, after), headers=ARRIVING).text
    assert '<meta http-equiv="refresh" content="0; url=/">' in done
    for address in ("/login", "/login/start"):
        assert "/" == console.get(address, params={"next": after}).headers["location"]


def test_only_logins_that_are_refused_count_as_failed(console: Visitor, provider: IdentityProvider) -> None:
    for _ in range(6):
        state = parse_qs(urlsplit(approved(console)).query)["state"][0]
        assert "access_denied" in refusal(console, f"/login/callback?error=access_denied&state={state}")
    provider.is_away = True
    for _ in range(6):
        page = console.get(approved(console), headers=ARRIVING)
        assert (503, True) == (page.status_code, "HTTP status 503" in page.text)
    provider.is_away = False
    for _ in range(5):
        assert "(invalid_grant)" in refusal(console, re.sub("code=[^&]*", "code=guessed", approved(console)))
    assert 429 == console.get(approved(console), headers=ARRIVING).status_code


def test_a_console_with_too_many_sessions_says_so(
    console: Visitor, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_SESSIONS_MAX", 0)
    for _ in range(6):
        page = console.get(approved(console), headers=ARRIVING)
        assert (503, True) == (page.status_code, "users are signed in; try again later" in page.text)
    assert 'href="/login/start?next=%2Ftopics"' in page.text


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (path, text)
        for path in ("/.well-known/openid-configuration", "/token", "/jwks")
        for text in ("", "<html>", "[]", "null", '"x"', "[" * 50_000, '{"keys": 1}', "\ud7ff\x00", "x" * (2 << 20))
    ],
)
def test_garbage_from_the_provider_is_not_a_fault_of_the_console(
    console: Visitor, provider: IdentityProvider, path: str, text: str
) -> None:
    if path.startswith("/."):
        provider.answers = {path: Response(text=text)}
        page = console.get("/login/start")
    else:
        address = approved(console)
        provider.answers = {path: Response(text=text)}
        page = console.get(address, headers=ARRIVING)
    # A token endpoint that answers with an object, but without tokens, refuses.
    assert page.status_code in ((401, 503) if path == "/token" else (503,)), page.text
    assert 'href="/login/start?next=' in page.text
    provider.answers = {}
    assert 200 == sign_in(console).status_code


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:99999/x",
        "http://[::1/x",
        "http://localhost:{port}/ø",
        "http://localhost:{port}/a b",
        "http://localhost:{port}/a\r\nX: y",
        f"https://{'a' * 300}.example/",
        "https://.example/",
        "http://localhost:1/x",
    ],
)
def test_odd_addresses_in_the_discovery_document(console: Visitor, provider: IdentityProvider, url: str) -> None:
    provider.document = {"token_endpoint": url.format(port=provider.port)}
    begun = console.get("/login/start")
    if begun.status_code == 303:
        state = parse_qs(urlsplit(begun.headers["location"]).query)["state"][0]
        begun = console.get(f"/login/callback?code=x&state={state}", headers=ARRIVING)
    assert (503, True) == (begun.status_code, 'role="alert"' in begun.text), begun.text


def test_a_wrong_secret_of_the_client_is_named(
    secured: SecuredBroker, provider: IdentityProvider, visit: Callable[..., Visitor]
) -> None:
    console = opened(secured, provider, visit, client_secret="another")
    assert "HTTP status 401 (invalid_client)" in refusal(console, approved(console))


def test_a_change_of_a_tab_after_the_other_one_signed_out(console: Visitor) -> None:
    sign_in(console)
    console.get("/topics")
    token = console.token
    assert "Signed out" in console.post("/logout").text
    changed = console.post("/topics/~create", {"name": "late", "csrf": token})
    assert (403, True) == (changed.status_code, "you signed in or out since" in changed.text)
    console.get("/login")
    assert 303 == console.post("/topics/~create", {"name": "late"}).status_code
    sign_in(console)
    assert "late" not in console.get("/topics").text


def test_a_change_that_was_begun_is_finished_although_another_tab_signs_out(
    console: Visitor, secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    secured.allow("alice", "All", topic="begun")
    sign_in(console)
    console.get("/topics")
    [session] = console.console.sessions._sessions.values()
    begin, is_begun, may_go_on = console.console.audit.begin, threading.Event(), threading.Event()

    async def recorded(**about: Any) -> Any:
        entry = await begin(**about)
        is_begun.set()
        assert await asyncio.to_thread(may_go_on.wait, 60)
        return entry

    monkeypatch.setattr(console.console.audit, "begin", recorded)
    with ThreadPoolExecutor() as pool:
        fields = {"name": "begun", "partitions": "1", "replication_factor": "1"}
        change = pool.submit(console.post, "/topics/~create", fields)
        assert is_begun.wait(60)
        assert "Signed out" in console.post("/logout").text
        assert not session.clients.admin()._is_closed
        may_go_on.set()
        assert 303 == change.result().status_code, change.result().text
    assert session.clients.admin()._is_closed
    assert [("create topic", "done")] == [(each.action, each.outcome) for each in console.console.audit.newest()]


@pytest.mark.parametrize("is_named", [True, False])
async def test_keys_that_were_replaced_are_fetched_again(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    """Also if the new key has the id of the old one, or none."""
    monkeypatch.setattr(provider_module, "_UNKNOWN_KEY_SECONDS", 0.0)
    newer = OTHER_KEY if is_named else RSAKey.generate_key(2048, {"kid": "first", "use": "sig", "alg": "RS256"})
    asked = provider_of(provider)
    assert "alice" == (await granted(asked, provider)).user
    provider.key, provider.published = newer, newer
    assert "alice" == (await granted(asked, provider)).user
    provider.published = KEY
    provider.key = RSAKey.generate_key(2048, {"kid": "first", "use": "sig", "alg": "RS256"})
    with pytest.raises(LoginRefusedError):
        await granted(asked, provider)


async def test_a_renewal_is_finished_even_if_its_caller_gave_up(provider: IdentityProvider) -> None:
    """The refresh token is spent: without the answer, nobody could renew the login any more."""
    provider.forget_logins()
    expired = dataclasses.replace(await granted(provider_of(provider), provider), expires_ms=0)
    tokens, before = SessionTokens(provider_of(provider), expired), provider.renewals
    provider.may_answer.clear()
    provider.is_asked.clear()
    callers = [asyncio.create_task(tokens.token()) for _ in range(5)]
    assert await asyncio.to_thread(provider.is_asked.wait, 60)
    callers[0].cancel()
    callers[1].cancel()
    revocation = asyncio.create_task(tokens.revoke())
    provider.may_answer.set()
    found = await asyncio.gather(*callers[2:])
    assert {tokens.access_token} == set(found)
    assert before + 1 == provider.renewals, "all callers share one renewal"
    await revocation
    assert not any(each.startswith("alice:") for each in provider.refresh_tokens), "the newest one was revoked"


async def test_callers_share_the_answer_of_a_slow_provider(provider: IdentityProvider) -> None:
    asked = provider_of(provider)
    provider.answers = {"/.well-known/openid-configuration": Response(status=500)}
    before = provider.requests
    found = await asyncio.gather(*(asked.endpoints() for _ in range(20)), return_exceptions=True)
    assert 20 == sum(isinstance(each, ProviderAwayError) for each in found)
    assert before + 1 == provider.requests
    provider.answers = {}
    assert f"{provider.url}/token" == (await asked.endpoints()).token


async def test_a_refresh_token_that_cannot_be_sent_is_not_kept(provider: IdentityProvider) -> None:
    asked = provider_of(provider)
    await asked.endpoints()
    answer = json.dumps({"access_token": token(iss=provider.url), "refresh_token": "\ud800"})
    provider.answers = {"/token": Response(text=answer)}
    grant = Grant(user="alice", access_token="a", expires_ms=0, refresh_token="r", id_token=None)
    assert "r" == (await asked.renew(grant)).refresh_token


def provider_of(provider: IdentityProvider) -> Provider:
    return Provider(OidcSettings(issuer=provider.url, client_id=CLIENT, client_secret=SECRET, audience=AUDIENCE))


async def granted(asked: Provider, provider: IdentityProvider) -> Grant:
    """Signs in without a console."""
    login, _ = LoginFlow(time.time).begin("/")
    url = await asked.authorization_url(
        redirect_url=HOST, state=login.state, nonce=login.nonce, challenge=login.challenge
    )
    there = await asyncio.to_thread(httpx.get, url.replace("/authorize", "/approve"), trust_env=False)
    code = parse_qs(urlsplit(there.headers["location"]).query)["code"][0]
    return await asked.exchange(code=code, verifier=login.verifier, redirect_url=HOST, nonce=login.nonce)
