"""Charts with the past from Prometheus: the range that the page shows, zoom, and a Prometheus that goes away."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from ottla.testing import ProcessBroker
from tests.broker.console.scripted_prometheus import PrometheusServer, running_prometheus, send
from tests.console.console_process import ConsoleProcess, running_console

NOTE = ".chart-note"


@pytest.fixture(scope="module")
def prometheus() -> Iterator[PrometheusServer]:
    with running_prometheus() as made:
        yield made


@pytest.fixture(scope="module")
def past_console(
    broker: ProcessBroker, prometheus: PrometheusServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    url = prometheus.url.replace("://", "://ada:s3cret-word@")
    folder = tmp_path_factory.mktemp("past-console")
    with running_console(folder, "--bootstrap", broker.bootstrap, "--prometheus", url) as made:
        yield made


def test_the_past_of_the_chosen_range_is_drawn_and_zoomed_into(
    new_page: Callable[..., Page], past_console: ConsoleProcess, prometheus: PrometheusServer
) -> None:
    page = new_page(past_console.url)
    page.goto("/")
    page.get_by_role("navigation", name="Time range of the charts").get_by_role("link", name="24h").click()
    expect(page).to_have_url(re.compile(r"/\?range=24h$"))
    chart = page.locator(".chart", has_text="Stored bytes")
    expect(chart.locator(NOTE)).to_contain_text(re.compile("^since .* from Prometheus"))
    plot = chart.locator(".u-over")
    expect(plot).to_be_visible()
    steps = {each["step"] for each in prometheus.asked}
    assert "120" in steps
    box = plot.bounding_box()
    assert box is not None
    before = len(prometheus.asked)
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 50, steps=5)
    with page.expect_response(re.compile(r"/samples\.json\?.*cluster\.size.*&from=\d+&to=\d+")):
        page.mouse.up()
    expect(page).to_have_url(re.compile(r"from_time=\d+&to_time=\d+"))
    expect(chart.locator(NOTE)).to_contain_text("from Prometheus")
    finer = [each for each in prometheus.asked[before:] if int(each["end"]) - int(each["start"]) < 6 * 3600]
    assert finer, "the zoomed range is asked for"
    assert int(finer[0]["step"]) < 120
    assert "s3cret-word" not in page.content() + past_console.log


def test_a_prometheus_that_fails_is_said_in_words(
    new_page: Callable[..., Page], past_console: ConsoleProcess, prometheus: PrometheusServer
) -> None:
    prometheus.answer = lambda handler, _: send(handler, b"<b>nonsense</b>")
    page = new_page(past_console.url)
    page.goto("/brokers/0?range=6h")
    chart = page.locator(".chart", has_text="Log size")
    expect(chart.locator(NOTE)).to_contain_text(
        "sampled by this console; Prometheus's answer is not what its API promises"
    )
