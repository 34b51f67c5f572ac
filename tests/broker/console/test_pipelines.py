"""Pipelines: what their files say, the picture, and the pages on a real broker."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla import Producer
from ottla.console.settings import AuthMode
from ottla.spark.pipelines.declaration.project_template import make_project
from ottla.testing import InProcessBroker, SecuredBroker
from tests.unit.console.visitor import Visitor


def run_of(folder: Path, query: str, batches: int, offset: int) -> None:
    """The checkpoint of a query that read up to an offset."""
    at = folder / ".ottla" / "shop" / query
    for name in ("offsets", "commits"):
        (at / name).mkdir(parents=True, exist_ok=True)
        for batch in range(batches):
            read = json.dumps({"orders": {"0": offset * (batch + 1) // batches}})
            (at / name / str(batch)).write_text(f"v1\n{{}}\n{read}" if name == "offsets" else "v1\n{}")
    (at / "metadata").write_text('{"id":"abc"}')


def progress(folder: Path, **states: str) -> None:
    queries = [
        {"name": name.replace("__", "-"), "to": "x", "state": state, "batch": 2, "rows": 7, "rows_per_second": 3.5}
        for name, state in states.items()
    ]
    at = folder / ".ottla" / "shop"
    at.mkdir(parents=True, exist_ok=True)
    (at / "progress.json").write_text(json.dumps({"at": 1_700_000_000.5, "queries": queries}))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    make_project(tmp_path / "shop", "shop")
    return tmp_path / "shop"


def test_pages(shop: Path, broker: InProcessBroker, visit: Callable[..., Visitor]) -> None:
    broker.create_topic("orders")
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for _ in range(50):
            producer.send("orders", value=b"{}")
    run_of(shop, "totals", 3, 30)
    progress(shop, totals="running")
    console = visit(broker.bootstrap, pipelines=(shop.parent,))
    listed = console.get("/pipelines").text
    assert "interrupted" in listed
    shown = console.get("/pipelines/shop?query=totals")
    assert 200 == shown.status_code
    assert "lag 20" in shown.text
    assert "orders (topic orders) goes to clean" in shown.text
    assert "style=" not in shown.text
    assert 404 == console.get("/pipelines/nope").status_code
    assert "--pipelines" in visit(broker.bootstrap).get("/pipelines").text


def test_with_a_login_a_pipeline_is_shown_to_those_who_may_describe_its_groups(
    shop: Path, tmp_path: Path, visit: Callable[..., Visitor]
) -> None:
    progress(shop, totals="failed")
    (shop / ".ottla" / "shop" / "error.txt").write_text("ValueError: a part of a record")
    with SecuredBroker(tmp_path / "secured") as secured:
        options = dict(secured.client_options())
        bootstrap, mechanism = options.pop("bootstrap_servers"), options["sasl_mechanism"]
        for user, sees in (("alice", False), ("admin", True)):
            console = visit(
                bootstrap,
                client_options=options,
                auth=AuthMode.CLUSTER,
                login_mechanism=mechanism,
                pipelines=(shop.parent,),
            )
            console.get("/login")
            signed_in = console.post("/login", {"user": user, "password": secured.password_of(user)})
            assert 303 == signed_in.status_code
            for path in ("/", "/pipelines"):
                page = console.get(path)
                assert (200, sees) == (page.status_code, "/pipelines/shop" in page.text), (user, path)
            page = console.get("/pipelines/shop")
            assert (200 if sees else 404, sees) == (page.status_code, "a part of a record" in page.text)
