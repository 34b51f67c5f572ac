"""The overview and what is around every page: health, search, keyboard, themes, charts."""

import re
import threading
from collections.abc import Callable

from playwright.sync_api import Page, expect

from ottla import Admin, NewTopic, Producer
from tests.console.console_process import ConsoleProcess


def test_the_overview_says_that_the_cluster_is_healthy(page: Page) -> None:
    page.goto("/")
    expect(page.locator("#health-dot")).to_contain_text("healthy")
    expect(page).to_have_title(re.compile("^Overview · "))
    expect(page.locator(".chart .u-legend").first).to_contain_text("produced")


def test_numbers_follow_what_is_written(page: Page, admin: Admin, broker_bootstrap: str) -> None:
    admin.create_topics([NewTopic("overview.busy", 1, 1)], wait_for_metadata=True)
    is_over = threading.Event()

    def write() -> None:
        with Producer(bootstrap_servers=broker_bootstrap) as producer:
            while not is_over.wait(0.2):
                for _ in range(100):
                    producer.send("overview.busy", value=b"x" * 100)
                producer.flush()

    # Until the row was used: it goes away soon after the last record.
    writing = threading.Thread(target=write)
    writing.start()
    try:
        page.goto("/")
        row = page.locator("#busiest tr", has_text="overview.busy")
        expect(row).to_be_visible(timeout=60_000)
        row.get_by_role("link").click()
        expect(page).to_have_url(re.compile("/topics/overview.busy"))
    finally:
        is_over.set()
        writing.join()


def test_search_by_keyboard(page: Page, admin: Admin) -> None:
    admin.create_topics([NewTopic("palette.finds-me", 1, 1)], wait_for_metadata=True)
    page.goto("/jobs")
    page.keyboard.press("/")
    dialog = page.get_by_role("dialog", name="Search")
    expect(dialog).to_be_visible()
    page.keyboard.type("palette.f")
    expect(dialog.get_by_role("option").first).to_contain_text("palette.finds-me")
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("audit")
    expect(dialog.get_by_role("option").first).to_contain_text("Audit")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/audit$"))


def test_the_theme_can_be_switched_and_stays(page: Page) -> None:
    def ground() -> str:
        return str(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))

    page.goto("/jobs")
    light = ground()
    page.get_by_role("button", name="Switch between light and dark").click()
    assert light != ground()
    page.reload()
    assert light != ground()


def test_tables_sort_and_filter(page: Page) -> None:
    page.goto("/brokers/0/configs")
    names = page.locator("#configs tbody tr:visible td:first-child")
    everything = names.count()
    page.get_by_placeholder("Filter configs").fill("retention")
    expect(page.locator('[data-counts="configs"]')).to_contain_text(f"of {everything} match")
    assert all("retention" in each.lower() for each in page.locator("#configs tbody tr:visible").all_text_contents())
    page.locator("#configs th", has_text="Config").click()
    up = names.all_text_contents()
    page.locator("#configs th", has_text="Config").click()
    assert list(reversed(up)) == names.all_text_contents() != up


def test_reading_works_without_javascript(new_page: Callable[..., Page], console: ConsoleProcess) -> None:
    page = new_page(console.url, scripts=False)
    page.goto("/")
    expect(page.locator("h1")).to_have_text("Overview")
    page.get_by_role("link", name="Brokers").first.click()
    expect(page.locator("#brokers tbody tr")).to_have_count(1)
    page.goto("/search?q=broker")
    expect(page.locator("#results")).to_contain_text("broker 0")


def test_a_small_screen_has_a_menu_and_does_not_scroll_sideways(
    new_page: Callable[..., Page], console: ConsoleProcess
) -> None:
    page = new_page(console.url, width=390, height=844)
    for path in ("/", "/brokers", "/brokers/0", "/brokers/0/configs", "/jobs", "/audit", "/search?q=a"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    expect(page.get_by_role("navigation", name="Main")).not_to_be_visible()
    page.get_by_role("button", name="Show or hide the navigation").click()
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Brokers").click()
    expect(page.locator("h1")).to_have_text("Brokers")
