"""Transactions in a browser: an open one is seen and aborted; hanging ones are searched for while the page is shown."""

from playwright.sync_api import Page, expect

from ottla import Admin, NewTopic, Producer
from ottla.testing import ProcessBroker


def test_an_open_transaction_is_aborted(page: Page, broker: ProcessBroker, admin: Admin) -> None:
    admin.create_topics([NewTopic("transactions-topic", 1, 1)], wait_for_metadata=True)
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id="browser-etl") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("transactions-topic", b"open").get(60)
        page.goto("/transactions")
        expect(page.locator("#hanging")).to_contain_text("No hanging transactions")
        page.locator("#open tr", has_text="browser-etl").get_by_role("link", name="Abort").click()
        expect(page.locator(".preview")).to_contain_text("transactions-topic:0")
        page.get_by_label("to confirm").fill("browser-etl")
        page.get_by_role("button", name="Abort transaction").click()
        expect(page.locator("h1")).to_have_text("Transactions")
        expect(page.locator("#open tr", has_text="Ongoing")).to_have_count(0)
