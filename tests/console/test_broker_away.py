"""A broker that goes away and comes back, while a page is open."""

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from ottla.testing import ProcessBroker
from tests.console.console_process import running_console

LONG_MS = 60_000


def test_pages_say_since_when_and_recover_by_themselves(new_page: Callable[..., Page], tmp_path: Path) -> None:
    with (
        ProcessBroker(tmp_path / "broker") as broker,
        running_console(tmp_path / "console", "--bootstrap", broker.bootstrap) as console,
    ):
        page = new_page(console.url)
        page.allowed_errors += ["status of 50[03]"]
        page.goto("/")
        dot = page.locator("#health-dot")
        expect(dot).to_contain_text("healthy", timeout=LONG_MS)
        broker.kill()
        expect(dot).to_contain_text("no answer", timeout=LONG_MS)
        expect(page.locator("#live")).to_have_class(re.compile("is-stale"), timeout=LONG_MS)
        page.goto("/")
        expect(page.locator(".stale")).to_contain_text("No broker has answered since")
        expect(page.locator(".stale")).to_contain_text("UTC")
        page.goto("/brokers")
        expect(page.locator("h1")).to_have_text("The cluster does not answer")
        expect(page.locator(".failure")).to_contain_text("ottla cluster health")
        broker.start()
        page.goto("/jobs")
        expect(dot).to_contain_text("healthy", timeout=LONG_MS)
        page.goto("/brokers")
        expect(page.locator("#brokers tbody tr")).to_have_count(1)
        assert "the cluster answers again" in console.log
        assert "Traceback" not in console.log
