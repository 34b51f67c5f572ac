"""The console with a login, on a cluster with ACLs: a user who may read one topic sees it, and is told of the rest."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from ottla import Producer
from ottla.testing import SecuredBroker
from tests.console.console_process import ConsoleProcess, running_console


@pytest.fixture(scope="module")
def restricted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as made:
        for topic in ("visible", "hidden"):
            made.create_topic(topic)
        with Producer(**made.client_options()) as producer:
            producer.send("visible", value=b"for alice")
            producer.send("hidden", value=b"for nobody else")
        made.allow("alice", "Read", topic="visible")
        yield made


@pytest.fixture(scope="module")
def login_console(restricted: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console whose own user may do nothing: what pages show comes with the login."""
    folder = tmp_path_factory.mktemp("login-console")
    properties = folder / "console.properties"
    properties.write_text(restricted.client_properties("console"))
    options = ("--bootstrap", restricted.bootstrap_of("SASL_SSL"), "--command-config", str(properties))
    with running_console(folder, *options, "--auth", "cluster") as made:
        yield made


@pytest.fixture
def alice(restricted: SecuredBroker, login_console: ConsoleProcess, new_page: Callable[..., Page]) -> Page:
    """The page of a signed-in user."""
    page = new_page(login_console.url)
    page.allowed_errors.extend(["status of 40[0-9]"])
    page.goto("/topics")
    sign_in(page, "alice", restricted.password_of("alice"))
    expect(page.locator(".user-name")).to_have_text("alice")
    return page


def sign_in(page: Page, user: str, password: str) -> None:
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def test_a_wrong_password_opens_nothing(
    restricted: SecuredBroker, login_console: ConsoleProcess, new_page: Callable[..., Page]
) -> None:
    page = new_page(login_console.url)
    page.allowed_errors.append("status of 40")
    page.goto("/security/acls")
    sign_in(page, "alice", "wrong-password")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("navigation", name="Main")).to_have_count(0)


def test_only_what_the_user_may_describe_exists(alice: Page) -> None:
    expect(alice.get_by_role("main")).to_contain_text("visible")
    expect(alice.get_by_role("main")).not_to_contain_text("hidden")
    expect(alice.get_by_role("main")).not_to_contain_text("No broker has answered")
    alice.goto("/topics/visible")
    expect(alice.locator("h1")).to_contain_text("visible")
    found = alice.goto("/topics/hidden")
    assert found is not None
    assert found.status in (403, 404)
    for path in ("/topics/hidden", "/topics/hidden/records", "/search?q=hidden"):
        alice.goto(path)
        expect(alice.get_by_role("main")).not_to_contain_text("for nobody else")


@pytest.mark.parametrize(
    ("path", "missing"),
    [
        ("/security/users", "DESCRIBE on cluster"),
        ("/security/acls", "DESCRIBE on cluster"),
        ("/security/quotas", "DESCRIBE_CONFIGS on cluster"),
        ("/security/explain?user=alice&operation=READ&resource=topic:visible", "DESCRIBE on cluster"),
        ("/security/users/set?user=mallory", "DESCRIBE on cluster"),
    ],
)
def test_what_is_not_permitted_is_named(alice: Page, path: str, missing: str) -> None:
    found = alice.goto(path)
    assert found is not None
    assert 403 == found.status
    expect(alice.get_by_role("alert")).to_contain_text(f"not permitted: {missing}")
    expect(alice.get_by_role("alert")).to_contain_text("User:alice")


def test_passwords_are_nowhere(restricted: SecuredBroker, login_console: ConsoleProcess, alice: Page) -> None:
    password = restricted.password_of("alice")
    alice.goto("/")
    assert password not in alice.content()
    written = [each.read_text(errors="replace") for each in Path(login_console.folder).glob("*") if each.is_file()]
    mine = [text for text in written if "sasl.jaas.config" not in text]
    assert mine
    assert not any(password in text for text in mine)
    alice.get_by_role("button", name="Sign out").click()
    alice.goto("/topics")
    expect(alice.get_by_role("button", name="Sign in")).to_be_visible()
