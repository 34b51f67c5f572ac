"""Groups in a browser: members of all four types, lag over time, and a reset from the form to its result."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from ottla import Admin, NewTopic
from ottla.testing import ProcessBroker
from tests.broker.console.group_members import KINDS, Members, commit, members_of_all_kinds, produce
from tests.console.console_process import ConsoleProcess

TOPIC = "groups-topic"
ODD = "odd <script>alert(1)</script> ünïcode/slash"


@pytest.fixture(scope="module")
def members(broker: ProcessBroker, admin: Admin) -> Iterator[Members]:
    """Four groups with a member each."""
    admin.create_topics([NewTopic(TOPIC, 3, 1)], wait_for_metadata=True)
    produce(broker.bootstrap, TOPIC, 30, partitions=3)
    with members_of_all_kinds(broker.bootstrap, TOPIC, "browser") as made:
        yield made


def test_groups_are_found_and_opened(page: Page, members: Members) -> None:
    page.goto("/groups")
    for kind in KINDS:
        expect(page.get_by_role("link", name=members.of(kind), exact=True)).to_be_visible()
    page.get_by_label("Filter by name, kind or state").fill("browser-sh")
    expect(page.locator("#groups tbody tr")).to_have_count(1)
    page.get_by_role("link", name=members.share, exact=True).click()
    expect(page.locator("h1")).to_have_text(members.share)
    expect(page.get_by_role("columnheader", name="Start offset")).to_be_visible()
    expect(page.locator(".chart canvas")).to_be_visible()
    page.goto(f"/groups/{members.streams}")
    expect(page.locator("#topology")).to_contain_text("-by-key-repartition")


def test_a_reset_from_the_form_to_the_result(page: Page, broker: ProcessBroker, admin: Admin, members: Members) -> None:
    commit(broker.bootstrap, ODD, TOPIC, polls=10)
    page.goto("/groups")
    page.get_by_role("link", name=ODD).click()
    page.get_by_role("link", name="Reset offsets").click()
    page.get_by_label("Reset to").select_option("offset")
    page.get_by_label("Value").fill("4")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#plan tbody tr")).to_have_count(3)
    expect(page.locator(".command")).to_contain_text("--to-offset 4 --execute")
    page.get_by_role("button", name="Reset 3 offsets").click()
    expect(page.locator("h1")).to_have_text(ODD)
    assert {4} == {each.offset for each in admin.list_consumer_group_offsets(ODD).values()}


def test_groups_whose_ids_are_steps_of_a_path(page: Page, broker: ProcessBroker, members: Members) -> None:
    for name in ("..", "%2e%2e", "a/../b"):
        commit(broker.bootstrap, name, TOPIC, polls=1)
        page.goto("/groups")
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.locator("h1")).to_have_text(name)
        page.get_by_role("link", name="Reset offsets").click()
        expect(page.locator("h1")).to_contain_text(name)
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("#plan tbody tr")).to_have_count(3)


def test_an_active_group_is_refused_with_a_sentence(page: Page, members: Members) -> None:
    page.goto(f"/groups/{members.consumer}/reset")
    expect(page.locator(".notice")).to_contain_text("stop its consumers before you reset its offsets")
    expect(page.get_by_role("button", name="Preview")).to_have_count(0)


def test_a_phone_without_scripts_reads_groups(
    new_page: Callable[..., Page], console: ConsoleProcess, members: Members
) -> None:
    page = new_page(console.url, width=390, height=844, theme="dark", scripts=False)
    page.goto(f"/groups/{members.classic}")
    expect(page.locator("#offsets tbody tr")).to_have_count(3)
    page.goto("/groups?kind=streams")
    expect(page.locator("#groups tbody tr").first).to_contain_text(members.streams)
