"""Dead letters in a browser: from the list to a letter, a redrive as a job, and a purge by name."""

import re
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from ottla import Admin, NewTopic, Producer, TopicPartition
from ottla.client.admin.async_admin import OffsetSpec
from ottla.model.dead_letters import DeadLetter, Origin, story_headers
from ottla.testing import ProcessBroker

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def topic(broker: ProcessBroker, admin: Admin) -> str:
    """A topic with five dead letters of two causes."""
    name = f"t-{uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 1, 1), NewTopic(f"dlq.{name}", 1, 1)], wait_for_metadata=True)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for at in range(5):
            story = DeadLetter(
                origin=Origin(topic=name, partition=0, offset=at), reason="timeout" if at % 2 else EVIL, group="billing"
            )
            producer.send(f"dlq.{name}", b'{"price": "%s"}' % EVIL.encode(), b"k%d" % at, story_headers(story))
    return name


def end_offset(admin: Admin, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    return admin.list_offsets({partition: OffsetSpec.LATEST}, read_committed=True)[partition].offset


def test_from_the_list_to_a_letter(page: Page, topic: str) -> None:
    page.goto("/dead-letters")
    page.get_by_role("link", name=f"dlq.{topic}").click()
    expect(page.locator(".state")).to_contain_text("5 letters, 2 causes; scanned 5 of 5")
    page.get_by_role("link", name=EVIL).first.click()
    expect(page.locator(".state")).to_contain_text("3 letters match, 1 cause")
    page.get_by_role("link", name="0:4", exact=True).click()
    expect(page.locator("pre").last).to_contain_text(EVIL)
    expect(page.locator("main img")).to_have_count(0)


def test_a_redrive_and_a_purge(page: Page, admin: Admin, topic: str) -> None:
    page.goto(f"/dead-letters/dlq.{topic}?reason=timeout")
    page.get_by_role("link", name="Redrive", exact=True).first.click()
    expect(page.locator(".preview").first).to_contain_text("Sends 2 letters")
    page.get_by_role("button", name="Redrive 2 letters").click()
    page.wait_for_url(re.compile("/jobs/"))
    expect(page.locator("main")).to_contain_text(f"redriven 2 to {topic}")
    assert end_offset(admin, topic) >= 2
    page.goto(f"/dead-letters/dlq.{topic}/purge?what=all")
    expect(page.locator(".preview").first).to_contain_text("were not redriven")
    button = page.get_by_role("button", name=re.compile("Delete .* offsets"))
    expect(button).to_be_disabled()
    page.get_by_label("to confirm").fill(f"dlq.{topic}")
    button.click()
    expect(page.locator(".state")).to_contain_text("No dead letters")


def test_an_edited_copy_is_sent(page: Page, admin: Admin, topic: str) -> None:
    page.goto(f"/dead-letters/dlq.{topic}/0/0")
    page.get_by_role("link", name="Edit a copy").click()
    page.get_by_label("Value", exact=True).fill('{"price": 3}')
    page.get_by_role("button", name="Send the copy").click()
    page.wait_for_url(re.compile(f"/topics/{topic}/records"))
    assert 1 == end_offset(admin, topic)
