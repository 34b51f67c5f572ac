"""Signing in at a real identity provider in a real browser: to another site and back, and with kills amid it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from ottla.testing import SecuredBroker
from ottla.testing.free_ports import consecutive_free_ports
from tests.console.console_process import ConsoleProcess
from tests.console.identity_provider.provider_process import AUDIENCE, CLIENT, SECRET, ProviderProcess
from tests.waiting import tries

LIFETIME_SECONDS = 6
"""Of access tokens, which are renewed during the tests."""
WAIT_SECONDS = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("oidc")


@pytest.fixture(scope="module")
def console_url() -> str:
    """Known before the console runs, because the provider sends browsers to no other address."""
    return f"http://127.0.0.1:{consecutive_free_ports(1)}"


@pytest.fixture(scope="module")
def provider(folder: Path, console_url: str) -> Iterator[ProviderProcess]:
    with ProviderProcess(folder, console_url, lifetime_seconds=LIFETIME_SECONDS) as made:
        yield made


@pytest.fixture(scope="module")
def oidc_console(provider: ProviderProcess, folder: Path, console_url: str) -> Iterator[ConsoleProcess]:
    settings = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/jwks",
        "sasl.oauthbearer.expected.issuer": provider.url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    with SecuredBroker(folder / "broker", settings) as secured:
        for topic in ("visible", "nobodys"):
            secured.create_topic(topic)
        for user in ("alice", "bob"):
            secured.allow(user, "Describe", topic="visible")
        (folder / "console.properties").write_text(secured.client_properties("console"))
        (folder / "secret").write_text(f"{SECRET}\n")
        options = ["--bootstrap", secured.bootstrap_of("SASL_SSL")]
        options += ["--command-config", str(folder / "console.properties"), "--auth", "oidc"]
        options += ["--oidc-issuer", provider.url, "--oidc-client-id", CLIENT, "--oidc-audience", AUDIENCE]
        options += ["--oidc-client-secret-file", str(folder / "secret")]
        made = ConsoleProcess(folder / "console", *options)
        made.url = console_url
        made.start()
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture
def visitor(oidc_console: ConsoleProcess, new_page: Callable[..., Page]) -> Page:
    """A page of a browser that nobody signed in with."""
    page = new_page(oidc_console.url)
    page.allowed_errors += ["status of 40", "status of 503"]
    return page


def at_provider(page: Page, address: str) -> None:
    """Opens a page of the console, and goes on to the provider's login page."""
    page.goto(address)
    page.get_by_role("link", name="Sign in").click()
    expect(page.get_by_placeholder("Enter any login")).to_be_visible()


def enter_password(page: Page, user: str, *, consents: bool = True) -> None:
    """On the provider's pages, up to the console. The provider asks for the person's consent once."""
    page.get_by_placeholder("Enter any login").fill(user)
    page.get_by_placeholder("and password").fill("any")
    page.get_by_role("button", name="Sign-in").click()
    if consents:
        page.get_by_role("button", name="Continue").click()


def expect_user(page: Page, user: str) -> None:
    expect(page.locator(".user-name")).to_have_text(user)


def repeatedly(is_done: Callable[[], bool]) -> Iterator[None]:
    """Yields until it is done; fails if that takes too long."""
    for _ in tries(seconds=WAIT_SECONDS):
        if is_done():
            return
        yield


def reload_until(page: Page, wanted: Locator) -> None:
    """Loads the list of topics until it is not that, but a page with this."""
    for _ in repeatedly(lambda: wanted.count() > 0):
        page.goto("/topics")


def test_from_a_link_to_the_provider_and_back_and_out(
    provider: ProviderProcess, oidc_console: ConsoleProcess, visitor: Page
) -> None:
    at_provider(visitor, "/topics/visible/partitions?q=x")
    enter_password(visitor, "alice")
    visitor.wait_for_url("**/topics/visible/partitions?q=x")
    expect_user(visitor, "alice")
    visitor.goto("/topics")
    expect(visitor.get_by_role("main")).to_contain_text("visible")
    expect(visitor.get_by_role("main")).not_to_contain_text("nobodys")
    # A link of another site: the browser keeps its session.
    visitor.goto(f"{provider.url}/jwks")
    visitor.evaluate("address => { location.href = address }", f"{oidc_console.url}/topics/visible")
    expect(visitor.locator("h1")).to_have_text("visible")
    expect_user(visitor, "alice")
    ended = provider.count("destroyed alice")
    visitor.get_by_role("button", name="Sign out").click()
    expect(visitor.locator("h1")).to_have_text("Signed out")
    provider.wait_event("destroyed alice", ended)
    visitor.get_by_role("link", name="sign out there, too").click()
    visitor.get_by_role("button", name="Yes, sign me out").click()
    visitor.wait_for_url(f"{oidc_console.url}/login**")
    # Neither here nor there is anyone signed in.
    at_provider(visitor, "/topics")


def test_tokens_are_renewed_until_the_provider_ends_the_login(provider: ProviderProcess, visitor: Page) -> None:
    at_provider(visitor, "/topics")
    enter_password(visitor, "alice")
    expect_user(visitor, "alice")
    seen = provider.count("renewed alice")
    for _ in repeatedly(lambda: provider.count("renewed alice") > seen):
        visitor.goto("/topics")
        expect(visitor.get_by_role("main")).to_contain_text("visible")
    provider.revoke("alice")
    reload_until(visitor, visitor.get_by_role("link", name="Sign in"))


def test_a_console_that_was_killed_during_the_login_says_so_and_offers_another(
    oidc_console: ConsoleProcess, visitor: Page
) -> None:
    at_provider(visitor, "/topics/visible/partitions?q=x")
    oidc_console.kill()
    oidc_console.start()
    enter_password(visitor, "alice")
    expect(visitor.get_by_role("alert")).to_contain_text("the console was started again")
    # The browser is signed in at the provider, so that it asks for nothing again.
    visitor.get_by_role("link", name="Sign in").click()
    visitor.wait_for_url("**/topics/visible/partitions?q=x")
    expect_user(visitor, "alice")


def test_two_tabs_sign_in_at_once(oidc_console: ConsoleProcess, visitor: Page) -> None:
    other = visitor.context.new_page()
    at_provider(visitor, "/topics/visible")
    at_provider(other, "/groups")
    enter_password(visitor, "alice")
    visitor.wait_for_url("**/topics/visible")
    enter_password(other, "alice", consents=False)
    other.wait_for_url("**/groups")
    for page in (visitor, other):
        page.goto("/topics")
        expect_user(page, "alice")


def test_a_provider_that_comes_back_with_other_keys(provider: ProviderProcess, visitor: Page) -> None:
    at_provider(visitor, "/topics")
    enter_password(visitor, "bob")
    expect_user(visitor, "bob")
    provider.kill()
    reload_until(visitor, visitor.get_by_text("The identity provider does not answer"))
    provider.start()
    reload_until(visitor, visitor.get_by_role("link", name="Sign in"))
    visitor.get_by_role("link", name="Sign in").click()
    enter_password(visitor, "bob")
    # Brokers fetch a key when they have seen a token that it signed, and refuse that token.
    signed_in, again = visitor.locator(".user-name"), visitor.get_by_role("link", name="Sign in")
    expect(signed_in.or_(again)).to_be_visible()
    for _ in repeatedly(lambda: signed_in.count() > 0):
        again.click()
        expect(signed_in.or_(again)).to_be_visible()
    expect_user(visitor, "bob")
