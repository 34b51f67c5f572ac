"""Signing in with OpenID Connect in a browser: to another site and back, with a cookie that only this site may send."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from ottla.testing import SecuredBroker
from tests.console.console_process import ConsoleProcess, running_console
from tests.unit.broker.logins.secured import AUDIENCE
from tests.unit.console.identity_provider import CLIENT, SECRET, IdentityProvider


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as made:
        yield made


@pytest.fixture(scope="module")
def oidc_console(provider: IdentityProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    settings = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/jwks",
        "sasl.oauthbearer.expected.issuer": provider.url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    folder = tmp_path_factory.mktemp("oidc")
    with SecuredBroker(folder / "broker", settings) as secured:
        for topic in ("visible", "nobodys"):
            secured.create_topic(topic)
        secured.allow("alice", "Describe", topic="visible")
        (folder / "console.properties").write_text(secured.client_properties("console"))
        (folder / "secret").write_text(f"{SECRET}\n")
        options = ["--bootstrap", secured.bootstrap_of("SASL_SSL")]
        options += ["--command-config", str(folder / "console.properties"), "--auth", "oidc"]
        options += ["--oidc-issuer", provider.url, "--oidc-client-id", CLIENT, "--oidc-audience", AUDIENCE]
        options += ["--oidc-client-secret-file", str(folder / "secret")]
        with running_console(folder, *options) as made:
            yield made


def test_from_a_link_to_the_provider_and_back_and_out(
    provider: IdentityProvider, oidc_console: ConsoleProcess, new_page: Callable[..., Page]
) -> None:
    page = new_page(oidc_console.url)
    page.allowed_errors.append("status of 40")
    page.goto("/topics/visible/partitions?q=x")
    page.get_by_role("link", name="Sign in").click()
    expect(page.get_by_role("link", name="Approve")).to_be_visible()
    page.get_by_role("link", name="Approve").click()
    page.wait_for_url("**/topics/visible/partitions?q=x")
    expect(page.locator(".user-name")).to_have_text("alice")
    page.goto("/topics")
    expect(page.get_by_role("main")).to_contain_text("visible")
    expect(page.get_by_role("main")).not_to_contain_text("nobodys")
    # A link of another site: the browser keeps its session.
    page.goto(f"{provider.url}/authorize?link={oidc_console.url}/topics")
    page.evaluate("address => { location.href = address }", f"{oidc_console.url}/topics/visible")
    expect(page.locator("h1")).to_have_text("visible")
    expect(page.locator(".user-name")).to_have_text("alice")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("link", name="sign out there, too").click()
    expect(page.locator("body")).to_contain_text("Signed out of the provider")
    page.goto(f"{oidc_console.url}/topics")
    expect(page.get_by_role("link", name="Sign in")).to_be_visible()
