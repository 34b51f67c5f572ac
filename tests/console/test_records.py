"""The record viewer in a browser: rows open in place, searches stream, the live tail pauses, nothing becomes markup."""

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from ottla import Admin, NewTopic, Producer
from ottla.testing import ProcessBroker
from tests.console.console_process import ConsoleProcess

SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def topic(admin: Admin, broker: ProcessBroker) -> str:
    """A topic with 500 orders, and one record that tries to be markup."""
    admin.create_topics([NewTopic("viewed", 2)], wait_for_metadata=True)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(500):
            producer.send("viewed", json.dumps({"id": number, "note": "x" * 50}).encode(), b"k%d" % number)
        producer.flush()
        producer.send("viewed", SCRIPT.encode(), SCRIPT.encode(), headers=[(SCRIPT, SCRIPT.encode())])
        producer.flush()
    return "viewed"


def test_a_row_opens_in_place_and_closes(page: Page, topic: str) -> None:
    page.goto(f"/topics/{topic}/records")
    row = page.locator("tr[data-opens]").nth(1)
    row.locator("td.value").click()
    opened = page.locator("tr.opened")
    expect(opened.locator("pre").first).to_contain_text('"note":')
    opened.get_by_role("link", name="Link to this record").click()
    expect(page.locator(".open-record")).to_contain_text("Records from here")
    page.go_back()
    page.locator("tr[data-opens]").nth(1).locator("td.value").click()
    expect(page.locator("tr.opened pre").first).to_be_visible()
    page.locator("tr[data-opens]").nth(1).locator("td.value").click()
    expect(page.locator("tr.opened")).to_have_count(0)


def test_markup_in_records_stays_text(page: Page, topic: str) -> None:
    page.goto(f"/topics/{topic}/records?limit=5")
    row = page.locator("tr[data-opens]", has_text="<script>")
    expect(row).to_have_count(1)
    row.locator("td.value").click()
    expect(page.locator("tr.opened pre").first).to_contain_text(SCRIPT)
    expect(page.locator("tr.opened img, tr.opened script")).to_have_count(0)
    assert "owned" not in page.title()


def test_a_search_streams_and_its_address_is_its_state(page: Page, topic: str) -> None:
    page.goto(f"/topics/{topic}/records")
    page.get_by_label("Filter", exact=True).fill("value.id in [7, 8]")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("tr[data-opens]")).to_have_count(2)
    expect(page.locator("[data-words]")).to_contain_text("complete: scanned 501 of 501 offsets, 2 matched")
    assert page.url.endswith("/records?filter=value.id+in+%5B7%2C+8%5D")
    page.reload()
    expect(page.locator("tr[data-opens]")).to_have_count(2)


def test_a_wrong_filter_shows_where(page: Page, topic: str) -> None:
    vars(page)["allowed_errors"].append("422")
    page.goto(f"/topics/{topic}/records?filter=value.id+%3D+7")
    expect(page.get_by_role("alert")).to_contain_text("column 10")


def test_the_live_tail_shows_new_records_on_top_and_pauses(page: Page, topic: str, broker: ProcessBroker) -> None:
    page.goto(f"/topics/{topic}/records?live=1")
    expect(page.locator("[data-words]")).to_contain_text("Following")
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for word in (b"first", b"second"):
            producer.send(topic, word, partition=0).get(30)
            expect(page.locator("tr[data-opens]").first).to_contain_text(word.decode())
        page.get_by_role("button", name="Pause").click()
        producer.send(topic, b"third", partition=0).get(30)
        expect(page.locator("[data-words]")).to_contain_text("paused, 1 newer records")
        expect(page.locator("tr[data-opens]")).to_have_count(2)
        page.get_by_role("button", name="Continue").click()
        producer.send(topic, b"fourth", partition=0).get(30)
        expect(page.locator("tr[data-opens]").first).to_contain_text("fourth")


def test_a_record_is_produced_and_shown(page: Page, topic: str) -> None:
    page.goto(f"/topics/{topic}/produce")
    page.get_by_label("Value", exact=True).fill('{"made": "by hand"}')
    page.get_by_label("Headers").fill("from: a person")
    page.get_by_role("button", name="Produce record").click()
    expect(page.locator(".open-record")).to_contain_text('"made": "by hand"')
    expect(page.locator(".open-record")).to_contain_text("a person")


def test_an_export_goes_on_when_its_page_is_closed(
    page: Page, new_page: Callable[..., Page], console: ConsoleProcess, topic: str
) -> None:
    page.goto(f"/topics/{topic}/records?filter=value.id+%3C+100")
    page.get_by_label("Export in the background as").select_option("csv")
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/jobs/*")
    address = page.url
    page.goto("/jobs")
    other = new_page(console.url)
    other.goto(address)
    link = other.get_by_role("link", name=f"Download {topic}.csv")
    expect(link).to_be_visible()
    with other.expect_download() as download:
        link.click()
    assert 101 == len(download.value.path().read_text().splitlines())
    other.get_by_role("button", name="Delete the file").click()
    expect(other.locator("main")).to_contain_text("100 records")
    expect(link).to_have_count(0)


def test_records_can_be_read_without_javascript(
    new_page: Callable[..., Page], console: ConsoleProcess, topic: str
) -> None:
    page = new_page(console.url, scripts=False)
    page.goto(f"/topics/{topic}/records?filter=value.id+%3D%3D+7")
    page.get_by_role("link", name="search for up to 10 seconds").click()
    expect(page.locator("tr[data-opens]")).to_have_count(1)
    page.locator("tr[data-opens] a").click()
    expect(page.locator(".open-record")).to_contain_text('"id": 7')
