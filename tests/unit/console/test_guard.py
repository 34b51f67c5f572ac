"""What every request passes: host names, origins, tokens, the sign-in; and the headers of every response."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.routing import Route

from ottla.console.settings import AuthMode, ConsoleSettings, OidcSettings
from ottla.model.errors import MisuseError
from ottla.transport.addresses import Address
from tests.unit.console.visitor import HOST, Visitor

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def open_console(visit: Callable[..., Visitor]) -> Visitor:
    return visit(NOWHERE)


def test_every_response_forbids_inline_scripts_and_frames(open_console: Visitor) -> None:
    for path in ("/jobs", "/nothing-here", "/health", "/assets/console.css"):
        headers = open_console.get(path).headers
        policy = dict(each.strip().split(" ", 1) for each in headers["content-security-policy"].split(";"))
        assert "'none'" == policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"]
        assert "'self'" == policy["script-src"] == policy["style-src"] == policy["form-action"]
        assert "nosniff" == headers["x-content-type-options"]
        assert "same-origin" == headers["referrer-policy"]
        assert re.fullmatch("[0-9a-f]{12}", headers["x-request-id"])


def test_pages_have_no_inline_script_or_style(open_console: Visitor) -> None:
    for path in ("/jobs", "/audit", "/nothing-here"):
        text = open_console.get(path).text
        assert not re.search(r"<script(?![^>]* src=)", text)
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", text)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8080", "[::2]"])
def test_a_name_that_is_rebound_to_loopback_is_refused(open_console: Visitor, host: str) -> None:
    assert 421 == open_console.get("/jobs", headers={"host": host}).status_code


@pytest.mark.parametrize(
    "host", ["", "localhost@evil", "localhost/assets", "localhost/login?", "[", "localhost:x", "localhost,evil", "a b"]
)
def test_what_is_not_a_host_is_refused(visit: Callable[..., Visitor], host: str) -> None:
    for auth in AuthMode:
        oidc = OidcSettings(issuer="https://id.example", client_id="console") if auth is AuthMode.OIDC else None
        assert 400 == visit(NOWHERE, auth=auth, oidc=oidc).get("/jobs", headers={"host": host}).status_code


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "localhost"])
def test_loopback_names_are_answered(open_console: Visitor, host: str) -> None:
    assert 200 == open_console.get("/jobs", headers={"host": host}).status_code


def test_further_names_can_be_allowed(visit: Callable[..., Visitor]) -> None:
    console = visit(NOWHERE, hosts=("console.example",))
    assert 200 == console.get("/jobs", headers={"host": "Console.Example"}).status_code
    assert 421 == console.get("/jobs", headers={"host": "other.example"}).status_code


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_a_form_of_another_site_is_refused(open_console: Visitor, headers: dict[str, str]) -> None:
    assert 404 == open_console.post("/jobs/none/stop").status_code
    refused = open_console.post("/jobs/none/stop", headers=headers)
    assert 403 == refused.status_code
    assert "not from a page of this console" in refused.text


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_may_link_to_a_page_but_not_load_it(open_console: Visitor, site: str) -> None:
    for mode, status in (("no-cors", 403), ("cors", 403), ("navigate", 200)):
        sent = open_console.get("/jobs", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode})
        assert status == sent.status_code, mode
    own = open_console.get("/jobs", headers={"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"})
    typed = open_console.get("/jobs", headers={"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"})
    assert (200, 200) == (own.status_code, typed.status_code)


@pytest.mark.parametrize("auth", [AuthMode.NONE, AuthMode.CLUSTER])
def test_a_link_of_another_site_does_not_replace_the_session(visit: Callable[..., Visitor], auth: AuthMode) -> None:
    """The browser does not send its cookie with it; the page that it gets leads to the same address."""
    sent = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    console = visit(NOWHERE, auth=auth)
    for path, address in (
        ("/jobs?sort=a%26b", "/jobs?sort=a%26b"),
        ("//evil.example/x", "/evil.example/x"),
        ("/%5Cevil.example", "/%5Cevil.example"),
    ):
        page = console.get(HOST + path, headers=sent)
        assert 200 == page.status_code
        assert "set-cookie" not in page.headers
        assert f'<meta http-equiv="refresh" content="0; url={address}">' in page.text


def test_a_form_needs_the_token_of_its_own_browser(open_console: Visitor, visit: Callable[..., Visitor]) -> None:
    origin = {"Origin": HOST, "Sec-Fetch-Site": "same-origin"}
    open_console.get("/jobs")
    for token in ("", "0" * 64, open_console.token[:-1], visit(NOWHERE).get("/jobs") and "x"):
        refused = open_console.client.post("/jobs/none/stop", data={"csrf": token}, headers=origin)
        assert 403 == refused.status_code
    sent = open_console.client.post("/jobs/none/stop", headers={**origin, "X-CSRF-Token": open_console.token})
    assert 404 == sent.status_code
    # The same token with the cookie of nobody, and with that of another visitor.
    token = open_console.token
    open_console.client.cookies.clear()
    assert 403 == open_console.client.post("/jobs/none/stop", data={"csrf": token}, headers=origin).status_code
    open_console.get("/jobs")
    assert 403 == open_console.client.post("/jobs/none/stop", data={"csrf": token}, headers=origin).status_code


def test_a_giant_form_is_refused(open_console: Visitor) -> None:
    assert 413 == open_console.post("/jobs/none/stop", {"field": "x" * (17 << 20)}).status_code


def test_the_cookie_is_kept_from_scripts_and_other_sites(visit: Callable[..., Visitor]) -> None:
    given = visit(NOWHERE).get("/jobs").headers["set-cookie"]
    assert given.startswith("ottla_console_8080=")
    assert given.endswith("; Path=/; HttpOnly; SameSite=Strict")
    secure = visit(NOWHERE, tls_certificate="console.pem").get("/jobs").headers
    assert secure["set-cookie"].startswith("__Host-ottla_console_8080=")
    assert secure["set-cookie"].endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")
    assert "max-age" in secure["strict-transport-security"]
    behind_a_proxy = visit(NOWHERE).get("https://127.0.0.1:8080/jobs").headers["set-cookie"]
    assert behind_a_proxy.endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")


def test_without_a_login_only_loopback_is_served() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "console.example", ""):
        with pytest.raises(MisuseError, match="--auth cluster"):
            ConsoleSettings(bootstrap=NOWHERE, listen=Address(host, 8080))
        ConsoleSettings(bootstrap=NOWHERE, listen=Address(host, 8080), auth=AuthMode.CLUSTER)
    for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        ConsoleSettings(bootstrap=NOWHERE, listen=Address(host, 8080))


def test_with_a_login_every_page_asks_for_it(visit: Callable[..., Visitor]) -> None:
    console = visit(NOWHERE, auth=AuthMode.CLUSTER)
    paths = [each.path for each in console.console.app.routes if isinstance(each, Route)]
    assert len(paths) > 10
    for path in sorted(set(paths) - {"/login", "/health"}):
        address = re.sub(r"\{[^}]*\}", "1", path)
        answer: Any = console.get(address)
        if answer.status_code == 405:
            answer = console.post(address)
        assert 303 == answer.status_code, address
        assert answer.headers["location"].startswith("/login")
    assert 401 == console.get("/samples.json", headers={"accept": "application/json"}).status_code
    assert 200 == console.get("/login").status_code == console.get("/health").status_code
    odd = console.get("/groups/a%2Fb%2525%3F?q=x%26y").headers["location"]
    assert {"next": ["/groups/a%2Fb%2525%3F?q=x%26y"]} == parse_qs(urlsplit(odd).query)
    fragment = console.get("/jobs", headers={"hx-request": "true"})
    assert (401, "/login?next=%2Fjobs") == (fragment.status_code, fragment.headers["hx-redirect"])


@pytest.mark.parametrize("address", ["//evil.example", "/\\evil.example", "https://evil.example", "evil", "/a\nb"])
def test_the_login_leads_to_pages_of_this_console_only(visit: Callable[..., Visitor], address: str) -> None:
    page = visit(NOWHERE, auth=AuthMode.CLUSTER).get("/login", params={"next": address}).text
    assert '<input type="hidden" name="next" value="/">' in page
