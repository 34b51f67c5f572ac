"""Fixtures of the console's tests; the package's docstring lists them."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from ottla import Admin
from ottla.testing import ProcessBroker, SecuredBroker
from tests.console.console_process import ConsoleProcess, FormClient, running_console

CHROMIUM = os.environ.get("OTTLA_CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
TIMEOUT_MS = 30_000
expect.set_options(timeout=TIMEOUT_MS)


class WatchedPage:
    """A Playwright page, all of whose methods it has, that remembers what went wrong in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.allowed_errors: list[str] = []
        """Patterns of errors that the test provokes."""
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(f"exception: {error}"))
        page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)

    def check(self) -> None:
        """Raises if something went wrong that no pattern allows."""
        wrong = [each for each in self.errors if not any(re.search(one, each) for one in self.allowed_errors)]
        assert [] == wrong, "the browser reports errors"


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessBroker]:
    """One broker with a schema registry, for all tests that do not harm it."""
    with ProcessBroker(tmp_path_factory.mktemp("broker"), registry=True) as made:
        yield made


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker with TLS, logins and ACLs, for a module that changes them."""
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as made:
        yield made


@pytest.fixture(scope="session")
def broker_bootstrap(broker: ProcessBroker) -> str:
    """The broker's address."""
    return broker.bootstrap


@pytest.fixture(scope="session")
def registry_url(broker: ProcessBroker) -> str:
    """The registry beside the broker."""
    return broker.wait_registry()


@pytest.fixture(scope="session")
def admin(broker: ProcessBroker) -> Iterator[Admin]:
    """To prepare and to judge."""
    with Admin(bootstrap_servers=broker.bootstrap) as made:
        yield made


@pytest.fixture(scope="session")
def console(
    broker: ProcessBroker, registry_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    """One console for all tests that do not harm it."""
    folder = tmp_path_factory.mktemp("console")
    with running_console(folder, "--bootstrap", broker.bootstrap, "--registry", registry_url) as made:
        yield made


@pytest.fixture(scope="session")
def read_only_console(
    broker: ProcessBroker, registry_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    """The same, but it changes nothing."""
    folder = tmp_path_factory.mktemp("read-only-console")
    options = ("--bootstrap", broker.bootstrap, "--registry", registry_url, "--read-only")
    with running_console(folder, *options) as made:
        yield made


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Debian's browser."""
    if not Path(CHROMIUM).exists():
        pytest.fail(f"{CHROMIUM} does not exist; run tests/console/prepare")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def new_page(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Makes pages, each of a visitor of its own; at the end none may have reported an error."""
    watched: list[WatchedPage] = []

    def make(url: str, *, width: int = 1440, height: int = 900, theme: str = "light", scripts: bool = True) -> Page:
        context = chromium.new_context(
            base_url=url,
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
            java_script_enabled=scripts,
            ignore_https_errors=True,
        )
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        watch = WatchedPage(page)
        watched.append(watch)
        vars(page)["allowed_errors"] = watch.allowed_errors
        return page

    yield make
    for each in watched:
        each.page.context.close()
    for each in watched:
        each.check()


@pytest.fixture
def page(new_page: Callable[..., Page], console: ConsoleProcess) -> Page:
    """A page of the console."""
    return new_page(console.url)


@pytest.fixture
def http(console: ConsoleProcess) -> Iterator[FormClient]:
    """Requests without a browser."""
    client = FormClient(console.url)
    yield client
    client.close()
