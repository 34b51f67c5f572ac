"""Queues in a browser: the histogram of due times, and a delayed record that gets another time."""

from playwright.sync_api import Page, expect

from ottla import Admin, NewTopic, Producer
from ottla.testing import ProcessBroker


def test_a_delayed_record_is_rescheduled(page: Page, broker: ProcessBroker, admin: Admin) -> None:
    topic = "queues-topic"
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"ottla.delay.enable": "true"})], wait_for_metadata=True)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(f"{topic}.delayed", b"<b>later</b>", b"k", [("ottla.delay-ms", b"3600000")]).get(60)
    page.goto("/queues")
    page.get_by_role("link", name=topic, exact=True).click()
    expect(page.locator(".histogram tr", has_text="within 1 h").locator("td").nth(1)).to_have_text("1")
    page.get_by_role("link", name="0:0", exact=True).click()
    expect(page.locator("pre").last).to_have_text("<b>later</b>")
    page.get_by_label("Due").fill("3d")
    page.get_by_role("button", name="Reschedule").click()
    expect(page.locator(".histogram tr", has_text="within 7 d").locator("td").nth(1)).to_have_text("1")
    expect(page.locator("#due-1 tbody tr")).to_have_count(1)
