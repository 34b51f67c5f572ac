"""Pipelines in a browser: the graph, and what its run left behind."""

import json
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from ottla import Admin, NewTopic, Producer
from ottla.spark.pipelines.declaration.loading import load_project
from ottla.spark.pipelines.declaration.project_template import make_project
from ottla.spark.pipelines.running.run_files import run_lock, write_progress
from ottla.testing import ProcessBroker
from tests.console.console_process import running_console


def test_a_running_pipeline_and_its_failure(
    tmp_path: Path, broker: ProcessBroker, admin: Admin, new_page: Callable[..., Page]
) -> None:
    folder = tmp_path / "pipelines" / "web-shop"
    make_project(folder, "web-shop")
    toml = folder / "pipeline.toml"
    toml.write_text(toml.read_text().replace('topic = "orders"', 'topic = "web-orders"'))
    admin.create_topics([NewTopic("web-orders", 1, 1)])
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for _ in range(30):
            producer.send("web-orders", value=b"{}")
    project = load_project(folder)
    checkpoint = folder / ".ottla" / "web-shop" / "totals"
    for name, text in (("offsets", 'v1\n{}\n{"web-orders": {"0": 18}}'), ("commits", "v1\n{}")):
        (checkpoint / name).mkdir(parents=True)
        (checkpoint / name / "0").write_text(text)
    (checkpoint / "metadata").write_text(json.dumps({"id": "abc"}))
    query = {"name": "totals", "to": "order-totals", "batch": 0, "rows": 18, "rows_per_second": 9.0}
    with running_console(
        tmp_path / "console", "--bootstrap", broker.bootstrap, "--pipelines", str(folder.parent)
    ) as console:
        page = new_page(console.url)
        with run_lock(project):
            write_progress(project, {"at": 1.0, "queries": [{**query, "state": "running"}]})
            page.goto("/pipelines")
            page.get_by_role("link", name="web-shop").click()
            expect(page.locator(".state")).to_contain_text("running")
            graph = page.get_by_role("img", name="Graph of web-shop")
            expect(graph.locator(".label").first).to_have_text("lag 12")
            expect(graph.locator("text").filter(has_text="9 rows/s")).to_be_visible()
            write_progress(project, {"at": 2.0, "queries": [{**query, "state": "failed"}]})
            (checkpoint.parent / "error.txt").write_text("Traceback (most recent call last)\nValueError: <i>bad</i>")
            page.reload()
            expect(page.get_by_role("alert")).to_contain_text("ValueError: <i>bad</i>")
        graph.get_by_role("link").first.click()
        page.wait_for_url("**/topics/web-orders")
