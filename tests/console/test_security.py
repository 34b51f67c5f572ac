"""Users, ACLs and explanations in a browser, on a broker with an authorizer."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from ottla import Admin
from ottla.testing import SecuredBroker
from tests.console.console_process import ConsoleProcess, running_console

SECRET = "Quiet-42-quiet"


@pytest.fixture
def secured_console(secured: SecuredBroker, tmp_path: Path) -> Iterator[ConsoleProcess]:
    """A console with the rights of the administrator."""
    properties = tmp_path / "admin.properties"
    properties.write_text(secured.client_properties())
    bootstrap = secured.bootstrap_of("SASL_SSL")
    with running_console(tmp_path / "console", "--bootstrap", bootstrap, "--command-config", str(properties)) as made:
        yield made


def test_a_user_gets_an_acl_and_the_answer_changes(
    secured: SecuredBroker, secured_console: ConsoleProcess, new_page: Callable[..., Page]
) -> None:
    page = new_page(secured_console.url)
    page.goto("/security/users")
    page.get_by_role("link", name="Create user").click()
    page.get_by_label("User", exact=True).fill("wendy")
    page.get_by_role("button", name="Continue").click()
    page.get_by_label("Password", exact=True).fill(SECRET)
    page.get_by_label("Repeat the password").fill(SECRET)
    page.get_by_role("button", name="Create user").click()
    expect(page.locator("#users")).to_contain_text("wendy")
    page.get_by_role("link", name="explain", exact=True).click()
    page.get_by_label("named").fill("orders")
    page.get_by_role("button", name="Explain").click()
    expect(page.locator(".verdict")).to_contain_text("User:wendy may not READ on topic:orders")
    page.get_by_role("link", name="Create an ACL that allows it").click()
    expect(page.locator("#effect ~ .scroll")).to_contain_text("allowed")
    page.get_by_role("button", name="Create 1 ACL").click()
    expect(page.locator("#acls")).to_contain_text("User:wendy")
    page.goto("/security/explain?user=wendy&operation=DESCRIBE&resource=topic:orders")
    expect(page.locator(".verdict")).to_contain_text("User:wendy may DESCRIBE on topic:orders")
    expect(page.get_by_role("main")).to_contain_text("An ACL that allows READ also allows DESCRIBE.")
    page.get_by_role("link", name="remove", exact=True).click()
    page.get_by_role("button", name="Remove 1 ACL").click()
    expect(page).to_have_url(re.compile("/security/acls$"))
    with Admin(**secured.client_options()) as admin:
        assert [] == [each for each in admin.describe_acls() if each.principal == "User:wendy"]
    assert SECRET not in secured_console.log + secured_console.audit.read_text()
    assert "create user" in secured_console.audit.read_text()
