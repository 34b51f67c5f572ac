"""Alert rules and dashboard ask for metrics that a broker has."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.broker.http_client import endpoint_of, get
from tests.broker.running_broker import running

MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"
METRIC = re.compile(r"\b(?:ottla|process)_[a-z0-9_]+")
NOT_OURS = {"up"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every metric of a running broker, with its type."""

    async def scrape() -> str:
        async with running(tmp_path_factory.mktemp("broker")) as broker:
            endpoint = endpoint_of(broker)
            port = await endpoint.start("127.0.0.1", 0)
            try:
                return (await get(port, "/metrics")).body.decode()
            finally:
                await endpoint.stop()

    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", asyncio.run(scrape()), re.MULTILINE))


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((MONITORING / "grafana-dashboard.json").read_text())["panels"]
    return found


def dashboard_expressions() -> Iterator[str]:
    for panel in panels():
        yield from (target["expr"] for target in panel.get("targets", ()))


def unknown(expressions: list[str], exported: dict[str, str]) -> list[str]:
    """Metrics in the expressions that no broker has; a histogram is asked for by its buckets."""
    names = {name for each in expressions for name in METRIC.findall(each)} - NOT_OURS
    histograms = {f"{name}_bucket" for name, kind in exported.items() if kind == "histogram"}
    return sorted(names - histograms - {name for name, kind in exported.items() if kind != "histogram"})


def test_every_metric_of_the_alerts_is_exported(exported: dict[str, str]) -> None:
    assert [] == unknown([each["expr"] for each in rules()], exported)
    assert ["ottla_nothing"] == unknown(["rate(ottla_nothing[5m]) + ottla_ready"], exported)


def test_every_metric_of_the_dashboard_is_exported(exported: dict[str, str]) -> None:
    assert [] == unknown(list(dashboard_expressions()), exported)


def test_counters_are_asked_for_as_rates(exported: dict[str, str]) -> None:
    for expression in [*dashboard_expressions(), *(each["expr"] for each in rules())]:
        for name in METRIC.findall(expression):
            is_counter = exported.get(name, "histogram") in ("counter", "histogram")
            assert is_counter is bool(re.search(rf"(?:rate|increase)\({name}\b", expression)), expression


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    names = [each["alert"] for each in rules()]
    assert len(set(names)) == len(names)
    for each in rules():
        assert each["labels"]["severity"] in ("critical", "warning")
        assert {"summary", "description"} == set(each["annotations"])


def test_panels_do_not_overlap() -> None:
    cells: dict[tuple[int, int], str] = {}
    for panel in panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in cells, (panel["title"], cells[x, y])
                cells[x, y] = panel["title"]
