"""Topics in a browser: create, favourites, the list's window, delete by name."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from ottla import Admin, NewTopic
from tests.console.console_process import ConsoleProcess


def test_a_topic_is_created_configured_and_deleted(page: Page, admin: Admin) -> None:
    page.goto("/topics")
    page.get_by_role("link", name="Create topic").click()
    page.get_by_label("Name", exact=True).fill("by-hand")
    page.get_by_label("Partitions").fill("2")
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".preview")).to_contain_text("Creates topic by-hand with 2 partitions, 1 replica each.")
    page.get_by_role("button", name="Create topic").click()
    expect(page.get_by_role("heading", name="by-hand")).to_be_visible()
    assert "by-hand" in admin.list_topics()
    page.goto("/topics/by-hand/config?edit=retention.ms")
    page.get_by_label("retention.ms").fill("60000")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.locator("#configs tbody tr").first).to_contain_text("60000")
    page.goto("/topics/by-hand/delete")
    button = page.get_by_role("button", name="Delete topic")
    expect(button).to_be_disabled()
    page.get_by_label("Type by-hand to confirm").fill("by-hand")
    button.click()
    page.wait_for_url("**/topics")
    assert "by-hand" not in admin.list_topics()


def test_favourites_stay_in_this_browser(page: Page, admin: Admin) -> None:
    admin.create_topics([NewTopic("favoured", 1)], wait_for_metadata=True)
    page.goto("/topics?q=favoured")
    page.locator('[data-star="favoured"]').click()
    page.goto("/topics")
    page.locator("[data-favourites]").get_by_role("link", name="favoured").click()
    expect(page.get_by_role("heading", name="favoured")).to_be_visible()


def test_many_topics_are_shown_in_windows_and_filtered(page: Page, admin: Admin) -> None:
    names = [f"many-{number:03d}" for number in range(130)]
    admin.create_topics([NewTopic(name, 1) for name in names], wait_for_metadata=True)
    page.goto("/topics?q=many-")
    rows = page.locator("#topics tbody tr:not(.more)")
    expect(page.locator(".window-count")).to_contain_text("130 of")
    page.locator("tr.more").scroll_into_view_if_needed()
    expect(rows).to_have_count(130)
    page.get_by_label("Filter by name").fill("many-12")
    expect(rows).to_have_count(10)
    admin.delete_topics(names)


def test_a_read_only_console_offers_no_change(new_page: Callable[..., Page], read_only_console: ConsoleProcess) -> None:
    page = new_page(read_only_console.url)
    page.goto("/topics")
    expect(page.get_by_role("link", name="Create topic")).to_have_count(0)
    page.goto("/topics/~create?name=x")
    expect(page.locator("main")).to_contain_text("This console is read-only")
