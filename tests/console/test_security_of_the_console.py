"""Attacks in a real browser: forms of other sites, markup in names, a session that is stolen or over."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from ottla import Admin
from ottla.testing import ProcessBroker
from tests.console.console_process import ConsoleProcess, FormClient, running_console
from tests.loopback_http import LoopbackServer, Response

NewPage = Callable[..., Page]
CONFIG = "/brokers/0/configs/log.retention.ms"


@pytest.fixture
def other_site(console: ConsoleProcess) -> Iterator[str]:
    """A page of another origin that sends a form to the console."""

    form = f"""<form method=post action="{console.url}{CONFIG}"><input name=change value=set>
      <input name=value value=31337><button>win a prize</button></form>
      <iframe src="{console.url}/" title="framed"></iframe>"""
    with LoopbackServer(lambda _: Response(text=form, media_type="text/html")) as server:
        yield f"http://localhost:{server.port}"


def test_another_site_can_neither_send_forms_nor_frame_the_console(
    new_page: NewPage, console: ConsoleProcess, other_site: str
) -> None:
    page = new_page(console.url)
    page.goto(CONFIG)  # the visitor has a cookie
    page.allowed_errors += ["frame", "status of 403"]
    page.goto(other_site)
    framed = page.frame_locator("iframe").locator("body")
    expect(framed).to_contain_text("refused to connect")
    expect(framed).not_to_contain_text("Overview")
    page.get_by_role("button", name="win a prize").click()
    expect(page.locator("h1")).to_have_text("Refused")
    page.goto(CONFIG)
    expect(page.locator(".facts")).not_to_contain_text("31337")


def test_a_config_is_changed_with_the_keyboard_only(page: Page, admin: Admin) -> None:
    page.goto(CONFIG)
    page.get_by_label("New value").fill("7200001")
    page.keyboard.press("Enter")
    expect(page.locator(".preview")).to_contain_text("to 7200001, at once")
    expect(page.locator(".command code")).to_contain_text("ottla configs set log.retention.ms=7200001 --broker 0")
    page.get_by_role("button", name="Set config").press("Enter")
    expect(page.locator("#configs tr", has_text="log.retention.ms").first).to_contain_text("7200001")
    page.goto("/audit?q=7200001")
    row = page.locator("#audit tbody tr").first
    expect(row).to_contain_text("anonymous")
    expect(row).to_contain_text("done")
    expect(row).to_contain_text("127.0.0.1")


def test_a_read_only_console_has_no_forms(new_page: NewPage, read_only_console: ConsoleProcess) -> None:
    page = new_page(read_only_console.url)
    page.goto(f"{CONFIG}?change=set&value=5")
    expect(page.locator("main .notice")).to_contain_text("read-only")
    expect(page.locator("main form[method=post]")).to_have_count(0)
    client = FormClient(read_only_console.url)
    assert 403 == client.post(CONFIG, {"change": "set", "value": "5"}).status_code
    client.close()


def test_two_visitors_at_once_have_tokens_of_their_own(new_page: NewPage, console: ConsoleProcess) -> None:
    one, two = new_page(console.url), new_page(console.url, theme="dark")
    for page, value in ((one, "7200002"), (two, "7200003")):
        page.goto(f"{CONFIG}?change=set&value={value}")
    tokens = [page.locator("main form[method=post] input[name=csrf]").get_attribute("value") for page in (one, two)]
    assert tokens[0] != tokens[1]
    for page in (one, two):
        page.get_by_role("button", name="Set config").click()
        expect(page.locator("h1")).to_have_text("Broker 0")
    one.goto("/audit")
    expect(one.locator("#audit")).to_contain_text("7200002")
    expect(one.locator("#audit")).to_contain_text("7200003")


@pytest.fixture(scope="module")
def login_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console with sign-in, on a broker with users."""
    folder = tmp_path_factory.mktemp("login")
    users = [f"SCRAM-SHA-512=[name={name},password={name}-secret]" for name in ("admin", "alice")]
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    }
    properties = folder / "console.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="admin" password="admin-secret";\n'
    )
    with (
        ProcessBroker(folder / "broker", settings, protocol="SASL_PLAINTEXT", first_users=users) as broker,
        running_console(
            folder / "console",
            *("--bootstrap", broker.bootstrap, "--command-config", str(properties), "--auth", "cluster"),
        ) as console,
    ):
        yield console


def test_people_sign_in_with_their_user_of_the_cluster(new_page: NewPage, login_console: ConsoleProcess) -> None:
    page = new_page(login_console.url)
    page.allowed_errors += ["status of 401", "status of 403"]
    page.goto("/brokers")
    expect(page.locator("h1")).to_have_text("Sign in")
    page.get_by_label("User").fill("alice")
    page.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("check the user name")
    page.get_by_label("Password").fill("alice-secret")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Brokers")
    expect(page.locator(".user-name")).to_have_text("alice")
    other = new_page(login_console.url)
    other.goto("/brokers")
    expect(other.locator("h1")).to_have_text("Sign in")
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("h1")).to_have_text("Sign in")
    page.goto("/audit")
    expect(page.locator("h1")).to_have_text("Sign in")
    assert "alice-secret" not in login_console.log


def test_a_password_is_not_in_the_files_of_the_console(login_console: ConsoleProcess) -> None:
    texts = [each.read_text(errors="replace") for each in Path(login_console.folder).iterdir() if each.is_file()]
    assert not any("admin-secret" in each for each in texts)
